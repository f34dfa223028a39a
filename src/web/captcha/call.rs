//! `POST /api/v1/captcha`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::web::kit::call::Call;
use crate::web::kit::problem::{CaptchaBody, Problem};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    /// The call that the answer will go with; it is good for no other.
    #[serde(default)]
    r#for: For,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum For {
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

pub async fn issue(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let form = match body.r#for {
        For::Login => CaptchaForm::Login,
        For::Register => CaptchaForm::Register,
        For::Sms => CaptchaForm::SmsCode,
        For::Reset => CaptchaForm::PasswordReset,
        For::Password => CaptchaForm::PasswordChange,
    };
    let live = services.live.snapshot();
    let challenge = call
        .asker(form)
        .issue(&services, &live)
        .await
        .map_err(|later| Problem::Throttled { limit: later.limit.into(), retry_after: later.retry_after })?;
    Ok(HttpResponse::Created().json(CaptchaBody::from(challenge)))
}
