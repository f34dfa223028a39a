//! `/logout`, and `/`

use actix_web::http::header::LOCATION;
use actix_web::web::Form;
use actix_web::{HttpRequest, HttpResponse};

use crate::login::SessionToken;
use crate::web::form::fields::TokenForm;
use crate::web::kit::problem::{Problem, WebResult};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Flash, Visit};

/// `POST /logout`
pub async fn logout(visit: Visit, form: Form<TokenForm>, services: Shared) -> WebResult {
    if !visit.admits_form(&form.csrf_token) {
        return Err(Problem::Csrf.into());
    }
    if let Some(token) = visit.session_token().and_then(SessionToken::parse) {
        services.sessions.end(&token).await?;
    }
    let mut response = visit.see_other("/login", Some(Flash::SignedOut));
    visit::set(&mut response, visit.cookies().end_session());
    visit::set(&mut response, visit.cookies().end_lookup());
    Ok(response)
}

/// `GET /`
pub async fn home(_: HttpRequest) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, "/account")).finish()
}
