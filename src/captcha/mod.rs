//! CAPTCHA challenges: issued without a write, redeemed once, right or wrong; solved by the letters in an image or
//! by a proof of work, whichever the client can.
//!
//! A challenge is a signed id (`id.rs`), from which its answer (`answer.rs`) and its image (`draw.rs`) are
//! derived with our keys. So a flood of refusals, each with a fresh challenge, costs no store anything; only
//! a redemption leaves a mark (`spent.rs`), and only for an id that we signed.
//!
//! An image is drawn when it is fetched, at a limited rate and in turn (`service.rs`, `drawing_queue.rs`). A proof
//! of work (`proof.rs`) is derived ahead, and given out at a rate of its own under the same limits.
//!
//! It does not stop a machine that was trained on the images, or that pays for the work; block rules do.

mod answer;
mod draw;
mod drawing_queue;
mod glyphs;
mod id;
mod picture;
mod proof;
#[cfg(test)]
mod proof_tests;
mod redis_marks;
mod service;
mod spent;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::secret::{MasterKey, UniqueIds};

pub use crate::config::{CaptchaProvider as Provider, Difficulty};
pub use answer::ALPHABET;
use answer::CaptchaAnswers;
pub use draw::{HEIGHT, WIDTH, png};
use drawing_queue::DrawingPermit;
use id::{ChallengeIds, VerifiedId};
use picture::ChallengeImages;
pub use picture::{ImageError, ImageRefusal};
pub use proof::{Effort, ProofChallenge};
use proof::{Proofs, ReadyProof, SignedProof};
pub use redis_marks::RedisMarks;
pub use service::{CaptchaService, ChallengeImage, ImageRequester};
pub use spent::{LocalMarks, MarksError, SpendFuture, SpentMarks};

/// How long a mark outlives its challenge: instances check expiry by their own clocks, and one that is behind
/// would otherwise accept an id whose mark has expired.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The form that a challenge is for; solved for one form, it is invalid on another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CaptchaForm {
    Login,
    Register,
    /// The current password, entered before it is changed.
    PasswordChange,
    SmsCode,
    PasswordReset,
    /// The login of another program.
    Attempt,
    /// A code that another program has sent.
    Verification,
}

impl CaptchaForm {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Login => "login",
            Self::Register => "register",
            Self::PasswordChange => "password-change",
            Self::SmsCode => "sms-code",
            Self::PasswordReset => "password-reset",
            Self::Attempt => "attempt",
            Self::Verification => "verification",
        }
    }
}

/// The client that a challenge is bound to: the address in the form that limits count, and the browser's
/// cookie if the request that received the challenge had one. A first visit has no cookie yet, so a challenge
/// issued without one stays valid when the browser comes back with one.
#[derive(Debug, Clone, Copy)]
pub struct CaptchaClient<'a> {
    pub address: &'a [u8],
    pub cookie: Option<&'a [u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    pub id: String,
    pub expires_in: Duration,
    /// Until its image would be drawn; none if it would be now.
    pub image_after: Option<Duration>,
    pub proof: Option<Box<ProofChallenge>>,
}

/// What solves a challenge.
#[derive(Clone, Copy)]
pub enum CaptchaAnswer<'a> {
    /// The letters in the image of the challenge with this id.
    Letters { id: &'a str, typed: &'a str },
    /// The challenge of a proof of work with its solution, as the ALTCHA widget encodes them.
    Proof(&'a str),
}

impl CaptchaAnswer<'_> {
    /// Nobody has answered.
    pub const fn is_empty(self) -> bool {
        match self {
            Self::Letters { id, typed } => id.is_empty() && typed.is_empty(),
            Self::Proof(solution) => solution.is_empty(),
        }
    }
}

/// An answer as far as it can be read without its challenge.
enum GivenAnswer<'a> {
    Letters(&'a str),
    /// We signed its challenge.
    Proof(SignedProof),
}

/// The result of an answer. Only `Solved` and `Wrong` used the challenge up just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum RedeemResult {
    Solved,
    Wrong,
    Expired,
    /// Answered before, right or wrong; or there was no room to mark it as answered.
    Spent,
    /// Issued to another client or for another form. It stays valid there, so that seeing somebody's id is
    /// not enough to use up their challenge.
    Foreign,
    /// Not an id that we signed.
    Malformed,
}

impl RedeemResult {
    pub const fn is_solved(self) -> bool {
        matches!(self, Self::Solved)
    }

    /// The name in events and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Solved => "solved",
            Self::Wrong => "wrong",
            Self::Expired => "expired",
            Self::Spent => "spent",
            Self::Foreign => "foreign",
            Self::Malformed => "malformed",
        }
    }
}

