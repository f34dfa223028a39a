//! Issues and draws challenges. A challenge's id costs nothing; its image costs this process's time, so the
//! images drawn are counted, in this process.

mod share;

use std::sync::Arc;
use std::time::Duration;

use super::drawing_queue::{DrawingPermit, DrawingQueue};
use super::{CaptchaClient, CaptchaForm, Captchas, Challenge, ImageError, ImageRefusal, RedeemResult};
use crate::config::{LimitName, LiveSettings};
use crate::throttle::{Bucket, HitDecision, Limit, LimitMode, Limiter, MemoryStore, Refusal, RuleAction};

/// The subject of a total.
const EVERYONE: &[u8] = b"everyone";

/// The limits by the index of their buckets. A network's share of the total is part of the total.
const LIMITS: [LimitName; 4] =
    [LimitName::CaptchaAddress, LimitName::CaptchaNetwork, LimitName::CaptchaTotal, LimitName::CaptchaTotal];

pub struct ImageService {
    captchas: Captchas,
    drawing: Limiter<MemoryStore>,
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

impl ImageService {
    pub fn new(captchas: Captchas, drawing: Limiter<MemoryStore>) -> Self {
        Self { captchas, drawing, queue: DrawingQueue::for_this_machine() }
    }

    /// A challenge, if its image could be drawn now. Counts nothing, because ids are unlimited.
    pub async fn issue(
        &self,
        live: &LiveSettings,
        form: CaptchaForm,
        client: &CaptchaClient<'_>,
        network: &[u8],
    ) -> Result<Challenge, ImageRefusal> {
        let share = self.share(live).await;
        let buckets = self.buckets(live, ImageRequester { address: client.address, network }, &share);
        match self.full(&buckets).await {
            Some(refusal) => Err(later(form, refusal)),
            None => Ok(self.captchas.issue(form, client, live.captcha.difficulty, live.captcha.ttl)),
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
        id: &str,
        answer: &str,
    ) -> RedeemResult {
        self.captchas.redeem(form, client, id, answer).await
    }

    /// Drops counts that no rule uses any more.
    pub fn sweep(&self) {
        self.drawing.store().sweep();
    }

    /// A hit on every limit, and a turn to draw: networks with the fewest recent images go first.
    async fn turn(
        &self,
        live: &LiveSettings,
        by: ImageRequester<'_>,
        form: CaptchaForm,
    ) -> Result<DrawingPermit, ImageError> {
        let share = self.share(live).await;
        let buckets = self.buckets(live, by, &share);
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

    fn buckets<'a>(
        &self,
        live: &'a LiveSettings,
        by: ImageRequester<'_>,
        share: &'a Limit,
    ) -> [Bucket<'a>; 4] {
        let limits = &live.limits;
        [
            self.drawing.bucket(&limits.captcha_address, by.address),
            self.drawing.bucket(&limits.captcha_network, by.network),
            self.drawing.bucket(&limits.captcha_total, EVERYONE),
            self.drawing.bucket(share, by.network),
        ]
    }

    /// The part of the total that is open to one network; counted under the total's name, by its rules.
    async fn share(&self, live: &LiveSettings) -> Limit {
        let total = &live.limits.captcha_total;
        let spent = self.drawing.peek(self.drawing.bucket(total, EVERYONE)).await;
        share::of(total, &spent.map(|peek| peek.rules).unwrap_or_default())
    }

    /// How many images a network had recently.
    async fn had(&self, share: Bucket<'_>) -> u32 {
        let rules = self.drawing.peek(share).await.map(|peek| peek.rules).unwrap_or_default();
        rules.iter().map(|rule| rule.count).max().unwrap_or(0)
    }

    /// The refusal that an image would get now, the longest of several.
    async fn full(&self, buckets: &[Bucket<'_>]) -> Option<Refusal> {
        let mut longest: Option<Refusal> = None;
        for (index, bucket) in buckets.iter().enumerate() {
            if bucket.limit.mode() == LimitMode::Monitor {
                continue;
            }
            let peek = self.drawing.peek(*bucket).await.ok()?;
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
}

const fn later(form: CaptchaForm, refusal: Refusal) -> ImageRefusal {
    ImageRefusal { retry_after: refusal.retry_after, form, limit: LIMITS[refusal.bucket].as_str(), refusal }
}

#[cfg(test)]
mod tests;
