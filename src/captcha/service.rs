//! Issues and draws challenges. A challenge's id costs nothing; its image and its proof of work cost this process's
//! time, so the images drawn and the proofs given out are counted, in this process: under the same limits, and each
//! for themselves, so that neither uses up the other.

mod share;

use std::sync::Arc;
use std::time::Duration;

use super::drawing_queue::{DrawingPermit, DrawingQueue};
use super::{
    CaptchaAnswer, CaptchaClient, CaptchaForm, Captchas, Challenge, Effort, ImageError, ImageRefusal,
    ReadyProof, RedeemResult,
};
use crate::config::{CaptchaTunables, LimitName, LiveSettings};
use crate::throttle::{Bucket, HitDecision, Limit, LimitMode, Limiter, MemoryStore, Refusal, RuleAction};

/// The subject of a total.
const EVERYONE: &[u8] = b"everyone";

/// The limits by the index of their buckets. A network's share of the total is part of the total.
const LIMITS: [LimitName; 4] =
    [LimitName::CaptchaAddress, LimitName::CaptchaNetwork, LimitName::CaptchaTotal, LimitName::CaptchaTotal];

pub struct CaptchaService {
    captchas: Captchas,
    drawing: Limiter<MemoryStore>,
    proving: Limiter<MemoryStore>,
    queue: DrawingQueue,
}

/// The requester of an image, as the limits count it.
#[derive(Debug, Clone, Copy)]
pub struct ImageRequester<'a> {
    pub address: &'a [u8],
    pub network: &'a [u8],
}

/// The image of a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChallengeImage {
    pub png: Arc<[u8]>,
    pub form: CaptchaForm,
    /// It was not in the cache.
    pub drawn_now: bool,
}

impl CaptchaService {
    pub fn new(captchas: Captchas, drawing: Limiter<MemoryStore>, proving: Limiter<MemoryStore>) -> Self {
        Self { captchas, drawing, proving, queue: DrawingQueue::for_this_machine() }
    }

    /// A challenge, if its image could be drawn now or a proof of work is ready. Counts only the latter, because ids
    /// are unlimited. `effort` is awaited only if a proof may be given out.
    pub async fn issue(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        network: &[u8],
        effort: impl AsyncFnOnce() -> Effort,
    ) -> Result<Challenge, ImageRefusal> {
        let by = ImageRequester { address: client.address, network };
        let share = share(&self.drawing, live).await;
        let refused = full(&self.drawing, &buckets(&self.drawing, live, by, &share)).await;
        let proof = self.proof(live, by, effort).await;
        match (refused, &proof) {
            (Some(refusal), None) => Err(later(form, refusal)),
            (refused, _) => {
                let image_after = refused.map(|refusal| refusal.retry_after);
                let CaptchaTunables { difficulty, ttl, .. } = live.captcha;
                Ok(Challenge { image_after, ..self.captchas.issue(form, client, difficulty, ttl, proof) })
            }
        }
    }

    /// Makes one derivation for a proof of work ahead; false if enough are ready.
    pub async fn prepare_proof(&self) -> bool {
        self.captchas.proofs.prepare().await
    }

    /// Returns when a derivation has been used since the last call, or is.
    pub async fn proof_taken(&self) {
        self.captchas.proofs.ready().taken().await;
    }

    /// None if the client or everybody has had too many recently, or none is ready.
    async fn proof(
        &self,
        live: &LiveSettings,
        by: ImageRequester<'_>,
        effort: impl AsyncFnOnce() -> Effort,
    ) -> Option<ReadyProof> {
        let ready = self.captchas.proofs.ready();
        if !live.captcha.proof_of_work || ready.is_empty() {
            return None;
        }
        let share = share(&self.proving, live).await;
        let buckets = buckets(&self.proving, live, by, &share);
        match self.proving.reserve(&buckets, false).await {
            Ok(HitDecision::Admitted(admission)) => {
                // Boxed, because few have got this far, and it would make the future of every sign-in larger.
                let proof = ready.take(Box::pin(effort()).await);
                if proof.is_none() {
                    // Who asked in a rush pays nothing for what they did not get. The in-process store does not fail.
                    let _ = self.proving.refund(&buckets, admission.id).await;
                }
                proof
            }
            // The in-process store does not fail.
            Ok(HitDecision::Refused(_)) | Err(_) => None,
        }
    }

