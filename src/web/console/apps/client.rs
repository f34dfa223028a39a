//! `/admin/apps/client` and its calls: what an application's own settings need to know of Gatehouse, and the secrets that
//! Gatehouse keeps for it.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Path, Query};
use askama::Template;
use serde::Serialize;
use serde_json::json;
use url::{Url, form_urlencoded};
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::recipes::{Recipe, recipes};
use crate::config::OidcClient;
use crate::db::DbError;
use crate::oidc::{ClientCheck, ClientSecretId, StoredSecret};
use crate::web::console::confirm;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, Permitted};
use crate::web::form::{FormPairs, FormReach, once, value};
use crate::web::http::{Flash, Layout, Problem, Services, ServicesData, WebResult, no_content_if};

const HERE: &str = "/admin/apps/client";
/// The longest time that a test takes.
const LONGEST_TEST: Duration = Duration::from_secs(30);

/// The page of an application's client.
pub fn address(app: &str) -> String {
    format!("{HERE}?{}", form_urlencoded::Serializer::new(String::new()).append_pair("name", app).finish())
}

/// The client of an application that has one, as it is in force.
fn client_of(services: &Services, app: &str) -> Result<OidcClient, Problem> {
    let live = services.live.snapshot();
    let app = live.apps.named(app).map_err(|_| Problem::NotFound)?;
    app.oidc.clone().ok_or(Problem::NotFound)
}

/// The client, if its secrets are kept here.
fn keeping(services: &Services, app: &str) -> Result<OidcClient, Problem> {
    let client = client_of(services, app)?;
    if client.has_stored_secret() { Ok(client) } else { Err(Problem::NoStoredSecret) }
}

/// Makes a secret and records that. None if the client has two.
async fn generate(
    admin: &Admin,
    app: &str,
    client: &OidcClient,
) -> Result<Option<(ClientSecretId, Zeroizing<String>)>, DbError> {
    let made = admin.services.client_secrets.generate(&client.client_id).await?;
    if let Some((id, _)) = &made {
        admin.did("client-secret.create", &json!({ "name": app, "secret": id.to_string() }));
    }
    Ok(made)
}

/// Drops a secret and records that. False if there is none with this id.
async fn drop_one(
    admin: &Admin,
    app: &str,
    client: &OidcClient,
    id: ClientSecretId,
) -> Result<bool, DbError> {
    let dropped = admin.services.client_secrets.drop(&client.client_id, id).await?;
    if dropped {
        admin.did("client-secret.drop", &json!({ "name": app, "secret": id.to_string() }));
    }
    Ok(dropped)
}

#[derive(Serialize, ToSchema)]
struct ClientSecretList {
    /// The newest first.
    secrets: Vec<StoredSecret>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "id": "0123456789abcdef0123456789abcdef", "secret": "ghc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}))]
struct ClientSecretMade {
    id: String,
    /// Shown here and nowhere else.
    secret: String,
}

/// The secrets that are kept for a client
#[utoipa::path(
    get,
    path = "/api/v1/admin/apps/{name}/secrets",
    operation_id = "listClientSecrets",
    tag = "admin",
    params(("name" = String, Path, description = "Of the application.", example = "grafana")),
    responses((status = 200, description = "At most two, without themselves.", body = ClientSecretList)),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_list(
    _: Permitted,
    name: Path<String>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let client = client_of(&services, &name)?;
    let secrets = services.client_secrets.list(&client.client_id).await?;
    Ok(HttpResponse::Ok().json(ClientSecretList { secrets }))
}

/// Generate a secret for a client
///
/// For a client with `secret = "stored"`. A second one is good beside the first, so that the application can change over;
/// then drop the first.
#[utoipa::path(
    post,
    path = "/api/v1/admin/apps/{name}/secrets",
    operation_id = "makeClientSecret",
    tag = "admin",
    params(("name" = String, Path, description = "Of the application.", example = "grafana")),
    responses((status = 201, description = "The secret, this once.", body = ClientSecretMade)),
    extensions(("x-problems" = json!(["not-found", "no-stored-secret", "two-secrets"])))
)]
pub async fn api_generate(permitted: Permitted, name: Path<String>) -> Result<HttpResponse, Problem> {
    let admin = permitted.admin();
    let client = keeping(&admin.services, &name)?;
    let (id, secret) = generate(&admin, &name, &client).await?.ok_or(Problem::TwoSecrets)?;
    Ok(HttpResponse::Created().json(ClientSecretMade { id: id.to_string(), secret: secret.to_string() }))
}

/// Drop a secret of a client
///
/// No instance accepts it any more, and nothing brings it back.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/apps/{name}/secrets/{id}",
    operation_id = "dropClientSecret",
    tag = "admin",
    params(
        ("name" = String, Path, description = "Of the application.", example = "grafana"),
        ("id" = String, Path, example = "0123456789abcdef0123456789abcdef")
    ),
    responses((status = 204, description = "Dropped.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_drop(permitted: Permitted, path: Path<(String, String)>) -> Result<HttpResponse, Problem> {
    let (admin, (name, id)) = (permitted.admin(), path.into_inner());
    let client = client_of(&admin.services, &name)?;
    let id = ClientSecretId::parse(&id).ok_or(Problem::NotFound)?;
    no_content_if(drop_one(&admin, &name, &client, id).await?, Problem::NotFound)
}

/// `GET /admin/apps/client?name=…`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let app = value(&query, "name");
    if app.is_empty() {
        return Ok(request.visit.see_other("/admin/apps", None));
    }
    // An instance that has not followed a save yet does not know a new client.
    if let (Err(Problem::NotFound), Some(flash)) = (client_of(&request.services, app), request.visit.flash) {
        return Ok(request.visit.see_other("/admin/apps", Some(flash)));
    }
    respond(&request, app, StatusCode::OK, SecretNotice::None).await
}