/// Issues, draws and redeems challenges. Instances with the same master key accept each other's.
pub struct Captchas {
    ids: ChallengeIds,
    answers: CaptchaAnswers,
    pictures: ChallengeImages,
    proofs: Proofs,
    local: LocalMarks,
    shared: Option<Arc<dyn SpentMarks>>,
    clock: Clock,
    nonces: UniqueIds,
}

impl Captchas {
    pub fn new(key: &MasterKey, provider: Provider, clock: Clock, entropy: &Entropy) -> Self {
        Self {
            ids: ChallengeIds::new(key),
            answers: CaptchaAnswers::new(key, provider),
            pictures: ChallengeImages::new(key),
            proofs: Proofs::new(key, entropy),
            local: LocalMarks::new(clock.clone()),
            shared: None,
            clock,
            nonces: UniqueIds::new(entropy, "captcha.nonce"),
        }
    }

    /// Also uses marks that other instances see. Without them a challenge can be redeemed once on each
    /// instance, and once more after a restart within its lifetime, so every setup with more than one
    /// instance needs them.
    #[must_use]
    pub fn with_shared_marks(self, shared: Arc<dyn SpentMarks>) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// A fresh challenge, which the image and the proof of work share. Writes nothing anywhere.
    pub fn issue(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        difficulty: Difficulty,
        ttl: Duration,
        proof: Option<ReadyProof>,
    ) -> Challenge {
        let nonce = *self.nonces.make().first_chunk().expect("16 bytes hold 12");
        let expires = self.clock.now().plus(ttl);
        let id = self.ids.sign(nonce, expires, form, difficulty, client);
        let proof = proof.and_then(|proof| self.proofs.sign(proof, &id, expires)).map(Box::new);
        Challenge { id, expires_in: ttl, image_after: None, proof }
    }

    /// The challenge of an id, while it has an image.
    fn drawable(&self, id: &str) -> Option<VerifiedId> {
        self.ids.parse(id).filter(|body| !body.expired(self.clock.now()))
    }

    /// The challenge's image as PNG: the same bytes at any time and on any instance. `turn` is only awaited
    /// if it has to be drawn.
    async fn image(
        &self,
        body: &VerifiedId,
        turn: impl Future<Output = Result<DrawingPermit, ImageError>>,
    ) -> Result<Arc<[u8]>, ImageError> {
        self.pictures.of(body, self.answers.text(body), turn).await
    }

    /// Redeems an answer once: the challenge is marked as spent before the verdict is known, so of any number
    /// of parallel redemptions at most one is `Solved`.
    ///
    /// In an outage of the shared marks this instance's own marks decide: with N instances one solved
    /// challenge is then valid at most N times, but never twice on one instance.
    pub async fn redeem(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        answer: CaptchaAnswer<'_>,
    ) -> RedeemResult {
        let (id, given) = match answer {
            CaptchaAnswer::Letters { id, typed } => (id.to_owned(), GivenAnswer::Letters(typed)),
            CaptchaAnswer::Proof(solution) => match self.proofs.read(solution) {
                Some(signed) => (signed.id().to_owned(), GivenAnswer::Proof(signed)),
                None => return RedeemResult::Malformed,
            },
        };
        let Some(body) = self.ids.parse(&id) else { return RedeemResult::Malformed };
        let now = self.clock.now();
        if body.expired(now) {
            return RedeemResult::Expired;
        }
        if !self.ids.belongs(&body, form, client) {
            return RedeemResult::Foreign;
        }
        if !self.spend_first(&body, now).await {
            return RedeemResult::Spent;
        }
        let right = match &given {
            GivenAnswer::Letters(typed) => self.answers.accepts(&body, typed),
            GivenAnswer::Proof(signed) => self.proofs.accepts(signed),
        };
        if right { RedeemResult::Solved } else { RedeemResult::Wrong }
    }

    async fn spend_first(&self, body: &VerifiedId, now: Micros) -> bool {
        let mark = self.ids.mark(body);
        let ttl = body.expires().since(now) + CLOCK_SKEW;
        if !self.local.spend_now(mark, ttl).unwrap_or(false) {
            return false;
        }
        let Some(shared) = &self.shared else { return true };
        shared.spend(mark, ttl).await.unwrap_or_else(|error| {
            // The link logs the outage once; with a line per answer, clients could fill the log.
            metrics::counter!("gatehouse_store_errors_total").increment(1);
            tracing::debug!(%error, "captcha: the shared record of used challenges failed; this instance uses its own");
            true
        })
    }
}
