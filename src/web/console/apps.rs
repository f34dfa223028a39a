//! `/admin/apps` and `/api/v1/admin/apps`: the applications behind the gate and the clients of OpenID Connect, their drafts,
//! and whom a draft lets in and keeps out.

pub mod client;
pub mod form;
mod recipes;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use super::document::{
    APPS, BUSY_RETRY, Controls, DocumentSaved, Precondition, SentDraft, TomlDraft, Trial, in_force_response,
    submitted,
};
use super::guard::{Admin, AdminForm, AdminRequest, Permitted};
use super::limit_text::{exactly, grouped};
use super::{FormProblem, moment};
use crate::accounts::{Accounts, EntryCount, ListedAccounts};
use crate::config::{App, AppFactor, AppPart, Apps, OidcClient, PathPattern, Who};
use crate::db::DbError;
use crate::gate::{
    AgeChange, AppsComparison, ClientPreview, FactorChange, HostPreview, PathPreview, ProxyFile,
    ProxyFileError, compare_apps,
};
use crate::oidc::RefusedRequests;
use crate::tuning::{CheckedEdit, LiveSection};
use crate::web::form::{FormPairs, value};
use crate::web::http::describe::ChangeReason;
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{Layout, Locale, Moment, Problem, Services, ServicesData, UnreadBody, WebResult};

// What the accounts say about an application; as it is in the API.
#[derive(Clone, Serialize, ToSchema)]
#[schema(as = AppWarnings)]
pub struct AppCheck {
    #[serde(serialize_with = "only_name")]
    #[schema(value_type = String)]
    pub app: Arc<App>,
    /// Accounts that may enter. Nobody, if 0.
    pub entering: u64,
    /// Anyone who registers may enter.
    pub everyone: bool,
    /// No account that may sign in has them.
    pub unknown_names: Vec<String>,
    /// Groups in which nobody is who may sign in.
    pub empty_groups: Vec<String>,
    /// A redirect URI is http, and not that of a native app at an address of its own machine.
    pub http_redirect: bool,
    /// The instance that answers could not read its secret, and refuses the client.
    pub secret_missing: bool,
}

fn only_name<S: Serializer>(app: &App, serializer: S) -> Result<S::Ok, S::Error> {
    app.name.serialize(serializer)
}

impl AppCheck {
    pub fn warns(&self) -> bool {
        let client = self.http_redirect || self.secret_missing;
        self.everyone || self.entering == 0 || client || self.missing().next().is_some()
    }

    /// What nobody has, with the key of the words for it.
    fn missing(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let groups = self.empty_groups.iter().map(|group| ("apps-page.warn-group", group));
        groups.chain(self.unknown_names.iter().map(|name| ("apps-page.warn-unknown", name)))
    }
}

/// From indexes, however many accounts there are, and those that are named.
pub async fn checks(accounts: &Accounts, apps: &Apps) -> Result<Vec<AppCheck>, DbError> {
    let lists: Vec<&[Who]> = apps.all().iter().map(|app| app.who.as_slice()).collect();
    let listed = apps.all().iter().flat_map(|app| app.listed());
    let ListedAccounts { entering, missing } = accounts.find_listed(&lists, listed).await?;
    let check = |(app, entering): (&Arc<App>, u64)| {
        let (mut unknown_names, mut empty_groups) = (Vec::new(), Vec::new());
        for who in app.listed().filter(|who| missing.contains(*who)).collect::<BTreeSet<_>>() {
            match who {
                Who::Everyone => {}
                Who::Group(group) => empty_groups.push(group.clone()),
                Who::Name(name) => unknown_names.push(name.clone()),
            }
        }
        let everyone = app.who.contains(&Who::Everyone);
        let client = |has: fn(&OidcClient) -> bool| app.oidc.as_ref().is_some_and(has);
        AppCheck {
            app: Arc::clone(app),
            entering,
            everyone,
            unknown_names,
            empty_groups,
            http_redirect: client(OidcClient::has_odd_http),
            secret_missing: client(OidcClient::lacks_secret),
        }
    };
    Ok(apps.all().iter().zip(entering).map(check).collect())
}

