//! `/account/apps/revoke` and `/api/v1/account/apps`: the clients of OpenID Connect that know the account, and the end of
//! that.

use actix_web::HttpResponse;
use actix_web::web::Path;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::GrantedClient;
use crate::config::Apps;
use crate::web::http::{
    ApiRequest, Flash, Moment, PageRequest, Problem, ServicesData, WebResult, no_content_if,
};
use crate::web::oidc::authorize::told_by;
use crate::web::session::{Member, MemberForm};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeAppForm {
    client: String,
}

/// `POST /account/apps/revoke`. Without a confirmation: it takes nothing from the account.
pub async fn revoke(
    visit: PageRequest,
    MemberForm { who, form }: MemberForm<RevokeAppForm>,
    services: ServicesData,
) -> WebResult {
    services.grants.forget_client(who.account.id, &form.client).await?;
    Ok(visit.see_other("/account", Some(Flash::AppRevoked)))
}

#[derive(Clone)]
pub struct ClientRow {
    pub client: String,
    pub name: String,
    /// What it is told, by the keys of their words.
    pub told: Vec<&'static str>,
    pub used: Option<Moment>,
    pub agreed: Option<Moment>,
}

impl ClientRow {
    pub fn of(granted: GrantedClient, apps: &Apps) -> Self {
        // One that is not configured any more has only its id.
        let name = apps.client(&granted.client).map_or(&granted.client, |(app, _)| &app.name).clone();
        Self {
            name,
            told: told_by(&granted.scope),
            used: granted.used_at.map(Moment),
            agreed: granted.agreed_at.map(Moment),
            client: granted.client,
        }
    }
}

// The calls of the API.

#[derive(Serialize, ToSchema)]
#[schema(as = AccountApps, example = json!({ "apps": [{
    "client_id": "grafana", "scope": "openid profile", "used_at": "2026-11-25T09:12:00Z"
}] }))]
struct AppsBody {
    apps: Vec<GrantedClient>,
}

/// The applications that know the account
///
/// Clients of OpenID Connect with a grant that holds, or to which the account has agreed.
#[utoipa::path(
    get,
    path = "/api/v1/account/apps",
    operation_id = "listAccountApps",
    tag = "session",
    responses((status = 200, description = "By their ids.", body = AppsBody)),
)]
pub async fn api_list(Member(who): Member, services: ServicesData) -> WebResult {
    let apps = services.grants.clients(who.account.id).await?;
    Ok(HttpResponse::Ok().json(AppsBody { apps }))
}

/// End what an application has of the account
///
/// Its tokens are refused from now on, and what was agreed to is forgotten.
#[utoipa::path(
    delete,
    path = "/api/v1/account/apps/{client_id}",
    operation_id = "revokeAccountApp",
    tag = "session",
    params(("client_id" = String, Path, example = "grafana")),
    responses((status = 204, description = "Ended.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn api_revoke(Member(who): Member, client: Path<String>, call: ApiRequest) -> WebResult {
    Ok(no_content_if(call.services.grants.forget_client(who.account.id, &client).await?, Problem::NotFound)?)
}