/// `POST /admin/apps/client`: tests the client, makes a secret, or drops one. Answers with the page itself, not with a
/// redirect: only this answer shows the secret.
pub async fn submit(posted: AdminForm) -> WebResult {
    let posted = Rc::new(posted);
    let (visit, services) = (posted.request.visit.clone(), posted.request.services.clone());
    let sent = Rc::clone(&posted);
    let act = async move |_, pairs: FormPairs, _| {
        let (request, app) = (&sent.request, value(&pairs, "name"));
        let client = client_of(&request.services, app)?;
        if !value(&pairs, "test").is_empty() {
            let tested = Box::pin(test(request, &client)).await?;
            request.admin.did("client.test", &json!({ "name": app, "failed": tested.failed }));
            return respond(request, app, StatusCode::OK, SecretNotice::Tested(tested)).await;
        }
        let dropped = value(&pairs, "drop");
        if !dropped.is_empty() {
            let id = ClientSecretId::parse(dropped).ok_or(Problem::NotFound)?;
            drop_one(&request.admin, app, &client, id).await?;
            return Ok(request.visit.see_other(&address(app), Some(Flash::ClientSecretDropped)));
        }
        match generate(&request.admin, app, &keeping(&request.services, app)?).await? {
            Some((_, secret)) => respond(request, app, StatusCode::CREATED, SecretNotice::Made(secret)).await,
            None => respond(request, app, StatusCode::CONFLICT, SecretNotice::Full).await,
        }
    };
    let run = once(visit, services, posted.pairs.clone(), FormReach::AnyInstance, act);
    confirm::confirmed(&posted, run).await
}

/// What `gatehouse apps check` finds without a sign-in.
struct ClientTest {
    lines: Vec<String>,
    failed: usize,
}

async fn test(request: &AdminRequest, client: &OidcClient) -> Result<ClientTest, Problem> {
    let services = &request.services;
    let stored = match client.has_stored_secret() {
        true => services.client_secrets.newest(&client.client_id).await?,
        false => None,
    };
    let lines = RefCell::new(Vec::new());
    let say = |line: String| lines.borrow_mut().push(line.replace(char::is_control, " "));
    let failed = match ClientCheck::new(client, &services.public_url, None, &say) {
        Ok(check) => {
            let run = check.with_stored(stored).run(None);
            tokio::time::timeout(LONGEST_TEST, run).await.unwrap_or_else(|_| {
                say(format!("FAIL no end within {} s", LONGEST_TEST.as_secs()));
                1
            })
        }
        Err(reason) => {
            say(format!("FAIL {reason}"));
            1
        }
    };
    Ok(ClientTest { lines: lines.into_inner(), failed })
}

enum SecretNotice {
    None,
    Tested(ClientTest),
    Made(Zeroizing<String>),
    Full,
}

async fn respond(request: &AdminRequest, app: &str, status: StatusCode, notice: SecretNotice) -> WebResult {
    let AdminRequest { visit, services, .. } = request;
    let client = client_of(services, app)?;
    let secrets = services.client_secrets.list(&client.client_id).await?;
    let issuer = services.public_url.trim_end_matches('/').to_owned();
    let layout = request.layout(address(app));
    let address = client.redirect_uris.first().map_or("", |uri| uri.as_str());
    let address = Url::parse(address).map(|uri| uri.origin().ascii_serialization()).unwrap_or_default();
    let own = |recipe: &Recipe| (recipe.name, recipe.with(&issuer, &client.client_id, &address));
    let recipes = recipes().iter().map(own).filter(|(_, blocks)| !blocks.is_empty()).collect();
    Ok(visit
        .page(status, &ClientPage { layout, app: app.to_owned(), client, issuer, secrets, recipes, notice }))
}

#[derive(Template)]
#[template(path = "pages/admin/app_client.html")]
struct ClientPage {
    layout: Layout,
    app: String,
    client: OidcClient,
    issuer: String,
    secrets: Vec<StoredSecret>,
    /// Settings of known applications, with the values of this client.
    recipes: Vec<(&'static str, Vec<String>)>,
    notice: SecretNotice,
}

impl ClientPage {
    /// What the settings of the application ask for: a line for each usual name, with its value here.
    fn settings(&self) -> String {
        let at = |path: &str| format!("{}{path}", self.issuer);
        let values = [
            ("issuer", self.issuer.clone()),
            ("client_id", self.client.client_id.clone()),
            ("scopes", "openid profile email groups".to_owned()),
            ("discovery", at("/.well-known/openid-configuration")),
            ("authorization_endpoint", at("/oauth/authorize")),
            ("token_endpoint", at("/oauth/token")),
            ("userinfo_endpoint", at("/oauth/userinfo")),
            ("jwks_uri", at("/oauth/keys")),
            ("end_session_endpoint", at("/oauth/logout")),
        ];
        let uris = self.client.redirect_uris.iter().map(|uri| ("redirect_uri", uri.as_str().to_owned()));
        let lines = values.into_iter().chain(uris).map(|(name, value)| format!("{name} = {value}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}
