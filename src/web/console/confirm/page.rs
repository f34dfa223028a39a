//! `/admin/confirm`: the password, shown again before something is changed in the console.

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};
use serde_json::json;

use crate::captcha;
use crate::login::{Password, SessionToken};
use crate::web::captcha::view::CaptchaBlock;
use crate::web::console::confirm::view::ConfirmPage;
use crate::web::console::guard::{self, Admin, page::CONFIRM};
use crate::web::form::fields::Guarded;
use crate::web::form::fields::{NextQuery, Typed};
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::message::Message;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Visit};
use serde::Deserialize;

/// `POST /admin/confirm`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfirmForm {
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub guarded: Guarded,
}

const FORM: captcha::CaptchaForm = captcha::CaptchaForm::PasswordChange;
/// Where there is no better place.
const CONSOLE: &str = "/admin";

/// `GET /admin/confirm`
pub async fn show(visit: Visit, query: Query<NextQuery>, services: Shared) -> HttpResponse {
    let admin = match guard::page::read(&visit, &services).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let next = parse_next(&query.next);
    if services.sessions.is_confirmed(&admin.who.session) {
        return visit.keep_flash().see_other(place(next.as_ref()), None);
    }
    ConfirmPage::new(&visit, admin.login(), next).respond(&visit)
}

/// `POST /admin/confirm`. The password is tried as at sign-in: the same windows count it.
pub async fn submit(visit: Visit, form: Form<ConfirmForm>, services: Shared) -> HttpResponse {
    let admin = match guard::page::confirmation(&visit, &services, &form.guarded.csrf_token).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let (live, next) = (services.live.snapshot(), parse_next(&form.next));
    let show = |notice, captcha: CaptchaBlock| {
        let page = ConfirmPage::new(&visit, admin.login(), next.clone());
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let reply = Reply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    match verified(&reply, &admin, &form).await {
        Ok(token) => {
            let mut response = visit.see_other(place(next.as_ref()), None);
            visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
            response
        }
        Err(response) => response,
    }
}

/// The session's new token, once the password was right; or the page that goes back.
pub async fn verified(
    reply: &Reply<'_>,
    admin: &Admin,
    form: &ConfirmForm,
) -> Result<SessionToken, HttpResponse> {
    let Reply { visit, services, .. } = *reply;
    let (password, solved) = reply.admit(&form.guarded, |errors| parse(&form.password, errors)).await?;
    reply.verify(&admin.who.account, password, Field::Password, solved).await?;
    let fresh = match visit.session_token().and_then(SessionToken::parse) {
        Some(token) => services.sessions.confirm(&token).await,
        None => Ok(None),
    };
    match fresh {
        Ok(Some(token)) => {
            admin.did(services, "confirm", &json!({}));
            Ok(token)
        }
        // The password was changed meanwhile, which ended the session.
        Ok(None) => Err(visit.see_other("/login", None)),
        Err(error) => Err(broken(visit, &error)),
    }
}

/// Not back to this very page.
fn parse_next(text: &str) -> Option<Next> {
    Next::parse(text).filter(|next| next.as_str().split(['?', '#']).next() != Some(CONFIRM))
}

fn place(next: Option<&Next>) -> &str {
    next.map_or(CONSOLE, Next::as_str)
}

fn parse(typed: &Typed, errors: &mut FieldErrors) -> Option<Password> {
    errors.take(Field::Password, Password::attempt(typed.expose()).map_err(Message::of_current_password))
}
