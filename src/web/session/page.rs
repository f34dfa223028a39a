//! `/logout`, and `/`

use actix_web::http::header::LOCATION;
use actix_web::web::Form;
use actix_web::{HttpRequest, HttpResponse};

use crate::login::SessionToken;
use crate::web::form::fields::TokenForm;
use crate::web::kit::error_page::{ErrorKind, ErrorPage, broken};
use crate::web::kit::flash::Flash;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Visit};

/// `POST /logout`
pub async fn logout(visit: Visit, form: Form<TokenForm>, services: Shared) -> HttpResponse {
    if !visit.admits_form(&form.csrf_token) {
        return ErrorPage::new(visit.layout("/logout", None), ErrorKind::ForeignForm).respond(&visit);
    }
    if let Some(token) = visit.session_token().and_then(SessionToken::parse)
        && let Err(error) = services.sessions.end(&token).await
    {
        return broken(&visit, &error);
    }
    let mut response = visit.see_other("/login", Some(Flash::SignedOut));
    visit::set(&mut response, visit.cookies().end_session());
    visit::set(&mut response, visit.cookies().end_lookup());
    response
}

/// `GET /`
pub async fn home(_: HttpRequest) -> HttpResponse {
    HttpResponse::SeeOther().insert_header((LOCATION, "/account")).finish()
}
