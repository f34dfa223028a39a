//! `POST /api/v1/captcha`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::web::kit::call::Call;
use crate::web::kit::problem::{CaptchaBody, Problem};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChallengeBody {
    /// The call that the answer will go with; it is good for no other.
    #[serde(default)]
    r#for: ChallengeFor,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
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

pub async fn issue(body: Json<ChallengeBody>, call: Call) -> Result<HttpResponse, Problem> {
    let form = match body.r#for {
        ChallengeFor::Login => CaptchaForm::Login,
        ChallengeFor::Register => CaptchaForm::Register,
        ChallengeFor::Sms => CaptchaForm::SmsCode,
        ChallengeFor::Reset => CaptchaForm::PasswordReset,
        ChallengeFor::Password => CaptchaForm::PasswordChange,
    };
    match call.asker(form).issue(&call.services, &call.live).await {
        Ok(challenge) => Ok(HttpResponse::Created().json(CaptchaBody::from(challenge))),
        Err(later) => Err(Problem::Throttled { limit: later.limit.into(), retry_after: later.retry_after }),
    }
}
