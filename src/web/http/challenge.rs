//! The CAPTCHA part of a request, for pages and API: checks the answer, issues the next challenge, and tells it to callers.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::accounts::Realm;
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::captcha::{
    CaptchaAnswer, CaptchaClient, CaptchaForm, Challenge, ChallengeImage, ImageError, ImageRefusal,
    ProofChallenge, RedeemResult,
};
use crate::config::LiveSettings;
use crate::login::{GuardedAttempts, GuardedLogin, RequestOrigin};
use crate::message::ProgramKind;
use crate::web::http::client::ClientAddress;
use crate::web::http::csrf::Browser;
use crate::web::http::describe;
use crate::web::http::locale::whole_seconds;
use crate::web::http::services::Services;

const IMAGE: &str = "image";
const PROOF: &str = "proof";
/// An image was drawn, or a proof of work was given out; or no image was, because there were too many.
const OFFERED: &str = "offered";
const REFUSED: &str = "refused";

/// When to send an answer again for which there was no room.
pub const BUSY: Duration = Duration::from_secs(1);

fn count(by: &'static str, outcome: &'static str) {
    metrics::counter!("gatehouse_captchas_total", "by" => by, "outcome" => outcome).increment(1);
}

#[derive(Clone, Copy)]
pub struct ChallengeContext<'a> {
    pub form: CaptchaForm,
    pub client: ClientAddress,
    pub browser: Option<&'a Browser>,
    pub realm: Option<&'a Realm>,
}

impl ChallengeContext<'_> {
    /// Redeems an answer once, whether it is right or (but for a flood) wrong. A wrong answer to a valid
    /// challenge is a guess: it counts as a failure of the address, until everybody there is challenged. Any
    /// other answer (too late, already used, for another client's challenge, nonsense) does not count: it costs
    /// nothing to make, so a flood of it would get everybody at the address challenged. None: nothing was
    /// answered.
    pub async fn redeem(
        self,
        services: &Services,
        live: &LiveSettings,
        answer: CaptchaAnswer<'_>,
    ) -> Option<RedeemResult> {
        if answer.is_empty() {
            return None;
        }
        let by = match answer {
            CaptchaAnswer::Letters { .. } => IMAGE,
            CaptchaAnswer::Proof(_) => PROOF,
        };
        let origin = self.client.origin();
        let bound = self.counted(origin.clone());
        let redeemed = services.captchas.redeem(live, self.form, &self.client_of(&bound), answer).await;
        count(by, redeemed.as_str());
        let audit = &services.audit;
        let realm = self.realm.filter(|_| self.form == CaptchaForm::Attempt);
        let event = |at, outcome| AuditEvent {
            name: Some(self.form.as_str()),
            detail: realm.map(|realm| json!({ "realm": realm.as_str() }).to_string()),
            address: Some(EventSubject::Address(&origin.address)),
            network: Some(EventSubject::Network(&origin.network)),
            ..AuditEvent::new(at, Action::Captcha, outcome)
        };
        if redeemed.is_solved() {
            audit.record(event(audit.now(), Outcome::Ok));
            return Some(redeemed);
        }
        // Nothing is signed in to with a verification, so there are no failures that it could count among.
        let counted = if redeemed == RedeemResult::Wrong && self.form != CaptchaForm::Verification {
            services.sign_in.guard().count_answer(self.login(), &live.limits, &bound).await
        } else {
            None
        };
        if let Some(at) = counted {
            audit.record(event(at, Outcome::Wrong));
        } else {
            let mut detail = json!({ "why": redeemed.as_str() });
            if let Some(realm) = realm {
                detail["realm"] = realm.as_str().into();
            }
            let detail = Some(detail.to_string());
            audit.record(AuditEvent { detail, ..event(audit.now(), Outcome::Failed) });
        }
        Some(redeemed)
    }

    /// A new challenge, which costs next to nothing. An error if its image would not be drawn, and no proofs of work
    /// are offered.
    pub async fn issue(self, services: &Services, live: &LiveSettings) -> Result<Challenge, ImageRefusal> {
        let bound = self.counted(self.client.origin());
        let used = async || self.limit_usage(services, live, &bound).await;
        let issued = services.captchas.issue(live, self.form, &self.client_of(&bound), used).await;
        if live.captcha.proof_of_work {
            count(PROOF, OFFERED);
        }
        if let Err(later) = &issued {
            record_later(services, self.client, later);
        }
        issued
    }

    /// Makes the body of an answer: a fresh challenge; while its image would not be drawn, when it would.
    pub async fn challenge(self, services: &Services, live: &LiveSettings) -> CaptchaBody {
        match self.issue(services, live).await {
            Ok(challenge) => CaptchaBody::Challenge(challenge.into()),
            Err(later) => {
                CaptchaBody::Later(CaptchaLater { retry_after: whole_seconds(later.refusal.retry_after) })
            }
        }
    }

    /// What is used of what the form's own limits count: who asks for messages without end fails no password.
    async fn limit_usage(
        self,
        services: &Services,
        live: &LiveSettings,
        bound: &RequestOrigin,
    ) -> Option<f64> {
        let (guard, limits) = (services.sign_in.guard(), &live.limits);
        match self.form {
            CaptchaForm::Verification => {
                let name = self.realm.map_or("", Realm::as_str);
                let RequestOrigin { address, network } = self.client.origin();
                let own = |bytes: &[u8]| ProgramKind::Verifier.subject(name, bytes);
                let origin = RequestOrigin { address: own(&address), network: own(&network) };
                guard.limit_usage_on([&limits.program_address, &limits.program_network], &origin).await
            }
            CaptchaForm::MessageCode | CaptchaForm::PasswordReset => {
                guard.limit_usage_on([&limits.sms_address, &limits.sms_network], &self.client.origin()).await
            }
            CaptchaForm::Register => {
                let each = [&limits.register_address, &limits.login_network];
                guard.limit_usage_on(each, &self.client.origin()).await
            }
            CaptchaForm::Login | CaptchaForm::PasswordChange | CaptchaForm::Attempt => {
                guard.limit_usage(self.login(), limits, bound).await
            }
        }
    }

    fn login(self) -> GuardedLogin {
        self.realm.map_or(GuardedLogin::Own, |_| GuardedLogin::Realm)
    }

    /// The client as its realm's limits and challenges name it.
    fn counted(self, origin: RequestOrigin) -> RequestOrigin {
        match self.realm {
            Some(realm) => GuardedAttempts::origin(realm, &origin),
            None => origin,
        }
    }

    fn client_of<'b>(&'b self, bound: &'b RequestOrigin) -> CaptchaClient<'b> {
        CaptchaClient {
            address: &bound.address,
            network: &bound.network,
            realm: self.realm.map(|realm| realm.as_str().as_bytes()),
            cookie: self.browser.map(|browser| browser.bytes().as_slice()),
        }
    }
}

