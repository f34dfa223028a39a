//! `GET /api/v1/session` and `POST /api/v1/logout`; and the account as every call tells it.

use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;
use utoipa::ToSchema;

use crate::login::{Account, SessionToken, SignedInBy};
use crate::web::kit::call::Call;
use crate::web::kit::describe;
use crate::web::kit::locale::Moment;
use crate::web::kit::problem::Problem;
use crate::web::kit::visit::set;
use crate::web::session::{SignedIn, renew};

#[derive(Serialize, ToSchema)]
#[schema(as = SignedIn, example = json!({
    "user": { "id": "b19bb51d57b40116de95f7448daf9aef", "login": "ada", "roles": ["user"] }
}))]
pub struct UserBody {
    user: User,
}

#[derive(Serialize, ToSchema)]
struct User {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    id: String,
    login: String,
    /// In E.164, if the account has a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    #[schema(schema_with = describe::roles)]
    roles: Vec<&'static str>,
    /// Present if the password was handed out: until it is changed, no other call works.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    must_change_password: bool,
    /// Present if the password is disabled, after too many wrong ones in a row: it signs in only from browsers that
    /// were signed in before. Set another from one of them or with POST /api/v1/password/reset, or ask an administrator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    password_disabled_since: Option<String>,
}

impl From<&Account> for UserBody {
    fn from(account: &Account) -> Self {
        Self {
            user: User {
                id: account.id.to_string(),
                login: account.login.as_str().to_owned(),
                phone: account.phone.as_ref().map(|phone| phone.as_str().to_owned()),
                roles: account.roles.names(),
                must_change_password: account.must_change_password,
                password_disabled_since: account.password_disabled_at.map(|at| Moment(at).iso()),
            },
        }
    }
}

/// The answer to a sign-in that succeeded; None if it does not count any more.
pub async fn welcome(
    call: &Call,
    account: &Account,
    by: SignedInBy,
    mut response: HttpResponseBuilder,
) -> Result<Option<HttpResponse>, Problem> {
    let token = renew(&call.services, account, &call.shown(), call.session_token(), by).await?;
    Ok(token.map(|token| {
        let mut response = call.with_session(response.json(UserBody::from(account)), &token);
        call.remember_device(&mut response, account);
        response
    }))
}

/// Who is signed in
#[utoipa::path(
    get,
    path = "/api/v1/session",
    operation_id = "showSession",
    tag = "session",
    responses((status = 200, description = "The user of this session.", body = UserBody)),
    security(("session" = [])),
    extensions(("x-problems" = json!(["unauthenticated", "unavailable"])))
)]
pub async fn show(who: SignedIn) -> HttpResponse {
    HttpResponse::Ok().json(UserBody::from(&who.0.account))
}

/// Sign out
///
/// Also 204 if nobody was signed in.
#[utoipa::path(
    post,
    path = "/api/v1/logout",
    operation_id = "signOut",
    tag = "session",
    responses((status = 204, description = "Signed out. The cookie is removed.", headers(("SessionCookie")))),
    security(("session" = []), ()),
    extensions(("x-problems" = json!(["csrf", "unavailable"])))
)]
pub async fn logout(call: Call) -> Result<HttpResponse, Problem> {
    if let Some(token) = call.session_token().and_then(SessionToken::parse) {
        call.services.sessions.end(&token).await?;
    }
    let mut response = HttpResponse::NoContent().finish();
    set(&mut response, call.edge.cookies.end_session());
    set(&mut response, call.edge.cookies.end_lookup());
    Ok(response)
}