/// What would change.
#[derive(Clone, Serialize, ToSchema)]
pub struct AppsPreview {
    /// Hosts and clients for which something changes.
    pub hosts: Vec<HostPreview>,
    /// Paths that were not counted, because too much differs.
    pub uncounted: usize,
    /// About the applications of the draft.
    pub warnings: Vec<AppCheck>,
}

/// Compares what would be in force with the draft with what is, and changes nothing.
async fn tried(admin: &Admin, checked: CheckedEdit) -> Result<Trial<AppsPreview>, Problem> {
    let after = checked.live().apps.clone();
    let (live, accounts) = (admin.services.live.clone(), admin.services.accounts.clone());
    let tried = admin.services.gate.try_in_turn(async move {
        let compared = compare_apps(&accounts, &live.snapshot().apps, &after).await?;
        let AppsComparison { hosts, uncounted } = compared;
        let mut warnings = checks(&accounts, &after).await?;
        warnings.retain(AppCheck::warns);
        Ok::<_, DbError>(Trial::Done(AppsPreview { hosts, uncounted, warnings }))
    });
    Ok(tried.await.unwrap_or(Ok(Trial::BUSY))?)
}

/// `GET /admin/apps`. `app` names one application; without it, the file is for all of them.
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let services = &request.services;
    let current = services.tuning.current();
    let apps = &current.live.apps;
    let (proxy, app) = (value(&query, "proxy"), value(&query, "app").to_owned());
    let opened = !proxy.is_empty();
    let proxy = proxy.parse().unwrap_or(ProxyFile::Nginx);
    let only = (!app.is_empty()).then_some(app.as_str());
    let files = proxy.with_companion().map(|file| file.print(&services.server, apps, only)).collect();
    let page = AppsPage {
        layout: request.layout("/admin/apps"),
        apps: checks(&services.accounts, apps).await?,
        without_secret: without_secret(services, apps).await?,
        refused: RefusedUri::all(apps, &services.refused_requests),
        without_pkce: without_pkce(apps, &services.refused_requests),
        version: current.version,
        overridden: current.overridden.apps(),
        proxy: ShownProxy { opened, proxy, app, files },
    };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `GET /admin/apps/edit`
pub async fn show_editor(request: AdminRequest) -> WebResult {
    let current = request.services.tuning.current();
    let (toml, controls) = (LiveSection::Apps.text_in(&current.document), Controls::at(&current.version));
    let page = TomlDraft { part: &APPS, toml, controls };
    let layout = page.layout(&request.visit, request.admin.login());
    let page = AppsEditPage { layout, page, trial: Trial::None, overridden: current.overridden.apps() };
    Ok(request.visit.page(StatusCode::OK, &page))
}

/// `POST /admin/apps/edit`
pub async fn submit(posted: AdminForm<DOCUMENT_LIMIT>) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let overridden = request.services.live.overridden().apps();
    let sent = TomlDraft::read(&APPS, pairs);
    let show = |controls: Controls, trial| {
        let page = TomlDraft { controls, ..sent.clone() };
        let layout = page.layout(&request.visit, request.admin.login());
        request.visit.page(page.controls.status(), &AppsEditPage { layout, page, trial, overridden })
    };
    let attempt = async |checked| tried(&request.admin, checked).await;
    submitted(&posted, (&APPS, APPS.page), sent.controls.clone(), sent.edit(), show, attempt).await
}

