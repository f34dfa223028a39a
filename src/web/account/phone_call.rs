//! `POST` and `DELETE /api/v1/account/phone`: a number opens the account, so both need the password.

use std::sync::Arc;

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::{Account, CodeEntry, Password, PhoneOutcome, SignInAttempt, SignInOutcome, SignedInOwner};
use crate::web::code::call::{not_opened, parse_code, parse_phone};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, broken, limited_as_password};
use crate::web::kit::message::Message;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Edge;

/// The challenges of all that asks for the current password.
pub const FORM: CaptchaForm = CaptchaForm::PasswordChange;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    phone: Typed,
    code: Typed,
    #[serde(default)]
    current_password: Typed,
    captcha: Option<Solution>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    #[serde(default)]
    current_password: Typed,
    captcha: Option<Solution>,
}

/// Gives the account the number, in place of the one that it may have. The password is judged before the
/// code, so that none is spent on a mistake.
pub async fn set_phone(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    if !edge.sends_codes {
        return Err(Problem::NotFound);
    }
    let who = call.member(&services, &edge).await?;
    let live = services.live.snapshot();
    let (phone, code) = (parse_phone(&live, &body.phone)?, parse_code(&body.code)?);
    if who.account.password_hash.is_none() {
        return Err(Problem::NoPassword);
    }
    let password = parse_current(&body.current_password)?;
    let solved = call.redeem(FORM, &services, &live, body.captcha.as_ref()).await?;
    let owner = match verify(&call, &services, &live, &who.account, password, solved).await? {
        Ok(owner) => owner,
        Err(refusal) => return Ok(refusal),
    };
    let origin = call.client.origin();
    let (browser, known) = (call.browser.as_ref().map(|browser| &browser.bytes()[..]), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match services.by_code.give(&live, &owner, entry).await.map_err(|error| broken(&error))? {
        PhoneOutcome::Done => Ok(HttpResponse::NoContent().finish()),
        PhoneOutcome::PhoneTaken => Err(Problem::PhoneTaken),
        PhoneOutcome::Not(not) => Ok(not_opened(&call, FORM, &services, &live, not).await),
    }
}

/// 204 also where there is none.
pub async fn remove_phone(
    request: HttpRequest,
    body: Json<Removal>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let who = call.member(&services, &edge).await?;
    let live = services.live.snapshot();
    if who.account.password_hash.is_none() {
        return Err(Problem::OnlyWayIn);
    }
    // From new browsers the number is.
    if who.account.password_disabled_at.is_some() {
        return Err(Problem::PasswordDisabled);
    }
    let password = parse_current(&body.current_password)?;
    let solved = call.redeem(FORM, &services, &live, body.captcha.as_ref()).await?;
    let owner = match verify(&call, &services, &live, &who.account, password, solved).await? {
        Ok(owner) => owner,
        Err(refusal) => return Ok(refusal),
    };
    match services.by_code.take_away(&owner).await.map_err(|error| broken(&error))? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::OnlyWayIn),
    }
}

/// The account with its password verified, as at sign-in, or the refusal.
pub async fn verify(
    call: &Call<'_>,
    services: &Services,
    live: &Arc<LiveSettings>,
    account: &Account,
    password: Password,
    solved: bool,
) -> Result<Result<Box<SignedInOwner>, HttpResponse>, Problem> {
    let open = services.sign_in.is_open_to(live, account, &call.shown()).await;
    if !open.map_err(|error| broken(&error))? {
        return Err(Problem::PasswordDisabled);
    }
    let attempt = SignInAttempt {
        login: account.login.clone(),
        password,
        origin: call.client.origin(),
        client: call.shown(),
        solved,
    };
    let refused =
        |problem: &Problem, wait| Ok(Err(limited_as_password(problem.respond(), &live.limits, wait)));
    match services.sign_in.attempt(live, attempt).await.map_err(|error| broken(&error))? {
        SignInOutcome::SignedIn(owner) => Ok(Ok(owner)),
        SignInOutcome::Rejected { captcha_required } => {
            refused(&Problem::InvalidCredentials { captcha_required }, None)
        }
        SignInOutcome::Challenged { limit, retry_after } => {
            let captcha = call.challenge(FORM, services, live).await;
            refused(&Problem::CaptchaRequired { captcha }, Some((limit, retry_after)))
        }
        SignInOutcome::Throttled { limit, retry_after } => {
            refused(&Problem::Throttled { limit: limit.into(), retry_after }, Some((limit, retry_after)))
        }
        SignInOutcome::Busy { retry_after } => Err(Problem::Busy { retry_after }),
    }
}

fn parse_current(typed: &Typed) -> Result<Password, Problem> {
    let about = |error| {
        Problem::invalid(&FieldErrors::one(Field::CurrentPassword, Message::of_current_password(error)))
    };
    Password::attempt(typed.expose()).map_err(about)
}