    /// The image of a challenge. If it has to be drawn, that counts and waits for its turn.
    pub async fn image(
        &self,
        live: &LiveSettings,
        by: ImageRequester<'_>,
        id: &str,
    ) -> Result<ChallengeImage, ImageError> {
        let body = self.captchas.drawable(id).ok_or(ImageError::Unknown)?;
        let form = body.form();
        let mut drawn_now = false;
        let turn = async {
            drawn_now = true;
            self.turn(live, by, form).await
        };
        let png = self.captchas.image(&body, turn).await?;
        Ok(ChallengeImage { png, form, drawn_now })
    }

    pub async fn redeem(
        &self,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        answer: CaptchaAnswer<'_>,
    ) -> RedeemResult {
        self.captchas.redeem(form, client, answer).await
    }

    /// Drops counts that no rule uses any more.
    pub fn sweep(&self) {
        self.drawing.store().sweep();
        self.proving.store().sweep();
    }

    /// A hit on every limit, and a turn to draw: networks with the fewest recent images go first.
    async fn turn(
        &self,
        live: &LiveSettings,
        by: ImageRequester<'_>,
        form: CaptchaForm,
    ) -> Result<DrawingPermit, ImageError> {
        let share = share(&self.drawing, live).await;
        let buckets = buckets(&self.drawing, live, by, &share);
        let had = self.had(self.drawing.bucket(&share, by.network)).await;
        match self.drawing.reserve(&buckets, false).await {
            Ok(HitDecision::Refused(refusal)) => Err(ImageError::Refused(later(form, refusal))),
            Ok(HitDecision::Admitted(admission)) => match self.queue.take(had).await {
                Some(turn) => Ok(turn),
                None => {
                    // The in-process store does not fail.
                    let _ = self.drawing.refund(&buckets, admission.id).await;
                    Err(ImageError::Busy)
                }
            },
            // These limits have no holds.
            Err(_) => Err(ImageError::Busy),
        }
    }

    /// How many images a network had recently.
    async fn had(&self, share: Bucket<'_>) -> u32 {
        let rules = self.drawing.peek(share).await.map(|peek| peek.rules).unwrap_or_default();
        rules.iter().map(|rule| rule.count).max().unwrap_or(0)
    }
}

fn buckets<'a>(
    counted: &Limiter<MemoryStore>,
    live: &'a LiveSettings,
    by: ImageRequester<'_>,
    share: &'a Limit,
) -> [Bucket<'a>; 4] {
    let limits = &live.limits;
    [
        counted.bucket(&limits.captcha_address, by.address),
        counted.bucket(&limits.captcha_network, by.network),
        counted.bucket(&limits.captcha_total, EVERYONE),
        counted.bucket(share, by.network),
    ]
}

/// The part of the total that is open to one network; counted under the total's name, by its rules.
async fn share(counted: &Limiter<MemoryStore>, live: &LiveSettings) -> Limit {
    let total = &live.limits.captcha_total;
    let spent = counted.peek(counted.bucket(total, EVERYONE)).await;
    share::of(total, &spent.map(|peek| peek.rules).unwrap_or_default())
}

/// The refusal that one would get now, the longest of several.
async fn full(counted: &Limiter<MemoryStore>, buckets: &[Bucket<'_>]) -> Option<Refusal> {
    let mut longest: Option<Refusal> = None;
    for (index, bucket) in buckets.iter().enumerate() {
        if bucket.limit.mode() == LimitMode::Monitor {
            continue;
        }
        let peek = counted.peek(*bucket).await.ok()?;
        for (rule, standing) in peek.rules.iter().enumerate() {
            let retry_after = standing.retry_after;
            if retry_after > longest.map_or(Duration::ZERO, |refusal| refusal.retry_after) {
                let frees_at = peek.at.plus(retry_after);
                longest =
                    Some(Refusal { bucket: index, rule, then: RuleAction::Block, retry_after, frees_at });
            }
        }
    }
    longest
}

const fn later(form: CaptchaForm, refusal: Refusal) -> ImageRefusal {
    ImageRefusal { retry_after: refusal.retry_after, form, limit: LIMITS[refusal.bucket].as_str(), refusal }
}

#[cfg(test)]
mod solver_tests;
#[cfg(test)]
mod tests;
