//! Checks a program's token, and bounds how many invalid ones an address may send.

use std::sync::Arc;
use std::time::Duration;

use crate::db::DbError;
use crate::login::{ApiToken, ApiTokens, TokenBearer};
use crate::throttle::{HitDecision, Limit, LimitMode, Limiter, MemoryStore, Rule, RuleAction};

/// Unknown tokens of one address, in this process. A program with a wrong token that retries at once reaches
/// it; 256 bits cannot be guessed at any rate.
const UNKNOWN_A_MINUTE: u32 = 20;
pub const NAME: &str = "token-address";

pub struct TokenGate {
    tokens: ApiTokens,
    unknown: Limiter<MemoryStore>,
    limit: Limit,
}

/// The validity of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenCheck {
    Good(Arc<TokenBearer>),
    /// Never created, revoked or expired.
    Unknown,
    /// Unknown, and its address has sent too many of those.
    TooMany {
        limit: &'static str,
        retry_after: Duration,
    },
}

impl TokenGate {
    pub fn new(tokens: ApiTokens, unknown: Limiter<MemoryStore>) -> Self {
        let rule = Rule::sliding(UNKNOWN_A_MINUTE, Duration::from_secs(60), RuleAction::Block);
        let limit = Limit::new(NAME, vec![rule], LimitMode::Enforce).expect("a limit within bounds");
        Self { tokens, unknown, limit }
    }

    /// A valid token is accepted whatever else its address has sent.
    pub async fn admit(&self, token: &ApiToken, address: &[u8]) -> Result<TokenCheck, DbError> {
        if let Some(bearer) = self.tokens.admit(token).await? {
            return Ok(TokenCheck::Good(bearer));
        }
        let bucket = self.unknown.bucket(&self.limit, address);
        Ok(match self.unknown.reserve(&[bucket], false).await {
            Ok(HitDecision::Refused(refusal)) => {
                TokenCheck::TooMany { limit: NAME, retry_after: refusal.retry_after }
            }
            // The in-process store does not fail, and this limit has no holds.
            Ok(HitDecision::Admitted(_)) | Err(_) => TokenCheck::Unknown,
        })
    }

    /// Drops counts that no rule uses any more.
    pub fn sweep(&self) {
        self.unknown.store().sweep();
    }
}