/// Hosts and names that are shown of an application; it may have 200 of each.
const MOST_SHOWN: usize = 8;
/// To start from, where there is none yet.
const EXAMPLE: &str = "[[apps]]
name = \"wiki\"
hosts = [\"wiki.example\"]
who = [\"group:staff\", \"alice\"]
public = [\"/health\", \"/static/*\"]

[[apps.parts]]
path = \"/admin/*\"
who = [\"group:on-call\"]
signed_in_within = \"1h\"
";

#[derive(Template)]
#[template(path = "pages/admin/apps.html")]
pub struct AppsPage {
    pub layout: Layout,
    pub version: String,
    pub apps: Vec<AppCheck>,
    /// The redirect URIs that were refused, by the name of the application.
    pub refused: HashMap<String, Vec<RefusedUri>>,
    /// Names of the applications whose secret is to be kept here, and for which none was generated.
    pub without_secret: BTreeSet<String>,
    /// When an application has last sent no PKCE, by its name.
    pub without_pkce: HashMap<String, Moment>,
    /// An environment variable sets them.
    pub overridden: bool,
    pub proxy: ShownProxy,
}

/// A redirect URI that this instance has refused, and the registered one that differs least.
pub struct RefusedUri {
    pub at: Moment,
    /// How both begin.
    pub same: String,
    /// How each goes on.
    pub received: String,
    pub registered: String,
}

/// The most characters that are shown of what a stranger has sent.
const MOST_CHARS: usize = 120;

impl RefusedUri {
    fn all(apps: &Apps, refused: &RefusedRequests) -> HashMap<String, Vec<Self>> {
        let clients = apps.all().iter().filter_map(|app| Some((app.name.clone(), app.oidc.as_ref()?)));
        let of = |(app, client): (String, &OidcClient)| {
            let shown = refused.redirects(client).into_iter().filter_map(|refused| {
                let (nearest, at, _) = client.nearest(&refused.uri)?;
                // What they have in common is ASCII.
                let (same, received) = refused.uri.split_at(at);
                let cut = received.chars().nth(MOST_CHARS).map_or("", |_| "…");
                let received = received.chars().take(MOST_CHARS).flat_map(char::escape_default);
                Some(Self {
                    at: moment(&refused.at),
                    same: same.to_owned(),
                    received: received.collect::<String>() + cut,
                    registered: nearest.as_str()[at..].to_owned(),
                })
            });
            (app, shown.collect())
        };
        clients.map(of).collect()
    }
}

async fn without_secret(services: &Services, apps: &Apps) -> Result<BTreeSet<String>, DbError> {
    let known = services.client_secrets.clients().await?;
    let lacks = |app: &&Arc<App>| {
        app.oidc.as_ref().is_some_and(|it| it.has_stored_secret() && !known.contains(&it.client_id))
    };
    Ok(apps.all().iter().filter(lacks).map(|app| app.name.clone()).collect())
}

fn without_pkce(apps: &Apps, refused: &RefusedRequests) -> HashMap<String, Moment> {
    let of = |app: &Arc<App>| Some((app.name.clone(), moment(&refused.without_pkce(app.oidc.as_ref()?)?)));
    apps.all().iter().filter_map(of).collect()
}

pub struct ShownProxy {
    /// Somebody asked for it.
    pub opened: bool,
    pub proxy: ProxyFile,
    /// The name of an application, or all of them.
    pub app: String,
    pub files: Vec<Result<String, ProxyFileError>>,
}

impl AppsPage {
    /// The applications that a proxy asks about.
    fn behind(&self) -> impl Iterator<Item = &AppCheck> {
        self.apps.iter().filter(|check| !check.app.hosts.is_empty())
    }

    fn refused(&self, app: &App) -> &[RefusedUri] {
        self.refused.get(&app.name).map_or(&[], Vec::as_slice)
    }

    fn proxies(&self) -> impl Iterator<Item = ProxyFile> {
        ProxyFile::ALL.into_iter().filter(|file| *file != ProxyFile::HaproxyLua)
    }

    const fn example(&self) -> &'static str {
        EXAMPLE
    }
}

#[derive(Template)]
#[template(path = "pages/admin/apps_edit.html")]
pub struct AppsEditPage {
    pub layout: Layout,
    pub page: TomlDraft,
    pub trial: Trial<AppsPreview>,
    /// An environment variable sets them.
    pub overridden: bool,
}

impl AppsEditPage {
    /// Only while there is nothing to go by.
    fn example(&self) -> Option<&'static str> {
        self.page.toml.trim().is_empty().then_some(EXAMPLE)
    }
}

impl AppsPreview {
    fn changes_nothing(&self) -> bool {
        self.hosts.is_empty() && self.uncounted == 0
    }

    fn uncounted(&self) -> Option<String> {
        (self.uncounted > 0).then(|| grouped(self.uncounted as u64))
    }
}

impl HostPreview {
    /// The application after, or before if there is none any more.
    fn app(&self) -> &str {
        self.after.as_deref().or(self.before.as_deref()).unwrap_or_default()
    }
}

impl ClientPreview {
    /// Addresses that come and go, with the key of what happens to them.
    fn uris(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let all = [
            ("apps-page.redirect-added", &self.redirect_uris.added),
            ("apps-page.redirect-removed", &self.redirect_uris.removed),
            ("apps-page.logout-added", &self.post_logout_redirect_uris.added),
            ("apps-page.logout-removed", &self.post_logout_redirect_uris.removed),
        ];
        all.into_iter().flat_map(|(key, uris)| uris.iter().map(move |uri| (key, uri)))
    }
}

impl PathPreview {
    /// The accounts that the change is about, with the key of what happens to them.
    fn affected(&self) -> impl Iterator<Item = (&'static str, &EntryCount)> {
        let both = [("apps-page.loses", &self.loses), ("apps-page.gains", &self.gains)];
        both.into_iter().filter(|(_, it)| it.count > 0)
    }

    fn ages(&self) -> impl Iterator<Item = (&'static str, AgeChange)> {
        let all = [
            ("apps-page.age-signed-in", self.signed_in_within),
            ("apps-page.age-password", self.password_within),
            ("apps-page.age-factor", self.factor_within),
        ];
        all.into_iter().filter(|(_, age)| !age.is_unchanged())
    }
}

/// From the factor that was asked for to the one that is.
fn factors(change: &FactorChange, locale: &Locale) -> String {
    let shown = |factor: AppFactor| match factor {
        AppFactor::None => locale.t("app-form.factor-none"),
        AppFactor::Second => locale.t("app-form.factor-second"),
        AppFactor::Passkey => locale.t("app-form.factor-passkey"),
    };
    format!("{} → {}", shown(change.before), shown(change.after))
}

impl EntryCount {
    pub(super) fn more(&self) -> Option<String> {
        not_named(self.count, self.first.len())
    }
}

/// The first in one line, and how many more there are.
fn first(all: &[impl ToString]) -> (String, Option<String>) {
    let shown: Vec<String> = all.iter().take(MOST_SHOWN).map(ToString::to_string).collect();
    (shown.join(", "), not_named(all.len() as u64, MOST_SHOWN))
}

fn not_named(all: u64, named: usize) -> Option<String> {
    let more = all.saturating_sub(named as u64);
    (more > 0).then(|| grouped(more))
}

/// From the age that was enough to the one that is.
fn ages(change: &AgeChange, locale: &Locale) -> String {
    let shown = |age: Option<Duration>| match age {
        Some(age) => Cow::Owned(exactly(age, *locale)),
        None => locale.t("apps-page.any-age"),
    };
    format!("{} → {}", shown(change.before), shown(change.after))
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "apps": [example()],
    "toml": "[[apps]]\nname = \"wiki\"\nhosts = [\"wiki.example\"]\n",
    "overridden": false
}))]
struct AppsInForce {
    /// The version, as in ETag. It covers the whole document, so it also changes when limits are saved.
    version: String,
    apps: Vec<App>,
    /// `[[apps]]` of the document, with its comments.
    toml: String,
    /// Whether an environment variable of the server sets them, whatever the document says.
    overridden: bool,
}

