//! Challenges: a new one, its image, and how a form shows it.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use actix_web::web::{Bytes, Json, Path};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::{CaptchaForm, Challenge, ImageError, ImageRefusal};
use crate::clock::Micros;
use crate::web::http::locale::span_in_words;
use crate::web::http::{
    ApiRequest, CaptchaChallenge, Locale, Problem, Provenance, Requester, ServicesData, Wait, WebContext,
    challenge,
};

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
/// It is bound to the client that asks, and to the call that it is for. 429 while its image would not be drawn, if no proofs
/// of work are offered.
#[utoipa::path(
    post,
    path = "/api/v1/captcha",
    operation_id = "issueCaptcha",
    tag = "sign-in",
    request_body = ChallengeBody,
    responses((status = 201, description = "A challenge.", body = CaptchaChallenge)),
    extensions(("x-problems" = json!(["throttled"])))
)]
pub async fn issue(body: Json<ChallengeBody>, call: ApiRequest) -> Result<HttpResponse, Problem> {
    let form = match body.r#for {
        ChallengeFor::Login => CaptchaForm::Login,
        ChallengeFor::Register => CaptchaForm::Register,
        ChallengeFor::Sms => CaptchaForm::MessageCode,
        ChallengeFor::Reset => CaptchaForm::PasswordReset,
        ChallengeFor::Password => CaptchaForm::PasswordChange,
    };
    match call.asker(form).issue(&call.services, &call.live).await {
        Ok(challenge) => Ok(HttpResponse::Created().json(CaptchaChallenge::from(challenge))),
        Err(later) => Err(too_many_images(later)),
    }
}

/// The image of one challenge. The bytes are always the same, and useless to other clients.
pub async fn image(
    sender: Requester,
    id: Path<String>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    if is_in_a_foreign_page(sender.request().headers(), &sender.edge) {
        return Err(Problem::Csrf);
    }
    let png = challenge::image(&sender.live(&services), sender.client, &services, &id).await;
    let png = png.map_err(|error| match error {
        ImageError::Unknown => Problem::NotFound,
        ImageError::Refused(later) => too_many_images(later),
        ImageError::Busy => Problem::Busy { retry_after: Duration::from_secs(1) },
        ImageError::Failed => Problem::Internal,
    })?;
    Ok(HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("image/png")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("private, max-age=180")))
        .body(Bytes::from_owner(png)))
}

fn too_many_images(later: ImageRefusal) -> Problem {
    Problem::throttled(later.limit, later.refusal.retry_after)
}

/// Another site could not show the image, but loading it would use up the images allowed for the reader's
/// address.
fn is_in_a_foreign_page(headers: &HeaderMap, edge: &WebContext) -> bool {
    // The reader typed the address or opened a bookmark.
    let typed = headers.get("sec-fetch-site").is_some_and(|site| site.as_bytes() == b"none");
    !typed && edge.csrf.provenance(headers) == Provenance::Foreign
}

/// Pixels of the image. The page states them, so that the layout does not shift when the image loads.
pub const IMAGE_SIZE: (u32, u32) = (crate::captcha::WIDTH as u32, crate::captcha::HEIGHT as u32);
/// Longer than any answer, and too short to carry other data.
pub const LONGEST_ANSWER: u32 = 128;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CaptchaBlock {
    #[default]
    Absent,
    Challenge(ChallengeView),
    /// A challenge is needed, but this client or everyone has had too many images recently.
    Later(LaterView),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeView {
    pub id: String,
    pub expires_in: Duration,
    pub image_wait: Option<Wait>,
    pub proof: Option<String>,
    pub help: Option<HelpContact>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpContact {
    pub text: String,
    /// Where the text leads, if it is an address.
    pub address: Option<String>,
}

/// Neither an image nor a proof of work is available: until when, and for which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaterView {
    pub wait: Wait,
    pub form: CaptchaForm,
    pub help: Option<HelpContact>,
}

impl LaterView {
    /// The alternative: its text, its path, and the text of the link.
    pub const fn instead(&self, sends_codes: bool) -> Option<(&'static str, &'static str, &'static str)> {
        match self.form {
            CaptchaForm::Login if !sends_codes => None,
            CaptchaForm::Login => Some(("captcha.later-login", "/login/code", "login.by-code")),
            CaptchaForm::MessageCode => Some(("captcha.later-code", "/login", "code-login.password")),
            CaptchaForm::Register | CaptchaForm::PasswordReset => {
                Some(("captcha.later-have", "/login", "login.submit"))
            }
            CaptchaForm::PasswordChange | CaptchaForm::Attempt | CaptchaForm::Verification => None,
        }
    }
}

impl CaptchaBlock {
    pub const fn is_later(&self) -> bool {
        matches!(self, Self::Later(_))
    }
}

impl HelpContact {
    pub fn of(line: &str) -> Option<Self> {
        let after = |scheme: &str| {
            let (start, rest) = line.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        let text = if let Some(address) = after("mailto:").or_else(|| after("tel:")) {
            address
        } else if after("https://").or_else(|| after("http://")).is_some() {
            line
        } else {
            return (!line.is_empty()).then(|| Self { text: line.to_owned(), address: None });
        };
        Some(Self { text: text.to_owned(), address: Some(line.to_owned()) })
    }
}

impl ChallengeView {
    pub fn new(challenge: Challenge, now: Micros, help: Option<HelpContact>) -> Self {
        let Challenge { id, expires_in, image_after, proof } = challenge;
        let image_wait = image_after.map(|after| Wait::new(now, after));
        let proof = proof.map(|proof| proof.to_json());
        Self { id, expires_in, image_wait, proof, help }
    }

    pub fn lasts(&self, locale: Locale) -> String {
        span_in_words(self.expires_in.as_secs(), locale)
    }

    pub const fn width(&self) -> u32 {
        IMAGE_SIZE.0
    }

    pub const fn height(&self) -> u32 {
        IMAGE_SIZE.1
    }

    pub const fn longest(&self) -> u32 {
        LONGEST_ANSWER
    }
}
