//! Where challenges are handed out: at a limited rate, counted in this process, because what an image
//! costs is this process's time, and because a refusal must not write to a store that others share.

use std::sync::Arc;
use std::time::Duration;

use super::{Captchas, Challenge, Client, Form, ImageError, Redeemed};
use crate::config::Live;
use crate::throttle::{Decision, Limiter, MemoryStore, Refusal};

/// Everyone, as the subject of a total.
const EVERYONE: &[u8] = b"everyone";

const LIMITS: [&str; 2] = ["captcha-address", "captcha-total"];

pub struct Desk {
    captchas: Captchas,
    issuing: Limiter<MemoryStore>,
}

/// No challenge for this client, or for anyone, until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Later {
    pub retry_after: Duration,
    /// By which limit, and how.
    pub limit: &'static str,
    pub refusal: Refusal,
}

impl Desk {
    pub const fn new(captchas: Captchas, issuing: Limiter<MemoryStore>) -> Self {
        Self { captchas, issuing }
    }

    pub async fn issue(&self, live: &Live, form: Form, client: &Client<'_>) -> Result<Challenge, Later> {
        let buckets = [
            self.issuing.bucket(&live.limits.captcha_address, client.address),
            self.issuing.bucket(&live.limits.captcha_total, EVERYONE),
        ];
        match self.issuing.reserve(&buckets, false).await {
            Ok(Decision::Refused(refusal)) => {
                Err(Later { retry_after: refusal.retry_after, limit: LIMITS[refusal.bucket], refusal })
            }
            // The in-process store does not fail, and nothing here takes holds.
            Ok(Decision::Admitted(_) | Decision::Held) | Err(_) => {
                Ok(self.captchas.issue(form, client, live.captcha.difficulty, live.captcha.ttl))
            }
        }
    }

    pub async fn image(&self, id: &str) -> Result<Arc<[u8]>, ImageError> {
        self.captchas.image(id).await
    }

    pub async fn redeem(&self, form: Form, client: &Client<'_>, id: &str, answer: &str) -> Redeemed {
        self.captchas.redeem(form, client, id, answer).await
    }

    /// Drops counts that no rule can see any more.
    pub fn sweep(&self) {
        self.issuing.store().sweep();
    }
}