/// The applications in force
#[utoipa::path(
    get,
    path = "/api/v1/admin/apps",
    operation_id = "showApps",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = AppsInForce,
        headers(("Version"))
    )),
)]
pub async fn api_show(_: Permitted, services: ServicesData) -> HttpResponse {
    let current = services.tuning.current();
    let body = AppsInForce {
        version: current.version.clone(),
        apps: current.live.apps.all().iter().map(|app| App::clone(app)).collect(),
        toml: LiveSection::Apps.text_in(&current.document),
        overridden: current.overridden.apps(),
    };
    in_force_response(&current.version, body)
}

/// One of `apps` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apps": [example()], "reason": "The wiki moves behind the gate." }))]
pub struct AppsRequest {
    #[schema(value_type = Option<Vec<App>>)]
    apps: Option<Value>,
    /// Instead of apps: `[[apps]]` tables, with comments.
    toml: Option<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the applications
///
/// They replace all that were set; everything else in the document stays. What is set by an environment variable of the
/// server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/apps",
    operation_id = "saveApps",
    tag = "admin",
    params(Precondition),
    request_body = AppsRequest,
    responses(DocumentSaved),
    extensions(("x-problems" = json!(["precondition-required", "precondition-failed", "not-saved"])))
)]
pub async fn api_save(
    permitted: Permitted,
    request: HttpRequest,
    wanted: UnreadBody<AppsRequest, DOCUMENT_LIMIT>,
) -> Result<HttpResponse, Problem> {
    let (admin, AppsRequest { apps, toml, reason }) = permitted.read(wanted).await?;
    SentDraft { part: &APPS, json: apps, toml }.save(&admin, &request, &reason).await
}

