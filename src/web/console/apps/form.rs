//! `/admin/apps/form`: one application as a form, which is tried and saved as a draft of all of them.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::{AppsPreview, ages, client, factors, first, grouped, tried};
use crate::accounts::{AccountSearch, Accounts};
use crate::config::Apps;
use crate::tuning::{DraftError, Edit};
use crate::web::console::FormProblem;
use crate::web::console::document::{APPS, Act, Controls, Trial, submitted};
use crate::web::console::guard::{AdminForm, AdminRequest};
use crate::web::form::{FormPairs, value};
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{ErrorKind, ErrorPage, Layout, Problem, WebResult};

const HERE: &str = "/admin/apps/form";
/// Groups to choose from, and accounts that are suggested. Others are typed.
const MOST_OFFERED: u32 = 50;
/// The most parts of an application; one more is reported and not lost.
const MOST_PARTS: usize = 200;

/// The address of an application's form.
pub fn address(app: &str) -> String {
    format!("{HERE}?app={}", byte_serialize(app.as_bytes()).collect::<String>())
}

/// `GET /admin/apps/form`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let (name, current) = (value(&query, "app"), request.services.tuning.current());
    let form = AppForm::of(&current.live.apps, name);
    if form.is_none() && !name.is_empty() {
        return Ok(ErrorPage::new(request.layout("/admin/apps"), ErrorKind::NotFound).respond(&request.visit));
    }
    let controls = Controls::at(&current.version);
    let page = AppFormPage::new(&request, name, form.unwrap_or_default(), controls).await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/apps/form`
pub async fn submit(posted: AdminForm<DOCUMENT_LIMIT>) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let current = request.services.tuning.current();
    let (name, controls) = (value(pairs, "app").to_owned(), Controls::read(pairs));
    let before = AppForm::of(&current.live.apps, &name);
    let mut form = AppForm::read(pairs, before.as_ref());
    match (controls.act, &before) {
        (Act::AddRule, _) => form.parts.push(PartForm::default()),
        (Act::RemoveRule(index), _) if index < form.parts.len() => drop(form.parts.remove(index)),
        // The form that deletes it has nothing but the reason.
        (Act::Delete, Some(before)) => form = before.clone(),
        _ => {}
    }
    let table = (controls.act != Act::Delete).then(|| form.toml());
    let next = match controls.act {
        Act::Delete => APPS.page.to_owned(),
        _ => next_page(&form, before.as_ref()),
    };
    let fresh = AppFormPage::new(request, &name, form, controls.clone()).await?;
    let page = |controls: Controls, trial| {
        let page = fresh.clone().answered(controls, trial);
        request.visit.page(page.controls.status(), &page)
    };
    let attempt = async |checked| tried(&request.admin, checked).await;
    submitted(&posted, (&APPS, &next), controls, Edit::App(name, table), page, attempt).await
}

/// The page that a save leads to: what a new client, or one that changes, needs to know; the file for the proxy, where hosts
/// are new; otherwise the list.
fn next_page(saved: &AppForm, before: Option<&AppForm>) -> String {
    let before = before.filter(|before| before.name == saved.name);
    if saved.oidc.is_some() && before.is_none_or(|before| before.oidc != saved.oidc) {
        return client::address(&saved.name);
    }
    if !saved.hosts.is_empty() && before.is_none_or(|before| before.hosts != saved.hosts) {
        let name: String = byte_serialize(saved.name.as_bytes()).collect();
        return format!("{}?proxy=nginx&app={name}#proxy-file", APPS.page);
    }
    APPS.page.to_owned()
}

/// An application as it is typed: it has the keys of the document, and no value is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppForm {
    pub name: String,
    pub hosts: Vec<String>,
    pub who: Vec<String>,
    pub public: Vec<String>,
    pub parts: Vec<PartForm>,
    /// The second factor that is asked for; None for no factor.
    pub factor: Option<String>,
    pub oidc: Option<ClientForm>,
}

/// `[apps.oidc]` as it is typed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientForm {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    pub secret: Option<String>,
    pub redirect_uris: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub post_logout_redirect_uris: Vec<String>,
    pub backchannel_logout_uri: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_private: bool,
    /// The value of `pkce`; None stands for `required`.
    pub pkce: Option<String>,
    /// The value of `signing`; None stands for that of `[oidc]`.
    pub signing: Option<String>,
    /// The value of `consent`; None stands for `none`.
    pub consent: Option<String>,
    /// The value of `email`; None stands for `admin`.
    pub email: Option<String>,
    #[serde(skip_serializing_if = "is_every_group")]
    pub groups: Vec<String>,
}

impl Default for ClientForm {
    fn default() -> Self {
        Self {
            client_id: String::new(),
            secret: None,
            redirect_uris: Vec::new(),
            post_logout_redirect_uris: Vec::new(),
            backchannel_logout_uri: None,
            allow_private: false,
            pkce: None,
            signing: None,
            consent: None,
            email: None,
            groups: vec!["*".to_owned()],
        }
    }
}

fn is_every_group(groups: &[String]) -> bool {
    groups == ["*"]
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartForm {
    pub path: String,
    /// The names of the part; None for everybody who may use the application.
    pub who: Option<Vec<String>>,
    pub signed_in_within: Option<String>,
    pub password_within: Option<String>,
    pub factor: Option<String>,
    pub factor_within: Option<String>,
}

impl AppForm {
    fn of(apps: &Apps, name: &str) -> Option<Self> {
        let app = apps.all().iter().find(|app| app.name == name)?;
        serde_json::from_value(json!(**app)).ok()
    }

    /// Names that are ticked or typed keep their order. Parts have numbers without gaps.
    pub fn read(pairs: &[(String, String)], before: Option<&Self>) -> Self {
        let list = |name: &str| words(value(pairs, name));
        let who = chosen(pairs, "who", before.map_or(&[], |before| &before.who));
        let parts = (0..=MOST_PARTS).map_while(|index| PartForm::read(pairs, index)).collect();
        let name = value(pairs, "name").trim().to_owned();
        let factor = Some(value(pairs, "factor").to_owned()).filter(|factor| !factor.is_empty());
        let (public, oidc) = (list("public"), ClientForm::read(pairs));
        Self { name, hosts: list("hosts"), who, public, parts, factor, oidc }
    }

    /// Writes a document with that one application. An id that is its name stays left out, and stays if the name
    /// changes.
    fn toml(&self) -> String {
        let mut app = self.clone();
        if let Some(client) = app.oidc.as_mut().filter(|client| client.client_id == app.name) {
            client.client_id.clear();
        }
        toml::to_string(&BTreeMap::from([("apps", [app])])).unwrap_or_default()
    }
}

impl ClientForm {
    /// Whether it has settings besides its id, its secret and its redirect URIs.
    fn has_more(&self) -> bool {
        let Self { client_id, secret, redirect_uris, .. } = self.clone();
        *self != Self { client_id, secret, redirect_uris, ..Self::default() }
    }

    /// Reads the fields of a client; None if the application is no client, whatever the fields contain.
    fn read(pairs: &[(String, String)]) -> Option<Self> {
        let text = |key: &str| value(pairs, &format!("oidc-{key}")).trim();
        let optional = |key: &str| Some(text(key).to_owned()).filter(|text| !text.is_empty());
        // No character of an address is taken for one between two.
        let lines = |key: &str| {
            let lines = text(key).lines().map(str::trim).filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        };
        (!value(pairs, "oidc").is_empty()).then(|| Self {
            client_id: text("client_id").to_owned(),
            secret: optional("secret"),
            redirect_uris: lines("redirect_uris"),
            post_logout_redirect_uris: lines("post_logout_redirect_uris"),
            backchannel_logout_uri: optional("backchannel_logout_uri"),
            allow_private: optional("allow_private").is_some(),
            pkce: optional("pkce"),
            signing: optional("signing"),
            consent: optional("consent"),
            email: optional("email"),
            groups: words(text("groups")),
        })
    }
}

impl PartForm {
    fn read(pairs: &[(String, String)], index: usize) -> Option<Self> {
        let text = |key: &str| value(pairs, &format!("{key}-{index}")).trim().to_owned();
        let optional = |key: &str| Some(text(key)).filter(|text| !text.is_empty());
        let who = match text("nobody").as_str() {
            "" => optional("who").map(|who| words(&who)),
            _ => Some(Vec::new()),
        };
        pairs.iter().any(|(name, _)| *name == format!("path-{index}")).then(|| Self {
            path: text("path"),
            who,
            signed_in_within: optional("signed_in_within"),
            password_within: optional("password_within"),
            factor: optional("factor"),
            factor_within: optional("factor_within"),
        })
    }

    fn who(&self) -> String {
        self.who.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    fn is_for_nobody(&self) -> bool {
        self.who.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The names that are ticked or typed, those of `before` first and in their order.
pub fn chosen(pairs: &[(String, String)], ticked: &str, before: &[String]) -> Vec<String> {
    let place = |one: &String| before.iter().position(|known| known == one).unwrap_or(usize::MAX);
    let ticked = pairs.iter().filter(|(name, _)| name == ticked).map(|(_, one)| one.clone());
    let mut all: Vec<String> = ticked.chain(words(value(pairs, "more"))).collect();
    all.retain(|one| !one.is_empty());
    all.sort_by_cached_key(|one| (place(one), one.clone()));
    all.dedup();
    all
}

/// A box to tick: its name, the key of its words, and whether it is ticked.
pub type NameBox = (String, Option<&'static str>, bool);

/// Names that stand for many, each with the key of its words; then groups, and then people.
pub fn boxes(many: &[(&str, &'static str)], groups: &[String], ticked: &[String]) -> Vec<NameBox> {
    let named = ticked.iter().filter(|one| !many.iter().any(|(many, _)| one == many));
    let (chosen, people): (Vec<&String>, Vec<&String>) = named.partition(|one| one.starts_with("group:"));
    let groups: BTreeSet<&String> = groups.iter().chain(chosen).collect();
    let names = groups.into_iter().chain(people).map(|one| (one.as_str(), None));
    let all = many.iter().map(|(one, key)| (*one, Some(*key))).chain(names);
    all.map(|(one, key)| (one.to_owned(), key, ticked.iter().any(|ticked| ticked == one))).collect()
}

/// Groups to choose from, as they are written.
pub async fn known_groups(accounts: &Accounts) -> Result<Vec<String>, Problem> {
    let names = accounts.group_names(MOST_OFFERED).await?;
    Ok(names.iter().map(|name| format!("group:{name}")).collect())
}

/// One a line, or with spaces or commas between them.
fn words(text: &str) -> Vec<String> {
    let words = text.split_whitespace().map(|word| word.trim_matches(','));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[derive(Template, Clone)]
#[template(path = "pages/admin/app_form.html")]
pub struct AppFormPage {
    pub layout: Layout,
    /// Its name in force; empty of a new one.
    pub known: String,
    pub form: AppForm,
    /// To choose from, besides those in the form.
    pub groups: Vec<String>,
    pub people: Vec<String>,
    pub controls: Controls,
    pub trial: Trial<AppsPreview>,
    /// An environment variable sets them.
    pub overridden: bool,
}

impl AppFormPage {
    async fn new(
        request: &AdminRequest,
        name: &str,
        form: AppForm,
        controls: Controls,
    ) -> Result<Self, Problem> {
        let accounts = &request.services.accounts;
        let newest = accounts.page(&AccountSearch::default(), None, MOST_OFFERED).await?.entries;
        Ok(Self {
            layout: request.layout(address(name)),
            known: name.to_owned(),
            form,
            groups: known_groups(accounts).await?,
            people: newest.iter().map(|row| row.account.login.as_str().to_owned()).collect(),
            controls,
            trial: Trial::None,
            overridden: request.services.live.overridden().apps(),
        })
    }

    fn answered(self, controls: Controls, mut trial: Trial<AppsPreview>) -> Self {
        if let Trial::Done(tried) = &mut trial {
            tried.warnings.retain(|check| check.app.name == self.form.name);
        }
        let layout = Layout { mistaken: controls.is_mistaken(), ..self.layout };
        Self { layout, controls, trial, ..self }
    }

    fn boxes(&self) -> Vec<NameBox> {
        boxes(&[("everyone", "app-form.everyone")], &self.groups, &self.form.who)
    }

    /// What may be asked for, each with the key of its words.
    const fn factors(&self) -> [(&'static str, &'static str); 3] {
        [
            ("", "app-form.factor-none"),
            ("second", "app-form.factor-second"),
            ("passkey", "app-form.factor-passkey"),
        ]
    }

    /// What the fields of a client begin with: a new one has a secret that is generated here.
    fn client(&self) -> ClientForm {
        let new = || ClientForm { secret: Some("stored".to_owned()), ..ClientForm::default() };
        self.form.oidc.clone().unwrap_or_else(new)
    }

    const fn pkce(&self) -> [(&'static str, &'static str); 2] {
        [("", "app-form.pkce-required"), ("optional", "app-form.pkce-optional")]
    }

    const fn signing(&self) -> [(&'static str, &'static str); 3] {
        [
            ("", "app-form.signing-default"),
            ("RS256", "app-form.signing-rsa"),
            ("ES256", "app-form.signing-ec"),
        ]
    }

    const fn consent(&self) -> [(&'static str, &'static str); 2] {
        [("", "app-form.consent-none"), ("once", "app-form.consent-once")]
    }

    const fn email(&self) -> [(&'static str, &'static str); 2] {
        [("", "app-form.email-admin"), ("verified", "app-form.email-verified")]
    }

    /// The first mistake in a field of this id.
    fn wrong(&self, id: &str) -> Option<&str> {
        let mut mistakes = self.controls.mistakes.iter();
        mistakes.find(|mistake| mistake.app_field().as_deref() == Some(id)).map(|it| it.message.as_str())
    }
}

impl DraftError {
    /// The id of a field in an application's form: `hosts`, `path-0`, `part-0`, `oidc-secret`. The other applications are
    /// right, so a mistake in another is of the host or name that it has in common with the one in the form.
    pub fn app_field(&self) -> Option<String> {
        let (_, field) = self.field.strip_prefix("apps[")?.split_once("].")?;
        let key = |field: &str| field.split('[').next().unwrap_or_default().to_owned();
        if let Some(field) = field.strip_prefix("oidc.") {
            return Some(format!("oidc-{}", key(field)));
        }
        Some(match field.strip_prefix("parts[").and_then(|part| part.split_once(']')) {
            Some((index, rest)) => {
                format!("{}-{index}", rest.strip_prefix('.').map_or("part".to_owned(), key))
            }
            None => key(field),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;
    use utoipa::PartialSchema;

    use super::*;
    use crate::config::{App, AppPart, OidcClient};

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    fn read(toml: &str) -> Apps {
        let server = "[server]\npublic_url = \"https://id.example\"\ntrusted_proxies = [\"127.0.0.1\"]\n";
        crate::config::parse(Path::new("t.toml"), &format!("{server}{toml}"), &[]).unwrap().live.apps.clone()
    }

    #[test]
    fn an_application_goes_through_its_form_and_back_unchanged() {
        let text = r#"[[apps]]
            name = "wiki"
            hosts = ["wiki.example", "wiki.example.org:8443"]
            who = ["group:staff", "everyone", "ada"]
            public = ["/health", "/static/*"]
            factor = "second"
            [[apps.parts]]
            path = "/admin/*"
            who = ["group:on-call", "ada"]
            signed_in_within = "90m"
            [[apps.parts]]
            path = "/none"
            who = []
            [[apps.parts]]
            path = "/keys"
            password_within = "1h"
            factor = "passkey"
            factor_within = "15m""#;
        let app = AppForm::of(&read(text), "wiki").unwrap();
        assert_eq!(read(&app.toml()), read(text));
        let sent = "name=+wiki+&hosts=wiki.example%0D%0Awiki.example.org:8443&who=everyone&who=group:staff&who=ada\
            &public=/health%0D%0A%0D%0A/static/*&path-0=/admin/*&who-0=group:on-call,+ada&signed_in_within-0=1h+30m\
            &factor=second&factor-0=&path-1=/none&who-1=eve&nobody-1=on&path-2=/keys&password_within-2=1h&factor-2=passkey\
            &factor_within-2=15m";
        assert_eq!(AppForm::read(&pairs(sent), Some(&app)), app, "in the order in force");
    }

    #[test]
    fn a_client_goes_through_its_form_and_back_unchanged() {
        let text = r#"[[apps]]
            name = "grafana"
            who = ["group:staff"]
            [apps.oidc]
            secret = "env:GRAFANA_SECRET"
            redirect_uris = ["https://grafana.example/cb,", "http://127.0.0.1/cb"]
            post_logout_redirect_uris = ["https://grafana.example"]
            backchannel_logout_uri = "http://10.0.0.1/out"
            allow_private = true
            pkce = "optional"
            signing = "ES256"
            consent = "once"
            email = "verified"
            groups = ["staff", "team-*"]"#;
        let app = AppForm::of(&read(text), "grafana").unwrap();
        assert_eq!(read(&app.toml()), read(text));
        assert!(!app.toml().contains("client_id"), "{}", app.toml());
        let sent = "name=grafana&who=group:staff&oidc=on&oidc-client_id=grafana&oidc-secret=+env:GRAFANA_SECRET\
            &oidc-redirect_uris=https://grafana.example/cb,%0D%0A%0D%0A+http://127.0.0.1/cb%0D%0A\
            &oidc-post_logout_redirect_uris=https://grafana.example&oidc-backchannel_logout_uri=http://10.0.0.1/out\
            &oidc-allow_private=on&oidc-pkce=optional&oidc-signing=ES256&oidc-consent=once&oidc-email=verified&oidc-groups=staff,+team-*";
        assert_eq!(AppForm::read(&pairs(sent), Some(&app)), app);
        let plain = "name=grafana&oidc=on&oidc-redirect_uris=https://a.example&oidc-pkce=&oidc-signing=&oidc-consent=&oidc-groups=*";
        let plain = AppForm::read(&pairs(plain), None);
        let expected = "[[apps]]\nname = \"grafana\"\n[apps.oidc]\nredirect_uris = [\"https://a.example\"]\n";
        assert_eq!(read(&plain.toml()), read(expected));
        let plain = AppForm::of(&read(expected), "grafana").unwrap().oidc.unwrap();
        assert!(plain.groups == ["*"] && !plain.has_more() && app.oidc.as_ref().unwrap().has_more());
        // A new name keeps the id that people's consents and sessions hang on.
        let renamed = AppForm::read(&pairs(&sent.replacen("grafana", "charts", 1)), Some(&app));
        assert!(read(&renamed.toml()).client("grafana").is_some(), "{}", renamed.toml());
        let none = AppForm::read(&pairs(&sent.replace("&oidc=on", "")), Some(&app));
        assert_eq!(none.oidc, None, "not ticked");
    }

    /// What is not in the form is lost by saving it.
    #[test]
    fn the_form_has_every_key_of_an_application() {
        let sorted = |value: &Value, at: &str| {
            let mut keys = Vec::from_iter(value.pointer(at).unwrap().as_object().unwrap().keys().cloned());
            keys.sort_unstable();
            keys
        };
        let client = ClientForm {
            client_id: "a".to_owned(),
            post_logout_redirect_uris: vec!["https://a.example".to_owned()],
            allow_private: true,
            groups: Vec::new(),
            ..ClientForm::default()
        };
        for (schema, form) in [
            (json!(App::schema()), json!(AppForm::default())),
            (json!(AppPart::schema()), json!(PartForm::default())),
            (json!(OidcClient::schema()), json!(client)),
        ] {
            assert_eq!(sorted(&schema, "/properties"), sorted(&form, ""));
        }
    }

    #[test]
    fn what_is_typed_becomes_a_tick_once_and_stays_one_value() {
        let form = AppForm::read(&pairs("who=ada&more=bob,+ada++group:staff+%22,x"), None);
        assert_eq!(form.who, ["\",x", "ada", "bob", "group:staff"]);
        let toml: toml::Table = form.toml().parse().unwrap();
        assert_eq!(toml["apps"][0]["who"][0].as_str(), Some("\",x"));
    }

    #[test]
    fn a_mistake_is_found_at_its_field() {
        let at = |field: &str| DraftError { field: field.into(), message: String::new(), line: None };
        for (field, expected) in [
            ("apps[0].hosts[3]", Some("hosts")),
            ("apps[7].name", Some("name")),
            ("apps[0].parts[2].who[0]", Some("who-2")),
            ("apps[0].parts[2]", Some("part-2")),
            ("apps[0].parts", Some("parts")),
            ("apps[0].oidc", Some("oidc")),
            ("apps[0].oidc.redirect_uris[2]", Some("oidc-redirect_uris")),
            ("apps", None),
        ] {
            assert_eq!(at(field).app_field().as_deref(), expected, "{field}");
        }
    }

    #[test]
    fn any_name_has_an_address_of_its_own() {
        assert_eq!(address("photo album/ä&"), "/admin/apps/form?app=photo+album%2F%C3%A4%26");
    }
}
