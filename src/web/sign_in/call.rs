//! `POST /api/v1/login`; and how every call that tries a password is refused.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::login::{Account, Password, SignInAttempt, SignInOutcome, SignedInOwner, Username};
use crate::web::kit::call::{Call, CaptchaSolution, invalid_unless, limited};
use crate::web::kit::describe::{ATTEMPT, BODY, CurrentPassword, UserName};
use crate::web::kit::extract::SecretField;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::{Problem, WebError, WebResult};
use crate::web::session::call::{UserBody, welcome};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Credentials, example = json!({ "login": "ada", "password": "correct horse battery staple" }))]
pub struct LoginBody {
    #[schema(value_type = UserName)]
    login: String,
    #[schema(value_type = CurrentPassword)]
    password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Sign in with a name and a password
///
/// Before the password is verified, the attempt is counted on the account, or on the device if the cookie `gh_device`
/// shows one that the account knows, and on the client's address and network; a success is given back. Past a rule
/// that asks for a CAPTCHA no password is verified without a solved challenge; past a rule that blocks, none at all.
#[utoipa::path(
    post,
    path = "/api/v1/login",
    operation_id = "signIn",
    tag = "sign-in",
    request_body = LoginBody,
    responses((
        status = 200,
        description = "Signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"), ("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([BODY, ATTEMPT, "invalid-credentials", "busy"])))
)]
pub async fn submit(body: Json<LoginBody>, call: Call) -> WebResult {
    let (login, password) = parse(&body)?;
    let solved = call.redeem(CaptchaForm::Login, body.captcha.as_ref()).await?;
    let owner = try_password(&call, CaptchaForm::Login, login, password, solved).await?;
    match welcome(&call, &owner, owner.shown(), HttpResponse::Ok()).await? {
        Some(response) => Ok(with_quota(&call, response, None)),
        // The password was changed while this one was verified.
        None => Err(rejected(&call, false)),
    }
}

/// Tries a password, so that the windows of the sign-in count it whichever call it came with.
pub async fn try_password(
    call: &Call,
    form: CaptchaForm,
    login: Username,
    password: Password,
    solved: bool,
) -> Result<Box<SignedInOwner>, WebError> {
    let origin = call.client.origin();
    let attempt =
        SignInAttempt { login, password, origin, client: call.shown(), denied: call.is_denied(), solved };
    match call.services.sign_in.attempt(&call.live, attempt).await? {
        SignInOutcome::SignedIn(owner) => Ok(owner),
        SignInOutcome::Rejected { captcha_required } => Err(rejected(call, captcha_required)),
        SignInOutcome::Denied(denied) => {
            let problem = call.denied(form, &denied).await;
            Err(match denied.full() {
                Some(full) => with_quota(call, problem.respond(), Some(full)).into(),
                None => problem.into(),
            })
        }
    }
}

/// The account with its password verified, as at sign-in.
pub async fn verify(
    call: &Call,
    account: &Account,
    password: Password,
    solved: bool,
) -> Result<Box<SignedInOwner>, WebError> {
    if !call.services.sign_in.is_open_to(&call.live, account, &call.shown()).await? {
        return Err(Problem::PasswordDisabled.into());
    }
    try_password(call, CaptchaForm::PasswordChange, account.login.clone(), password, solved).await
}

/// The current password as it was sent, or the problem at its field.
pub fn parse_current(field: Field, typed: &SecretField) -> Result<Password, Problem> {
    Password::attempt(typed.expose())
        .map_err(|error| Problem::invalid(&FieldErrors::one(field, Message::of_current_password(error))))
}

fn rejected(call: &Call, captcha_required: bool) -> WebError {
    with_quota(call, Problem::InvalidCredentials { captcha_required }.respond(), None).into()
}

/// With the `RateLimit` fields of a password. A device's limit is told to nobody else: that it has a say tells
/// that the browser is known there.
fn with_quota(call: &Call, response: HttpResponse, full: Option<(&str, Duration)>) -> HttpResponse {
    let limits = &call.live.limits;
    let own = match full {
        Some((name, _)) if name == limits.login_device.name() => &limits.login_device,
        _ => &limits.login_account,
    };
    limited(response, &[own, &limits.login_address, &limits.login_network], full)
}

fn parse(body: &LoginBody) -> Result<(Username, Password), Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&body.login).map_err(Message::from));
    let password = Password::attempt(body.password.expose()).map_err(Message::from);
    let password = errors.take(Field::Password, password);
    invalid_unless(login.zip(password), &errors)
}
