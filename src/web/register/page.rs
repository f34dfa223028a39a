//! `/register`: a name, a password, and optionally a phone number.

use actix_web::web::Query;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::{Password, RegistrationOutcome, RegistrationRequest, SignedInBy, Username};
use crate::sms::{Phone, Purpose, SmsCode};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::fields::CodeFields;
use crate::web::code::page::{CodeStage, parse_both, parse_phone, send, step_of};
use crate::web::code::view::CodeStep;
use crate::web::form::fields::{FormPairs, GuardedFields, NextFields};
use crate::web::form::notice::Notice;
use crate::web::form::once::{FormReach, once};
use crate::web::form::reply::FormReply;
use crate::web::kit::extract::{SecretField, UnreadBody};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::WebResult;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Flash, Visit};
use crate::web::register::view::{Hints, RegisterPage};
use crate::web::session::{unless_signed_in, welcome};

/// `POST /register`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RegisterForm {
    pub login: String,
    pub password: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

const HINTS: Hints =
    Hints { login_max: crate::login::LONGEST_LOGIN, password_min: crate::login::SHORTEST_PASSWORD };

/// `GET /register`
pub async fn show(visit: Visit, query: Query<NextFields>, services: Shared) -> WebResult {
    let page = |visit: &Visit, next, _| RegisterPage::new(visit, HINTS, next).respond(visit);
    unless_signed_in(visit, &services, &query, page).await
}

/// `POST /register`
pub async fn submit(visit: Visit, body: UnreadBody<FormPairs>, services: Shared) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, register).await
}

async fn register(visit: Visit, form: RegisterForm, services: Shared) -> WebResult {
    let live = visit.live(&services);
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = RegisterPage::new(&visit, HINTS, form.to.target(&visit, &live)).login(&form.login);
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = FormReply {
        visit: &visit,
        services: &services,
        live: &live,
        form: CaptchaForm::Register,
        show: &show,
    };
    match stage(&form) {
        Some(_) if !visit.sends_codes() => return Ok(reply.invalid(Field::Phone, Message::NoCodesSent)),
        Some(CodeStage::AnotherNumber) => return Ok(reply.plain(Notice::None)),
        Some(CodeStage::Send) if form.fields.send.is_some() || passes(&live, &form) => {
            return send(&reply, Purpose::Register, &form.fields, &form.guarded, &page).await;
        }
        Some(CodeStage::Send | CodeStage::Entry) | None => {}
    }
    let ((login, phone), solved) = reply.admit(&form.guarded, |errors| parse(&live, &form, errors)).await?;
    let origin = visit.client.origin();
    let request = RegistrationRequest {
        login: &login,
        password: form.password.expose(),
        phone: phone.as_ref().map(|(phone, code)| (phone, code)),
        origin: &origin,
        browser: Some(visit.browser.bytes()),
        solved,
    };
    Ok(match services.registration.register(&live, request).await? {
        RegistrationOutcome::Made(account) => {
            let (next, flash) = (form.to.target(&visit, &live), Some(Flash::Registered));
            let response = welcome(&visit, &services, &account, next, flash, SignedInBy::Password).await?;
            // None: the new password was already reset. The user can sign in with the reset one.
            response.unwrap_or_else(|| visit.see_other("/login", None))
        }
        RegistrationOutcome::LoginTaken => reply.invalid(Field::Login, Message::LoginTaken),
        RegistrationOutcome::PhoneTaken => {
            let taken = FieldErrors::one(Field::Phone, Message::PhoneTaken);
            page(CodeStep::asking(""), Notice::Invalid(taken), CaptchaBlock::Absent)
        }
        RegistrationOutcome::WrongCode => reply.invalid(Field::Code, Message::CodeWrong),
        RegistrationOutcome::Unfit(password) => reply.invalid(Field::Password, password.into()),
        RegistrationOutcome::Denied(denied) => reply.denied(&denied).await,
    })
}

/// None if no number is given.
fn stage(form: &RegisterForm) -> Option<CodeStage> {
    let named = !form.fields.phone.expose().trim().is_empty() || !form.fields.code.expose().is_empty();
    named.then(|| CodeStage::of(&form.fields))
}

/// Whether all other fields are valid, so that no message is sent for a form that is shown again anyway. The
/// password is asked for together with the code.
fn passes(live: &LiveSettings, form: &RegisterForm) -> bool {
    let mut errors = FieldErrors::default();
    parse_login(form, &mut errors);
    parse_phone(live, &form.fields, &mut errors);
    errors.is_empty()
}

type ParsedForm = (Username, Option<(Phone, SmsCode)>);

/// Every mistake at once.
fn parse(live: &LiveSettings, form: &RegisterForm, errors: &mut FieldErrors) -> Option<ParsedForm> {
    let login = parse_login(form, errors);
    let number = match stage(form) {
        None => Some(None),
        Some(CodeStage::Entry) => parse_both(live, &form.fields, errors).map(Some),
        Some(CodeStage::Send | CodeStage::AnotherNumber) => {
            parse_phone(live, &form.fields, errors);
            return None;
        }
    };
    errors.take(Field::Password, Password::check(form.password.expose()).map_err(Message::from));
    login.zip(number)
}

fn parse_login(form: &RegisterForm, errors: &mut FieldErrors) -> Option<Username> {
    errors.take(Field::Login, Username::parse(&form.login).map_err(Message::from))
}
