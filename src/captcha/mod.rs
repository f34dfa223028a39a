//! CAPTCHA challenges: issued without a write, redeemed once, right or wrong; solved by the letters in an image or
//! by a proof of work, whichever the client can.
//!
//! A challenge is a signed id (`id.rs`), from which its answer (`id.rs`, too) and its image (`image.rs`) are
//! derived with our keys. So a flood of refusals, each with a fresh challenge, costs no store anything; only
//! a redemption leaves a mark (`marks.rs`), and only for an id that we signed.
//!
//! An image is drawn when it is fetched, at a limited rate and in turn (`service.rs`, `slots.rs`). A proof of work
//! (`proof.rs`) is given to everyone who asks, and costs this server a derivation when it is answered, in turn, too.
//!
//! It does not stop a machine that was trained on the images, or that pays for the work; block rules do.

mod id;
mod image;
mod marks;
mod proof;
#[cfg(test)]
mod proof_tests;
mod service;
mod slots;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use strum::{FromRepr, IntoStaticStr};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::fair_queue::QueueOwner;
use crate::secret::{MasterKey, UniqueIds};
use id::{CaptchaAnswers, ChallengeIds, VerifiedId};
use image::ChallengeImages;
use proof::{ProofAnswer, Proofs};
use slots::Slot;

pub use crate::config::{CaptchaProvider as Provider, Difficulty};
pub use id::{ALPHABET, ImageRequester};
pub use image::{HEIGHT, ImageError, ImageRefusal, WIDTH, png};
pub use marks::{LocalMarks, MarksError, RedisMarks, SpendFuture, SpentMarks};
pub use proof::{Effort, ProofChallenge};
pub use service::{CaptchaService, ChallengeImage};

/// How long a mark outlives its challenge: instances check expiry by their own clocks, and one that is behind
/// would otherwise accept an id whose mark has expired.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// The form that a challenge is for; solved for one form, it is invalid on another.
///
/// The numbers are those in ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, FromRepr, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
pub enum CaptchaForm {
    Login = 0,
    Register = 1,
    SmsCode = 2,
    PasswordReset = 3,
    /// The current password, entered before it is changed.
    PasswordChange = 4,
    /// The login of another program.
    Attempt = 5,
    /// A code that another program has sent.
    Verification = 6,
}

impl CaptchaForm {
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The client that a challenge is bound to: the address in the form that limits count, and the browser's
/// cookie if the request that received the challenge had one. A first visit has no cookie yet, so a challenge
/// issued without one stays valid when the browser comes back with one.
#[derive(Debug, Clone, Copy)]
pub struct CaptchaClient<'a> {
    pub address: &'a [u8],
    pub network: &'a [u8],
    /// Of a client of another program.
    pub realm: Option<&'a [u8]>,
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

/// The result of an answer. Only `Solved` and `Wrong` used the challenge up just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[must_use]
pub enum RedeemResult {
    Solved,
    Wrong,
    Expired,
    /// Answered before, right or wrong; or there was no room to mark it as answered.
    Spent,
    /// Its address or network has answered so many that this one was given out too cheaply.
    Cheap,
    /// There was no slot to derive in, or its network has had its share of what all may have. It stays valid.
    Busy,
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
        self.into_str()
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
            proofs: Proofs::new(key),
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
        proof: Option<Effort>,
    ) -> Challenge {
        let nonce = *self.nonces.make().first_chunk().expect("16 bytes hold 12");
        let expires = self.clock.now().plus(ttl);
        let (id, body) = self.ids.sign(nonce, expires, form, difficulty, client);
        let proof = proof.map(|effort| Box::new(self.proofs.challenge(&id, &body, effort)));
        Challenge { id, expires_in: ttl, image_after: None, proof }
    }

    /// An address in the queue of those whose answers wait for a derivation.
    fn owner(&self, address: &[u8]) -> QueueOwner {
        QueueOwner::of(&self.ids.short("owner", address))
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
        turn: impl Future<Output = Result<Slot, ImageError>>,
    ) -> Result<Arc<[u8]>, ImageError> {
        self.pictures.of(body, self.answers.text(body), turn).await
    }

    /// Redeems the letters of an image once: the challenge is marked as spent before the verdict is known, so of any
    /// number of parallel redemptions at most one is `Solved`.
    ///
    /// In an outage of the shared marks this instance's own marks decide: with N instances one solved
    /// challenge is then valid at most N times, but never twice on one instance.
    pub async fn redeem_letters(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        id: &str,
        typed: &str,
    ) -> RedeemResult {
        let body = match self.answerable(form, client, id) {
            Ok(body) => body,
            Err(refused) => return refused,
        };
        if !self.mark_here(&body) || !self.mark_everywhere(&body).await {
            return RedeemResult::Spent;
        }
        if self.answers.accepts(&body, typed) { RedeemResult::Solved } else { RedeemResult::Wrong }
    }

    /// The same of a proof of work. What a look at it shows is checked first; then it waits for its `slot`, is marked,
    /// and its key is derived, once.
    pub async fn redeem_proof(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        text: &str,
        slot: impl AsyncFnOnce(Effort) -> Result<Slot, RedeemResult>,
        at_work: f64,
    ) -> Result<Effort, RedeemResult> {
        let answer = ProofAnswer::read(text).ok_or(RedeemResult::Malformed)?;
        let body = self.answerable(form, client, answer.id())?;
        let proof = self.proofs.signed(answer, &body).ok_or(RedeemResult::Malformed)?;
        let effort = proof.effort;
        // A wrong answer that shows itself costs nobody a turn.
        let slot = if proof.is_likely() { Some(slot(effort).await?) } else { None };
        // The other instances' marks are asked afterwards: no slot waits for them.
        if !self.mark_here(&body) {
            return Err(RedeemResult::Spent);
        }
        let right = match slot {
            Some(slot) => slot.derive(at_work, move || proof.is_right()).await,
            None => false,
        };
        match (self.mark_everywhere(&body).await, right) {
            (false, _) => Err(RedeemResult::Spent),
            (true, false) => Err(RedeemResult::Wrong),
            (true, true) => Ok(effort),
        }
    }

    /// The challenge with this id, if it may still be answered by this client for this form.
    fn answerable(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        id: &str,
    ) -> Result<VerifiedId, RedeemResult> {
        let body = self.ids.parse(id).ok_or(RedeemResult::Malformed)?;
        if body.expired(self.clock.now()) {
            return Err(RedeemResult::Expired);
        }
        if self.ids.belongs(&body, form, client) { Ok(body) } else { Err(RedeemResult::Foreign) }
    }

    /// Marks a challenge as answered in this process; false if it was.
    fn mark_here(&self, body: &VerifiedId) -> bool {
        self.local.spend_now(self.ids.mark(body), self.marked_for(body)).unwrap_or(false)
    }

    /// The same for all instances.
    async fn mark_everywhere(&self, body: &VerifiedId) -> bool {
        let Some(shared) = &self.shared else { return true };
        shared.spend(self.ids.mark(body), self.marked_for(body)).await.unwrap_or_else(|error| {
            // The link logs the outage once; with a line per answer, clients could fill the log.
            metrics::counter!("gatehouse_store_errors_total").increment(1);
            tracing::debug!(%error, "captcha: the shared record of used challenges failed; this instance uses its own");
            true
        })
    }

    fn marked_for(&self, body: &VerifiedId) -> Duration {
        body.expires().since(self.clock.now()) + CLOCK_SKEW
    }
}
