//! `POST /api/v1/captcha`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::web::kit::call::Call;
use crate::web::kit::describe::BODY;
use crate::web::kit::problem::{CaptchaChallenge, Problem};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ChallengeRequest, example = json!({ "for": "login" }))]
pub struct ChallengeBody {
    /// The call that the answer goes with. It is accepted for no other.
    #[serde(default)]
    #[schema(default = "login")]
    r#for: ChallengeFor,
}

#[derive(Deserialize, Default, Clone, Copy, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ChallengePurpose)]
enum ChallengeFor {
    #[default]
    Login,
    Register,
    /// `POST /sms/codes`
    Sms,
    /// `POST /password/reset`
    Reset,
    /// What asks for the current password: `POST /admin/confirm`, `POST` and `DELETE /account/phone`
    Password,
}

/// Get a challenge
///
/// It is bound to the client that asks, and to the call that it is for. 429 while its image would not be drawn, if no proofs of work are offered.
#[utoipa::path(
    post,
    path = "/api/v1/captcha",
    operation_id = "issueCaptcha",
    tag = "sign-in",
    request_body = ChallengeBody,
    responses((status = 201, description = "A challenge.", body = CaptchaChallenge)),
    extensions(("x-problems" = json!([BODY, "csrf", "throttled"])))
)]
pub async fn issue(body: Json<ChallengeBody>, call: Call) -> Result<HttpResponse, Problem> {
    let form = match body.r#for {
        ChallengeFor::Login => CaptchaForm::Login,
        ChallengeFor::Register => CaptchaForm::Register,
        ChallengeFor::Sms => CaptchaForm::SmsCode,
        ChallengeFor::Reset => CaptchaForm::PasswordReset,
        ChallengeFor::Password => CaptchaForm::PasswordChange,
    };
    match call.asker(form).issue(&call.services, &call.live).await {
        Ok(challenge) => Ok(HttpResponse::Created().json(CaptchaChallenge::from(challenge))),
        Err(later) => Err(Problem::Throttled { limit: later.limit.into(), retry_after: later.retry_after }),
    }
}
