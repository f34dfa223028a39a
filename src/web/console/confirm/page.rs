//! `/admin/confirm`: confirms the password before a change in the console.

use actix_web::web::{Form, Query};
use serde::Deserialize;
use serde_json::json;

use crate::captcha::CaptchaForm;
use crate::login::{Password, SessionToken};
use crate::web::captcha::view::CaptchaBlock;
use crate::web::console::confirm::view::ConfirmPage;
use crate::web::console::guard::{self, Admin, CONFIRM};
use crate::web::form::fields::{GuardedFields, NextFields};
use crate::web::form::reply::FormReply;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::next::Next;
use crate::web::kit::secret_field::SecretField;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{self, Visit};
use crate::web::kit::web_error::{WebError, WebResult};

/// `POST /admin/confirm`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfirmForm {
    pub password: SecretField,
    pub next: String,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

/// The default target.
const CONSOLE: &str = "/admin";

/// `GET /admin/confirm`
pub async fn show(visit: Visit, admin: Admin, query: Query<NextFields>, services: Shared) -> WebResult {
    let next = parse_next(&query.next);
    if admin.is_confirmed(&services) {
        return Ok(visit.keep_flash().see_other(place(next.as_ref()), None));
    }
    Ok(ConfirmPage::new(&visit, admin.login(), next).respond(&visit))
}

/// `POST /admin/confirm`. The same limits count the password as at sign-in.
pub async fn submit(visit: Visit, form: Form<ConfirmForm>, services: Shared) -> WebResult {
    let admin = guard::confirmation(&visit, &services, &form.guarded.csrf_token).await?;
    let (live, next) = (visit.live(&services), parse_next(&form.next));
    let show = |notice, captcha: CaptchaBlock| {
        let page = ConfirmPage::new(&visit, admin.login(), next.clone());
        page.notice(notice).captcha(captcha).respond(&visit)
    };
    let challenge = CaptchaForm::PasswordChange;
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: challenge, show: &show };
    let token = confirm(&reply, &admin, &form).await?;
    let mut response = visit.see_other(place(next.as_ref()), None);
    visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
    Ok(response)
}

/// The session's new token, after the password was verified.
pub async fn confirm(
    reply: &FormReply<'_>,
    admin: &Admin,
    form: &ConfirmForm,
) -> Result<SessionToken, WebError> {
    let FormReply { visit, services, .. } = *reply;
    let (password, solved) = reply.admit(&form.guarded, |errors| parse(&form.password, errors)).await?;
    reply.verify(&admin.who.account, password, Field::Password, solved).await?;
    let fresh = match visit.session_token().and_then(SessionToken::parse) {
        Some(token) => services.sessions.confirm(&token).await?,
        None => None,
    };
    // None: the password was changed meanwhile, which ended the session.
    let token = fresh.ok_or_else(|| visit.see_other("/login", None))?;
    admin.did(services, "confirm", &json!({}));
    Ok(token)
}

/// Rejects this page itself as a target.
fn parse_next(text: &str) -> Option<Next> {
    Next::parse(text).filter(|next| next.as_str().split(['?', '#']).next() != Some(CONFIRM))
}

fn place(next: Option<&Next>) -> &str {
    next.map_or(CONSOLE, Next::as_str)
}

fn parse(typed: &SecretField, errors: &mut FieldErrors) -> Option<Password> {
    errors.take(Field::Password, Password::attempt(typed.expose()).map_err(Message::of_current_password))
}
