//! `POST /api/v1/register`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::{NotOpened, RegistrationOutcome, RegistrationRequest, SignedInBy, Username};
use crate::sms::{Phone, SmsCode};
use crate::web::code::call::{not_opened, parse_code, parse_phone};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, UserBody, broken, invalid_unless};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};
use crate::web::session::renew;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    login: String,
    password: Typed,
    /// With the code that came to it, or neither.
    phone: Option<Typed>,
    code: Option<Typed>,
    captcha: Option<Solution>,
}

pub async fn submit(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let login = parse(&body)?;
    let live = services.live.snapshot();
    if !edge.sends_codes && (body.phone.is_some() || body.code.is_some()) {
        return Err(Problem::invalid(&FieldErrors::one(Field::Phone, Message::NoCodesSent)));
    }
    let phone = parse_number(&live, &body)?;
    let solved = call.redeem(CaptchaForm::Register, &services, &live, body.captcha.as_ref()).await?;
    let origin = call.client.origin();
    let newcomer = RegistrationRequest {
        login: &login,
        password: body.password.expose(),
        phone: phone.as_ref().map(|(phone, code)| (phone, code)),
        origin: &origin,
        browser: call.browser.as_ref().map(|browser| &browser.bytes()[..]),
        solved,
    };
    match services.registration.register(&live, newcomer).await.map_err(|error| broken(&error))? {
        RegistrationOutcome::Made(account) => {
            let old = edge.session_token(request.headers());
            let token = renew(&services, &account, &call.shown(), old, SignedInBy::Password).await;
            let token = token.map_err(|error| broken(&error))?.ok_or(Problem::Unauthenticated)?;
            let mut response = HttpResponse::Created().json(UserBody::from(&*account));
            set(&mut response, edge.cookies.session(&token.expose(), services.session_lasts));
            call.remember_device(&mut response, &account);
            Ok(response)
        }
        RegistrationOutcome::PhoneTaken => Err(Problem::PhoneTaken),
        RegistrationOutcome::WrongCode => {
            Ok(not_opened(&call, CaptchaForm::Register, &services, &live, NotOpened::Wrong).await)
        }
        RegistrationOutcome::Unavailable { retry_after } => Err(Problem::Unavailable { retry_after }),
        RegistrationOutcome::LoginTaken => Err(Problem::LoginTaken),
        RegistrationOutcome::Unfit(unfit) => {
            Err(Problem::invalid(&FieldErrors::one(Field::Password, Message::from(unfit))))
        }
        RegistrationOutcome::Challenged { .. } => {
            let captcha = call.challenge(CaptchaForm::Register, &services, &live).await;
            Err(Problem::CaptchaRequired { captcha })
        }
        RegistrationOutcome::Throttled { limit, retry_after } => {
            Err(Problem::Throttled { limit: limit.into(), retry_after })
        }
        RegistrationOutcome::Busy { retry_after } => Err(Problem::Busy { retry_after }),
    }
}

fn parse(body: &Body) -> Result<Username, Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&body.login).map_err(Message::from));
    if body.password.expose().is_empty() {
        errors.add(Field::Password, Message::PasswordMissing);
    }
    invalid_unless(login, &errors)
}

/// Number and code: both, or neither.
fn parse_number(live: &LiveSettings, body: &Body) -> Result<Option<(Phone, SmsCode)>, Problem> {
    let alone = |field, message| Err(Problem::invalid(&FieldErrors::one(field, message)));
    match (&body.phone, &body.code) {
        (None, None) => Ok(None),
        (Some(phone), Some(code)) => Ok(Some((parse_phone(live, phone)?, parse_code(code)?))),
        (Some(_), None) => alone(Field::Code, Message::CodeMissing),
        (None, Some(_)) => alone(Field::Phone, Message::PhoneMissing),
    }
}