/// A fresh challenge, as `POST /captcha` gives it too; or, if no proofs of work are offered and no image can be had, when
/// to ask again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CaptchaBody {
    Challenge(CaptchaChallenge),
    Later(CaptchaLater),
}

/// A challenge. It takes one answer, from the client that it was given to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Captcha, example = json!(CaptchaChallenge::example()))]
pub struct CaptchaChallenge {
    pub id: String,
    /// The path of the image; left out while none can be drawn for the client. It is drawn when it is fetched, and counts on
    /// the address and the network that fetch it, or that a program has stated: 429 or 503 with Retry-After if it is not
    /// drawn now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^/captcha/.+\.png$")]
    pub image: Option<String>,
    /// The challenge of a proof of work (ALTCHA, version 2) to solve instead. Left out if none are offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::proof_of_work, required = false)]
    pub altcha: Option<Box<ProofChallenge>>,
    /// Seconds.
    pub expires_in: u64,
}

/// Neither can be had now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CaptchaLater {
    /// Seconds after which to send the same call again, or to ask POST /api/v1/captcha.
    #[schema(minimum = 1)]
    pub retry_after: u64,
}

impl CaptchaChallenge {
    pub fn example() -> Self {
        let (id, expires_in) = ("Qmx1ZSBzdG9uZXM".to_owned(), Duration::from_secs(180));
        Challenge { id, expires_in, image_after: None, proof: Some(Box::new(ProofChallenge::example())) }
            .into()
    }
}

impl From<Challenge> for CaptchaChallenge {
    fn from(Challenge { id, expires_in, image_after, proof }: Challenge) -> Self {
        let image = image_after.is_none().then(|| ["/captcha/", &id, ".png"].concat());
        Self { image, altcha: proof, id, expires_in: expires_in.as_secs() }
    }
}

/// The image of a challenge, counted against the client that fetches it, or that a program has it for.
pub async fn image(
    live: &LiveSettings,
    client: ClientAddress,
    services: &Services,
    id: &str,
) -> Result<Arc<[u8]>, ImageError> {
    let (address, network) = (client.subject(), client.network());
    let by =
        CaptchaClient { address: address.as_ref(), network: network.as_ref(), realm: None, cookie: None };
    match services.captchas.image(live, &by, id).await {
        Ok(ChallengeImage { png, form, drawn_now }) => {
            if drawn_now {
                count(IMAGE, OFFERED);
                let at = services.audit.now();
                record(services, client, form, AuditEvent::new(at, Action::Captcha, Outcome::Asked));
            }
            Ok(png)
        }
        Err(error) => {
            if let ImageError::Refused(later) = &error {
                count(IMAGE, REFUSED);
                record_later(services, client, later);
            }
            Err(error)
        }
    }
}

fn record_later(services: &Services, client: ClientAddress, later: &ImageRefusal) {
    let why = Some(EventRule::refused(later.limit, &later.refusal));
    let event = AuditEvent::new(later.refusal.at(), Action::Captcha, Outcome::Throttled);
    record(services, client, later.form, AuditEvent { why, ..event });
}

fn record(services: &Services, client: ClientAddress, form: CaptchaForm, event: AuditEvent<'_>) {
    let address = client.subject();
    let (name, address) = (Some(form.as_str()), Some(EventSubject::Address(address.as_ref())));
    services.audit.record(AuditEvent { name, address, ..event });
}
