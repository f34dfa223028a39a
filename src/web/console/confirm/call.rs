//! `POST /api/v1/admin/confirm`: the password, confirmed before something is changed.

use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::login::SessionToken;
use crate::web::console::guard;
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::describe::{ADMIN, ATTEMPT, BODY, CurrentPassword, PASSWORD};
use crate::web::kit::extract::UnreadBody;
use crate::web::kit::message::Field;
use crate::web::kit::problem::Problem;
use crate::web::kit::secret_field::SecretField;
use crate::web::kit::web_error::WebResult;
use crate::web::sign_in::call::{parse_current, verify};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PasswordAgain, example = json!({ "password": "correct horse battery staple" }))]
pub struct ConfirmBody {
    /// Of the account that is signed in.
    #[schema(value_type = CurrentPassword)]
    password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Confirm the password before a change
///
/// An administrator changes something only if the session has confirmed the password within `[session] confirm`, by
/// default 15 minutes. A sign-in by password counts as one. The password is verified as at sign-in, and the same limits
/// count it.
#[utoipa::path(
    post,
    path = "/api/v1/admin/confirm",
    operation_id = "confirmPassword",
    tag = "admin",
    request_body = ConfirmBody,
    responses((
        status = 204,
        description = "Confirmed. The session has a new token, and the old one is invalid.",
        headers(("SessionCookie"))
    )),
    security(("session" = [])),
    extensions(("x-problems" = json!([BODY, ATTEMPT, ADMIN, PASSWORD])))
)]
pub async fn submit(request: HttpRequest, body: UnreadBody<ConfirmBody>) -> WebResult {
    let admin = guard::confirming(&request).await?;
    let body = body.read().await?;
    let call = Call::admit(&request)?;
    let password = parse_current(Field::Password, &body.password)?;
    let solved = call.redeem(CaptchaForm::PasswordChange, body.captcha.as_ref()).await?;
    verify(&call, &admin.who.account, password, solved).await?;
    let token = call.session_token().and_then(SessionToken::parse).ok_or(Problem::Unauthenticated)?;
    // None: the password was changed meanwhile, which ended the session.
    let fresh = call.services.sessions.confirm(&token).await?.ok_or(Problem::Unauthenticated)?;
    admin.did(&call.services, "confirm", &json!({}));
    Ok(call.with_session(HttpResponse::NoContent().finish(), &fresh))
}
