//! `/admin/apps/form`: one application as a form, which is tried and saved as a draft of all of them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use rust_i18n::t;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded::byte_serialize;

use super::{TriedApps, ages, tried};
use crate::accounts::{AccountFilter, AccountOrder};
use crate::config::{App, apps_toml};
use crate::tuning::{DraftError, with_app};
use crate::web::console::FormProblem;
use crate::web::console::document::{APPS, Act, Controls, DraftBody, Trial, read_draft, submitted};
use crate::web::console::guard::AdminRequest;
use crate::web::form::{FormPairs, value};
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{ErrorKind, ErrorPage, Layout, Problem, UnreadBody, WebResult};

const HERE: &str = "/admin/apps/form";
/// Groups to choose from, and accounts that are suggested. Others are typed.
const MOST_OFFERED: u32 = 50;
/// Of an application; one more is reported and not lost.
const MOST_PARTS: usize = 200;

/// Of an application's form; with no name, of a new one's.
pub fn address(app: &str) -> String {
    if app.is_empty() {
        HERE.to_owned()
    } else {
        format!("{HERE}?app={}", byte_serialize(app.as_bytes()).collect::<String>())
    }
}

/// `GET /admin/apps/form`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let name = value(&query, "app");
    let current = request.services.tuning.current();
    let app = in_force(current.live.apps.all(), name);
    if app.is_none() && !name.is_empty() {
        return Ok(ErrorPage::new(request.layout("/admin/apps"), ErrorKind::NotFound).respond(&request.visit));
    }
    let (form, controls) = (app.map(AppForm::from).unwrap_or_default(), Controls::at(&current.version));
    let page = AppFormPage::new(&request, name, form, controls).await?;
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/apps/form`
pub async fn submit(request: AdminRequest, sent: UnreadBody<FormPairs, DOCUMENT_LIMIT>) -> WebResult {
    let pairs = sent.read_form().await?;
    let current = request.services.tuning.current();
    let name = value(&pairs, "app").to_owned();
    let app = in_force(current.live.apps.all(), &name);
    let controls = Controls::read(&pairs);
    let mut form = AppForm::read(&pairs, app);
    match (controls.act, app) {
        (Act::AddRule, _) => form.parts.push(PartForm::default()),
        (Act::RemoveRule(index), _) if index < form.parts.len() => drop(form.parts.remove(index)),
        // Its own form has nothing but the reason.
        (Act::Delete, Some(app)) => form = AppForm::from(app),
        _ => {}
    }
    let (act, blank) = (controls.act, AppFormPage::new(&request, &name, form, controls).await?);
    let page = |controls: Controls, trial| {
        let page = blank.clone().answered(controls, trial);
        request.visit.page(page.controls.status(), &page)
    };
    let draft = async || {
        let (toml, name) = (apps_toml(&current.document), name.clone());
        let table = if act == Act::Delete { None } else { Some(blank.form.toml()) };
        read_draft(&request.admin, move |_| with_app(&toml, &name, table.as_deref())).await
    };
    let attempt = async |draft| tried(&request.admin, DraftBody::Toml(draft)).await;
    submitted(&request, &APPS, &pairs, page, draft, attempt).await
}

fn in_force<'a>(apps: &'a [Arc<App>], name: &str) -> Option<&'a App> {
    apps.iter().find(|app| app.name == name).map(Arc::as_ref)
}

/// An application as it is typed: it has the keys of the document, and no value is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppForm {
    pub name: String,
    pub hosts: Vec<String>,
    /// Those that are ticked.
    pub who: Vec<String>,
    /// Those that are typed, and become ticked ones.
    #[serde(skip)]
    pub more: Vec<String>,
    pub public: Vec<String>,
    pub parts: Vec<PartForm>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartForm {
    pub path: String,
    /// None: everybody who may use the application.
    pub who: Option<Vec<String>>,
    pub signed_in_within: Option<String>,
    pub password_within: Option<String>,
}

impl From<&App> for AppForm {
    fn from(app: &App) -> Self {
        serde_json::from_value(json!(app)).unwrap_or_default()
    }
}

impl AppForm {
    /// Who is ticked keeps the order of the application in force. Parts have numbers without gaps.
    pub fn read(pairs: &[(String, String)], app: Option<&App>) -> Self {
        let list = |name: &str| words(value(pairs, name));
        let ticked = pairs.iter().filter(|(name, _)| name == "who").map(|(_, who)| who.clone());
        let mut who: Vec<String> = ticked.collect();
        let before = app.map(AppForm::from).unwrap_or_default().who;
        who.sort_by_key(|who| before.iter().position(|known| known == who).unwrap_or(usize::MAX));
        let parts = (0..=MOST_PARTS).map_while(|index| PartForm::read(pairs, index)).collect();
        let name = value(pairs, "name").trim().to_owned();
        Self { name, hosts: list("hosts"), who, more: list("more"), public: list("public"), parts }
    }

    /// With what is typed among what is ticked.
    fn ticked(mut self) -> Self {
        for who in std::mem::take(&mut self.more) {
            if !self.who.contains(&who) {
                self.who.push(who);
            }
        }
        self
    }

    /// As a document with that one application.
    fn toml(&self) -> String {
        toml::to_string(&BTreeMap::from([("apps", [self.clone().ticked()])])).unwrap_or_default()
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
        })
    }

    fn who(&self) -> String {
        self.who.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    fn is_for_nobody(&self) -> bool {
        self.who.as_ref().is_some_and(Vec::is_empty)
    }
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
    pub trial: Trial<TriedApps>,
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
        let newest = accounts
            .page(&AccountFilter::default(), AccountOrder::default(), None, MOST_OFFERED)
            .await?
            .entries;
        Ok(Self {
            layout: request.layout(address(name)),
            known: name.to_owned(),
            form,
            groups: accounts
                .group_sizes("", MOST_OFFERED)
                .await?
                .into_iter()
                .map(|group| group.name)
                .collect(),
            people: newest.iter().map(|row| row.account.login.as_str().to_owned()).collect(),
            controls,
            trial: Trial::None,
            overridden: request.services.live.overridden().apps,
        })
    }

    /// After it was sent. What was typed stays as it is where it may be mistaken.
    fn answered(self, controls: Controls, mut trial: Trial<TriedApps>) -> Self {
        let form = if controls.is_mistaken() { self.form } else { self.form.ticked() };
        if let Trial::Done(tried) = &mut trial {
            tried.checks.retain(|check| check.app.name == form.name);
        }
        let layout = Layout { mistaken: controls.is_mistaken(), ..self.layout };
        Self { layout, form, controls, trial, ..self }
    }

    fn is_for_everyone(&self) -> bool {
        self.form.who.iter().any(|who| who == "everyone")
    }

    /// Each with whether it is ticked.
    fn groups(&self) -> impl Iterator<Item = (String, bool)> {
        let chosen: BTreeSet<&str> =
            self.form.who.iter().filter_map(|who| who.strip_prefix("group:")).collect();
        let all: BTreeSet<&str> =
            self.groups.iter().map(String::as_str).chain(chosen.iter().copied()).collect();
        all.into_iter().map(move |name| (name.to_owned(), chosen.contains(name)))
    }

    fn named(&self) -> impl Iterator<Item = &String> {
        self.form.who.iter().filter(|who| *who != "everyone" && !who.starts_with("group:"))
    }

    fn parts(&self) -> impl Iterator<Item = (usize, &PartForm)> {
        self.form.parts.iter().enumerate()
    }

    fn wrong(&self, key: &str) -> Option<&str> {
        self.mistake_at((None, key))
    }

    fn wrong_in(&self, part: &usize, key: &str) -> Option<&str> {
        self.mistake_at((Some(*part), key))
    }

    fn mistake_at(&self, field: (Option<usize>, &str)) -> Option<&str> {
        let mut mistakes = self.controls.mistakes.iter();
        mistakes.find(|mistake| mistake.app_field() == Some(field)).map(|mistake| mistake.message.as_str())
    }

    /// The id of a field, and its label.
    fn field(&self, mistake: &DraftError) -> Option<(String, String)> {
        let (part, key) = mistake.app_field()?;
        let label = match key {
            "name" => "app-form.name",
            "hosts" => "app-form.hosts",
            "who" if part.is_none() => "apps-page.who",
            "who" => "app-form.only",
            "public" => "app-form.public",
            "path" => "app-form.path",
            "signed_in_within" => "app-form.signed-in",
            "password_within" => "app-form.password",
            _ => "app-form.parts",
        };
        let label = self.layout.t(label);
        Some(match part {
            None => (key.to_owned(), label.into_owned()),
            Some(part) if key.is_empty() => (format!("part-{part}"), self.part_label(&part).into_owned()),
            Some(part) => (format!("{key}-{part}"), format!("{}: {label}", self.part_label(&part))),
        })
    }

    fn part_label(&self, part: &usize) -> Cow<'static, str> {
        t!("app-form.part", locale = self.layout.locale.code(), number = part + 1)
    }
}

impl DraftError {
    /// The number of an application's part, and the key of a field in that or in the application itself. All applications
    /// in force are right, so a mistake in another is of the host or name that it has in common with the one in the form.
    pub fn app_field(&self) -> Option<(Option<usize>, &str)> {
        let (_, field) = self.field.strip_prefix("apps[")?.split_once("].")?;
        let key = |field: &'_ str| field.find('[').unwrap_or(field.len());
        match field.strip_prefix("parts[").and_then(|rest| rest.split_once(']')) {
            Some((index, rest)) => {
                let rest = rest.trim_start_matches('.');
                Some((Some(index.parse().ok()?), &rest[..key(rest)]))
            }
            None => Some((None, &field[..key(field)])),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    fn read(toml: &str) -> Vec<Arc<App>> {
        let server = "[server]\npublic_url = \"https://id.example\"\ntrusted_proxies = [\"127.0.0.1\"]\n";
        let text = format!("{server}{toml}");
        crate::config::parse(Path::new("t.toml"), &text, &[]).unwrap().live.apps.all().to_vec()
    }

    #[test]
    fn an_application_goes_through_its_form_and_back_unchanged() {
        let text = r#"[[apps]]
            name = "wiki"
            hosts = ["wiki.example", "wiki.example.org:8443"]
            who = ["group:staff", "everyone", "ada"]
            public = ["/health", "/static/*"]
            [[apps.parts]]
            path = "/admin/*"
            who = ["group:on-call", "ada"]
            signed_in_within = "90m"
            [[apps.parts]]
            path = "/none"
            who = []
            [[apps.parts]]
            path = "/keys"
            password_within = "1h""#;
        let app = read(text).remove(0);
        assert_eq!(read(&AppForm::from(&*app).toml()), [Arc::clone(&app)]);
        let sent = "name=+wiki+&hosts=wiki.example%0D%0Awiki.example.org:8443&who=everyone&who=group:staff&who=ada\
            &public=/health%0D%0A%0D%0A/static/*&path-0=/admin/*&who-0=group:on-call,+ada&signed_in_within-0=1h+30m\
            &path-1=/none&who-1=eve&nobody-1=on&path-2=/keys&password_within-2=1h";
        assert_eq!(AppForm::read(&pairs(sent), Some(&app)), AppForm::from(&*app), "in the order in force");
    }

    #[test]
    fn what_is_typed_becomes_a_tick_once_and_stays_one_value() {
        let form = AppForm::read(&pairs("who=ada&more=bob,+ada++group:staff+%22,x"), None).ticked();
        assert_eq!(form.who, ["ada", "bob", "group:staff", "\",x"]);
        let toml: toml::Table = form.toml().parse().unwrap();
        assert_eq!(toml["apps"][0]["who"][3].as_str(), Some("\",x"));
    }

    #[test]
    fn a_mistake_is_found_at_its_field() {
        let at = |field: &str| DraftError { field: field.into(), message: String::new(), line: None };
        for (field, expected) in [
            ("apps[0].hosts[3]", Some((None, "hosts"))),
            ("apps[7].name", Some((None, "name"))),
            ("apps[0].parts[2].who[0]", Some((Some(2), "who"))),
            ("apps[0].parts[2]", Some((Some(2), ""))),
            ("apps[0].parts", Some((None, "parts"))),
            ("apps", None),
        ] {
            assert_eq!(at(field).app_field(), expected, "{field}");
        }
    }

    #[test]
    fn any_name_has_an_address_of_its_own() {
        assert_eq!(address("photo album/ä&"), "/admin/apps/form?app=photo+album%2F%C3%A4%26");
    }
}
