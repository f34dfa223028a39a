//! Hits on custom limits (`[limits.custom]`), which other programs request. A subject is any text; it is
//! hashed before it goes anywhere, and is never logged.

use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::{
    AdmittedHit, Bucket, HitDecision, HitId, Limit, LimitMode, LogPeek, MemoryStore, Refusal, Rule,
    RuleAction, StoreError,
};

use crate::accounts::{ApiToken, ApiTokens, TokenBearer, TokenUse};
use crate::audit::{Action, Audit, AuditEvent, EventRule, EventSubject, Outcome};
use crate::db::DbError;
use crate::throttle::Limiter;

#[derive(Clone)]
pub struct CustomLimits {
    limiter: Limiter,
    audit: Audit,
    outages: metrics::Counter,
}

#[derive(Clone, Copy)]
pub struct CustomRequest<'a> {
    pub limit: &'a Limit,
    pub subject: &'a str,
    /// The program's address in the form that limits count.
    pub address: &'a [u8],
}

impl CustomLimits {
    pub fn new(limiter: Limiter, audit: Audit) -> Self {
        Self { limiter, audit, outages: metrics::counter!("gatehouse_store_errors_total") }
    }

    /// Takes a hit, or returns when one is possible. If the store is out there is none: the program must not
    /// go on, and a hit that may have been taken anyway is refunded.
    pub async fn reserve(&self, ask: CustomRequest<'_>) -> Result<HitDecision, StoreError> {
        let decision = self.failing(self.limiter.reserve_or_nothing(&[self.bucket(ask)], false).await)?;
        match &decision {
            HitDecision::Refused(refusal) => self.record(ask, refusal, false),
            HitDecision::Admitted(AdmittedHit { noted: Some(refusal), .. }) => {
                self.record(ask, refusal, true)
            }
            HitDecision::Admitted(_) => {}
        }
        Ok(decision)
    }

    /// The state of the subject's log. Takes nothing.
    pub async fn peek(&self, ask: CustomRequest<'_>) -> Result<LogPeek, StoreError> {
        self.failing(self.limiter.peek(self.bucket(ask)).await)
    }

    /// Refunds a hit. Harmless if it is not there: refunded before, out of its window, or another's.
    pub async fn refund(&self, ask: CustomRequest<'_>, hit: HitId) -> Result<(), StoreError> {
        self.failing(self.limiter.refund(&[self.bucket(ask)], hit).await)
    }

    fn bucket<'a>(&self, ask: CustomRequest<'a>) -> Bucket<'a> {
        self.limiter.bucket(ask.limit, ask.subject.as_bytes())
    }

    /// Records only refusals, including those of a limit in monitor mode: otherwise each hit would be a row,
    /// as many as programs like.
    fn record(&self, ask: CustomRequest<'_>, refusal: &Refusal, noted: bool) {
        let why = EventRule { noted, ..EventRule::refused(ask.limit.name(), refusal) };
        let event = AuditEvent::new(refusal.at(), Action::Custom, Outcome::Throttled);
        self.audit.record(AuditEvent {
            name: ask.limit.name().strip_prefix("custom."),
            why: Some(why),
            account: Some(EventSubject::Custom(ask.subject)),
            address: Some(EventSubject::Address(ask.address)),
            ..event
        });
    }

    fn failing<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            self.outages.increment(1);
            tracing::debug!(%error, "the window store failed; a custom limit admits nothing");
        }
        result
    }
}

// Checks a program's token, and bounds how many invalid ones an address may send.

/// Unknown tokens of one address, in this process. A program with a wrong token that retries at once reaches
/// it; 256 bits cannot be guessed at any rate.
const UNKNOWN_A_MINUTE: u32 = 20;
pub const NAME: &str = "token-address";

pub struct TokenGate {
    tokens: ApiTokens,
    unknown: gatehouse_limiter::Limiter<MemoryStore>,
    limit: Limit,
}

#[derive(Debug, PartialEq, Eq)]
pub enum TokenCheck {
    Good(Arc<TokenBearer>),
    /// Never created, revoked or expired.
    Unknown,
    /// Unknown, and its address has sent too many of those.
    TooMany(Refusal),
}

impl TokenGate {
    pub fn new(tokens: ApiTokens, unknown: gatehouse_limiter::Limiter<MemoryStore>) -> Self {
        let rule = Rule::sliding(UNKNOWN_A_MINUTE, Duration::from_secs(60), RuleAction::Block);
        let limit = Limit::new(NAME, vec![rule], LimitMode::Enforce).expect("a limit within bounds");
        Self { tokens, unknown, limit }
    }

    /// A valid token is accepted whatever else its address has sent.
    pub async fn admit(
        &self,
        token: &ApiToken,
        address: &[u8],
        used: impl FnOnce() -> TokenUse,
    ) -> Result<TokenCheck, DbError> {
        if let Some(bearer) = self.tokens.admit(token, used).await? {
            return Ok(TokenCheck::Good(bearer));
        }
        let bucket = self.unknown.bucket(&self.limit, address);
        Ok(match self.unknown.reserve(&[bucket], false).await {
            Ok(HitDecision::Refused(refusal)) => TokenCheck::TooMany(refusal),
            // The in-process store does not fail, and this limit has no holds.
            Ok(HitDecision::Admitted(_)) | Err(_) => TokenCheck::Unknown,
        })
    }

    /// Drops counts that no rule uses any more.
    pub fn sweep(&self) {
        self.unknown.store().sweep();
    }
}
