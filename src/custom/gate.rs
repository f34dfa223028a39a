//! Whether a token that a program shows is good. One that is known costs nothing; one that is not costs a
//! read of the database, of which an address has a few a minute: nobody finds a token by trying, and nobody
//! keeps the database busy with tokens that are none.

use std::sync::Arc;
use std::time::Duration;

use crate::db::DbError;
use crate::login::{ApiToken, Bearer, Look, Tokens};
use crate::throttle::{Decision, Limit, Limiter, MemoryStore, Mode, Rule, Then};

/// Tokens that turn out unknown, of one address, in this process. A program that was given the wrong one and
/// asks again at once meets it; 256 bits are not found at any rate.
const UNKNOWN_A_MINUTE: u32 = 20;
pub const NAME: &str = "token-address";

pub struct TokenGate {
    tokens: Tokens,
    unknown: Limiter<MemoryStore>,
    limit: Limit,
}

/// What a token that was shown is worth.
#[derive(Debug, PartialEq, Eq)]
pub enum Shown {
    Good(Arc<Bearer>),
    /// Never made, revoked or expired.
    Unknown,
    /// Its address has shown too many of those; the database was not asked.
    TooMany {
        limit: &'static str,
        retry_after: Duration,
    },
}

impl TokenGate {
    pub fn new(tokens: Tokens, unknown: Limiter<MemoryStore>) -> Self {
        let rule = Rule::sliding(UNKNOWN_A_MINUTE, Duration::from_secs(60), Then::Block);
        let limit = Limit::new(NAME, vec![rule], Mode::Enforce).expect("a limit within bounds");
        Self { tokens, unknown, limit }
    }

    pub async fn admit(&self, token: &ApiToken, address: &[u8]) -> Result<Shown, DbError> {
        match self.tokens.look(token) {
            Look::Good(bearer) => Ok(Shown::Good(bearer)),
            Look::Stale => self.ask(token).await,
            Look::Unknown => self.ask_within_bounds(token, address).await,
        }
    }

    async fn ask(&self, token: &ApiToken) -> Result<Shown, DbError> {
        Ok(self.tokens.find(token).await?.map_or(Shown::Unknown, Shown::Good))
    }

    /// The hit is taken first, so that however many come at once no more are asked about.
    async fn ask_within_bounds(&self, token: &ApiToken, address: &[u8]) -> Result<Shown, DbError> {
        let bucket = self.unknown.bucket(&self.limit, address);
        let hit = match self.unknown.reserve(&[bucket], false).await {
            Ok(Decision::Refused(refusal)) => {
                return Ok(Shown::TooMany { limit: NAME, retry_after: refusal.retry_after });
            }
            Ok(Decision::Admitted(admission)) => Some(admission.id),
            // The in-process store does not fail, and nothing here takes holds.
            Ok(Decision::Held) | Err(_) => None,
        };
        let shown = self.ask(token).await;
        if let (Some(hit), Ok(Shown::Good(_)) | Err(_)) = (hit, &shown) {
            let _ = self.unknown.refund(&[bucket], hit).await;
        }
        shown
    }

    /// Drops counts that no rule can see any more.
    pub fn sweep(&self) {
        self.unknown.store().sweep();
    }
}
