//! `GET /api/v1/session` and `POST /api/v1/logout`; and the account as every call tells it.

use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;

use crate::login::{Account, SessionToken, SignedInBy};
use crate::web::kit::call::Call;
use crate::web::kit::problem::Problem;
use crate::web::kit::visit::set;
use crate::web::kit::wait::Moment;
use crate::web::session::{SignedIn, renew};

/// `{user: {…}}`
#[derive(Serialize)]
pub struct UserBody {
    user: User,
}

#[derive(Serialize)]
struct User {
    id: String,
    login: String,
    /// In E.164.
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
    roles: Vec<&'static str>,
    /// The password was given out once: nothing but changing it is of use.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    must_change_password: bool,
    /// The password had too many wrong ones in a row, and opens nothing to strangers since then.
    #[serde(skip_serializing_if = "Option::is_none")]
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

pub async fn show(who: SignedIn) -> HttpResponse {
    HttpResponse::Ok().json(UserBody::from(&who.0.account))
}

/// 204 also if nobody was signed in: the outcome is the one that was asked for.
pub async fn logout(call: Call) -> Result<HttpResponse, Problem> {
    if let Some(token) = call.session_token().and_then(SessionToken::parse) {
        call.services.sessions.end(&token).await?;
    }
    let mut response = HttpResponse::NoContent().finish();
    set(&mut response, call.edge.cookies.end_session());
    set(&mut response, call.edge.cookies.end_lookup());
    Ok(response)
}
