//! `/register`: a name, a password, and a number where somebody wants one.

use actix_web::HttpResponse;
use actix_web::web::{Form, Query};

use crate::captcha;
use crate::config::LiveSettings;
use crate::login::{NotOpened, RegistrationOutcome, RegistrationRequest, SignedInBy, Username};
use crate::sms::{Phone, Purpose, SmsCode};
use crate::web::captcha::view::CaptchaBlock;
use crate::web::code::fields::CodeFields;
use crate::web::code::send::{Wish, not_opened, parse_both, parse_phone, send, step_of};
use crate::web::code::view::CodeStep;
use crate::web::form::fields::Guarded;
use crate::web::form::fields::NextQuery;
use crate::web::form::fields::Typed;
use crate::web::form::notice::Notice;
use crate::web::form::reply::Reply;
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::next::Next;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::register::view::{Hints, RegisterPage};
use crate::web::session::{signed_in, welcome};
use serde::Deserialize;

/// `POST /register`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RegisterForm {
    pub login: String,
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: Guarded,
}

const HINTS: Hints =
    Hints { login_max: crate::login::LONGEST_LOGIN, password_min: crate::login::SHORTEST_PASSWORD };

/// `GET /register`
pub async fn show(visit: Visit, query: Query<NextQuery>, services: Shared) -> HttpResponse {
    let next = Next::parse(&query.next);
    match signed_in(&visit, &services).await {
        Ok(Some(_)) => visit.keep_flash().see_other(next.unwrap_or_else(Next::home).as_str(), None),
        Ok(None) => RegisterPage::new(&visit, HINTS, next).respond(&visit),
        Err(error) => broken(&visit, &error),
    }
}

/// `POST /register`
pub async fn submit(visit: Visit, form: Form<RegisterForm>, services: Shared) -> HttpResponse {
    let live = services.live.snapshot();
    let page = |step: CodeStep, notice, captcha: CaptchaBlock| {
        let page = RegisterPage::new(&visit, HINTS, Next::parse(&form.next)).login(&form.login);
        page.step(step).notice(notice).captcha(captcha).respond(&visit)
    };
    let show = |notice, captcha| page(step_of(&form.fields, visit.now()), notice, captcha);
    let reply = Reply {
        visit: &visit,
        services: &services,
        live: &live,
        form: captcha::CaptchaForm::Register,
        show: &show,
    };
    match wish(&form) {
        Some(_) if !visit.sends_codes() => return reply.invalid(Field::Phone, Message::NoCodesSent),
        Some(Wish::AnotherNumber) => return reply.plain(Notice::None),
        Some(Wish::Code) if form.fields.send.is_some() || passes(&live, &form) => {
            return send(reply, Purpose::Register, &form.fields, &form.guarded, &page).await;
        }
        Some(Wish::Code | Wish::Entry) | None => {}
    }
    let ((login, phone), solved) =
        match reply.admit(&form.guarded, |errors| parse(&live, &form, errors)).await {
            Ok(admitted) => admitted,
            Err(response) => return response,
        };
    let origin = visit.client.origin();
    let newcomer = RegistrationRequest {
        login: &login,
        password: form.password.expose(),
        phone: phone.as_ref().map(|(phone, code)| (phone, code)),
        origin: &origin,
        browser: Some(visit.browser.bytes()),
        solved,
    };
    match services.registration.register(&live, newcomer).await {
        Ok(RegistrationOutcome::Made(account)) => {
            let next = Next::parse(&form.next);
            match welcome(&visit, &services, &account, next, Some(Flash::Registered), SignedInBy::Password)
                .await
            {
                Ok(Some(response)) => response,
                // Its password was set anew within a moment of its making: it is there to be signed in to.
                Ok(None) => visit.see_other("/login", None),
                Err(error) => broken(&visit, &error),
            }
        }
        Ok(RegistrationOutcome::LoginTaken) => reply.invalid(Field::Login, Message::LoginTaken),
        Ok(RegistrationOutcome::PhoneTaken) => {
            let taken = FieldErrors::one(Field::Phone, Message::PhoneTaken);
            page(CodeStep::asking(""), Notice::Invalid(taken), CaptchaBlock::Absent)
        }
        Ok(RegistrationOutcome::WrongCode) => not_opened(&reply, NotOpened::Wrong).await,
        Ok(RegistrationOutcome::Unfit(unfit)) => reply.invalid(Field::Password, Message::from(unfit)),
        Ok(RegistrationOutcome::Challenged { .. }) => reply.challenged(Notice::CaptchaNeeded).await,
        Ok(RegistrationOutcome::Throttled { retry_after, .. }) => reply.wait(retry_after),
        Ok(RegistrationOutcome::Busy { retry_after }) => reply.busy(retry_after),
        Ok(RegistrationOutcome::Unavailable { retry_after }) => reply.no_codes(retry_after),
        Err(error) => broken(&visit, &error),
    }
}

/// None where no number is given.
fn wish(form: &RegisterForm) -> Option<Wish> {
    let named = !form.fields.phone.expose().trim().is_empty() || !form.fields.code.expose().is_empty();
    named.then(|| Wish::of(&form.fields))
}

/// Whether nothing else is wrong, so that no message is sent for a form that comes back anyway.
fn passes(live: &LiveSettings, form: &RegisterForm) -> bool {
    let mut errors = FieldErrors::default();
    parse_name(form, &mut errors);
    parse_phone(live, &form.fields, &mut errors);
    errors.is_empty()
}

type Parsed = (Username, Option<(Phone, SmsCode)>);

fn parse(live: &LiveSettings, form: &RegisterForm, errors: &mut FieldErrors) -> Option<Parsed> {
    let login = parse_name(form, errors);
    match wish(form) {
        None => login.map(|login| (login, None)),
        Some(Wish::Entry) => {
            let both = parse_both(live, &form.fields, errors);
            login.zip(both).map(|(login, both)| (login, Some(both)))
        }
        Some(Wish::Code | Wish::AnotherNumber) => {
            parse_phone(live, &form.fields, errors);
            None
        }
    }
}

fn parse_name(form: &RegisterForm, errors: &mut FieldErrors) -> Option<Username> {
    let login = errors.take(Field::Login, Username::parse(&form.login).map_err(Message::from));
    if form.password.expose().is_empty() {
        errors.add(Field::Password, Message::PasswordMissing);
    }
    login
}