/// One of `apps` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "apps": [example()] }))]
pub struct AppsPreviewRequest {
    #[schema(value_type = Option<Vec<App>>)]
    apps: Option<Value>,
    /// Instead of apps: `[[apps]]` tables.
    toml: Option<String>,
}

/// Who could get in with other applications
///
/// It compares them with those in force and changes nothing. The database counts accounts that may sign in.
#[utoipa::path(
    post,
    path = "/api/v1/admin/apps/preview",
    operation_id = "previewApps",
    tag = "admin",
    request_body = AppsPreviewRequest,
    responses((status = 200, description = "Hosts, paths and clients for which something changes.", body = AppsPreview)),
)]
pub async fn api_preview(
    permitted: Permitted,
    wanted: UnreadBody<AppsPreviewRequest, DOCUMENT_LIMIT>,
) -> Result<HttpResponse, Problem> {
    let (admin, AppsPreviewRequest { apps, toml }) = permitted.read(wanted).await?;
    let checked = SentDraft { part: &APPS, json: apps, toml }.check(&admin).await?;
    match tried(&admin, checked.map_err(|error| Problem::invalid_draft(error.into_errors()))?).await? {
        Trial::Done(tried) => Ok(HttpResponse::Ok().json(tried)),
        Trial::None | Trial::Unable { .. } => Err(Problem::Unavailable { retry_after: BUSY_RETRY }),
    }
}

fn example() -> App {
    let path = |text| PathPattern::parse(text).expect("a path");
    let who = |name: &str| Who::Group(name.to_owned());
    App {
        name: "wiki".to_owned(),
        hosts: vec!["wiki.example".to_owned()],
        who: vec![who("staff"), Who::Name("alice".to_owned())],
        public: vec![path("/health")],
        parts: vec![AppPart {
            path: path("/admin/*"),
            who: Some(vec![who("on-call")]),
            signed_in_within: Some(Duration::from_secs(3600)),
            password_within: None,
            factor: AppFactor::Second,
            factor_within: None,
        }],
        factor: AppFactor::None,
        oidc: None,
    }
}
