//! The budgets that a message is counted against: its number's, its asker's address' and network's, its
//! dialling prefix', everyone's. A store that has lost its windows gets them back before anything is admitted by it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::codes::CodeRequest;
use super::ledger::Ledger;
use super::once;
use super::rebuild::{LedgerRebuild, LedgerRebuildError};
use super::share::BudgetShare;
use super::watched::{MessageKeys, SmsLimits};
use crate::clock::Micros;
use crate::config::LimitName;
use crate::throttle::{
    self, AnyStore, Bucket, HitDecision, HitId, KeptHit, LimitMode, Limiter, LogPeek, Refusal, RuleAction,
    StoreError,
};

/// A store that loses its data more often than this in one question has more wrong with it.
const MOST_TRIES: usize = 4;
/// How long a request waits for the windows to be written back. That goes on without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The budgets of whoever asks. What the gateway refuses counts there still: otherwise a number that no
/// gateway takes could be asked for without end, each time with a call to it and a row of the ledger.
const OF_THE_ASKER: [LimitName; 2] = [LimitName::SmsAddress, LimitName::SmsNetwork];

/// The subject of the budget that everyone shares.
pub const EVERYONE: &[u8] = b"everyone";

/// What the store calls all windows of messages, where it says that they are whole.
pub const MARK: &str = "sms";

/// What the budgets say of a message.
pub enum BudgetAdmission {
    /// It stands in every log now.
    In(BudgetTicket),
    /// By which limit, and how.
    Refused(String, Refusal),
    /// The same request came before, and stands in the logs.
    Repeated,
    /// The store is out, or has yet to get its windows back.
    Out(Option<StoreError>),
}

/// An admission, and the state of the store that it holds for.
#[derive(Debug, Clone, Copy)]
pub struct BudgetTicket {
    pub hit: HitId,
    /// From when it counts.
    pub at: Micros,
    /// What a watching limit would have refused.
    pub noted: Option<Refusal>,
    generation: HitId,
}

/// The budgets over their store. Clones share it.
#[derive(Clone)]
pub struct SmsBudgets {
    limiter: Limiter<AnyStore>,
    rebuild: Arc<LedgerRebuild>,
    /// The writing back that the store was whole by when last looked at, and for which limits.
    known_generation: Arc<Mutex<Option<(String, HitId)>>>,
}

impl SmsBudgets {
    pub fn new(limiter: Limiter<AnyStore>, ledger: Ledger) -> Self {
        let rebuild = Arc::new(LedgerRebuild::new(limiter.clone(), ledger));
        Self { limiter, rebuild, known_generation: Arc::default() }
    }

    pub const fn limiter(&self) -> &Limiter<AnyStore> {
        &self.limiter
    }

    pub fn keys(&self, watched: &SmsLimits, ask: &CodeRequest<'_>, once: Option<&[&[u8]]>) -> MessageKeys {
        let [phone, address, network, ..] = watched.whole();
        let key = |limit, subject: &[u8]| self.limiter.bucket(limit, subject).key;
        let of =
            [key(phone, ask.phone.as_str().as_bytes()), key(address, ask.address), key(network, ask.network)];
        let once = once.map(|parts| once::key(&self.limiter, watched.once(), parts));
        MessageKeys::new(&self.limiter, watched, of, once, ask.phone.block())
    }

    /// A hit in every log, or in none. It is given by a store whose windows are whole, and were when it
    /// was asked.
    pub async fn admit(
        &self,
        watched: &Arc<SmsLimits>,
        keys: &MessageKeys,
        share: BudgetShare,
        solved: bool,
    ) -> BudgetAdmission {
        let (buckets, shape) = (watched.buckets(keys, share), watched.shape());
        for _ in 0..MOST_TRIES {
            let before = self.known(&shape);
            let admission = match self.limiter.reserve_or_nothing(&buckets, solved).await {
                Ok(HitDecision::Admitted(admission)) => admission,
                Ok(HitDecision::Refused(refusal)) => {
                    let limit = buckets[refusal.bucket].limit.name();
                    return self.refused(watched, keys, limit, refusal).await;
                }
                // No log here knows holds.
                Ok(HitDecision::Held) => return BudgetAdmission::Out(None),
                Err(error) => return BudgetAdmission::Out(Some(error)),
            };
            let throttle::AdmittedHit { id, at, noted, .. } = admission;
            let now = self.limiter.rebuild_generation(MARK, &shape).await;
            if let (Some(whole_by), Ok(Some(now))) = (before, &now)
                && whole_by == *now
            {
                return BudgetAdmission::In(BudgetTicket { hit: id, at, noted, generation: whole_by });
            }
            // It was admitted by windows with holes in them, or nobody can say that it was not.
            let refunded = self.limiter.refund(&buckets, id).await;
            match (now, refunded) {
                (Err(error), _) | (Ok(_), Err(error)) => return BudgetAdmission::Out(Some(error)),
                (Ok(Some(now)), Ok(())) => self.learn(&shape, now),
                (Ok(None), Ok(())) if self.rebuild_windows(watched).await => {}
                (Ok(None), Ok(())) => return BudgetAdmission::Out(None),
            }
        }
        BudgetAdmission::Out(None)
    }

    async fn refused(
        &self,
        watched: &SmsLimits,
        keys: &MessageKeys,
        limit: &str,
        refusal: Refusal,
    ) -> BudgetAdmission {
        // The log of repetitions is not the one that is named, where another says a longer wait.
        if limit == once::NAME || self.is_repeated(watched, keys).await {
            return BudgetAdmission::Repeated;
        }
        BudgetAdmission::Refused(limit.to_owned(), refusal)
    }

    /// Whether a request of that name stands in the store.
    pub async fn is_repeated(&self, watched: &SmsLimits, keys: &MessageKeys) -> bool {
        let Some(key) = keys.once else { return false };
        let peek = self.limiter.peek(Bucket { limit: watched.once(), key }).await;
        peek.is_ok_and(|peek| peek.rules.iter().any(|rule| rule.count > 0))
    }

    /// In a shortage: a hit in the logs of the first share that has room, for a number of an account; for any
    /// other one in logs that nobody reads. Which share that was; none is left where it is withheld.
    pub async fn take(
        &self,
        shares: &[BudgetShare],
        watched: &SmsLimits,
        keys: &MessageKeys,
        owned: bool,
        hit: HitId,
    ) -> Result<BudgetShare, StoreError> {
        for &share in shares {
            let mut logs = watched.shared(keys, share);
            if logs.is_empty() || (share == BudgetShare::SpentAsker && self.is_spent(&logs).await?) {
                continue;
            }
            if !owned {
                let nobody = [b"nobody ", &hit.0[..]].concat();
                logs.iter_mut().for_each(|log| log.key = self.limiter.bucket(log.limit, &nobody).key);
            }
            match self.limiter.reserve_by(&logs, hit).await? {
                HitDecision::Admitted(_) if owned => return Ok(share),
                HitDecision::Admitted(_) => break,
                HitDecision::Refused(_) | HitDecision::Held => {}
            }
        }
        Ok(BudgetShare::Withheld)
    }

    /// Whether one of them blocks. Asked before it is taken from, so that it is found out for every number alike.
    async fn is_spent(&self, logs: &[Bucket<'_>]) -> Result<bool, StoreError> {
        for log in logs.iter().filter(|log| log.limit.mode() == LimitMode::Enforce) {
            let peek = self.limiter.peek(*log).await?;
            let mut rules = log.limit.rules().iter().zip(&peek.rules);
            if rules.any(|(rule, now)| rule.then == RuleAction::Block && !now.retry_after.is_zero()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The message came to nothing. Where that cannot be written it counts, which errs towards refusing.
    pub async fn refund(&self, buckets: &[Bucket<'_>], id: HitId) {
        if let Err(error) = self.limiter.refund(buckets, id).await {
            tracing::warn!(%error, "a message that was not sent could not be refunded and still counts");
        }
    }

    /// The gateway would not have it: whom it was for got nothing, but whoever asked has asked.
    pub async fn refund_all_but_asker(&self, watched: &SmsLimits, keys: &MessageKeys, id: HitId) {
        let mut buckets = watched.buckets(keys, BudgetShare::Open);
        buckets.retain(|bucket| OF_THE_ASKER.iter().all(|name| name.as_str() != bucket.limit.name()));
        self.refund(&buckets, id).await;
    }

    /// What everybody has spent of the budget of all.
    pub async fn spent(&self, watched: &SmsLimits) -> Result<LogPeek, StoreError> {
        self.limiter.peek(self.limiter.bucket(&watched.total, EVERYONE)).await
    }

    /// Writes a number's own window back: the ledger refused what the store had admitted, so that the store
    /// has lost some of it without a trace. The next is refused without a transaction.
    pub async fn restore_number(&self, watched: &SmsLimits, keys: &MessageKeys, sent: &[KeptHit]) {
        let bucket = Bucket { limit: &watched.phone, key: keys.phone };
        let hits: Vec<_> = sent.iter().map(|kept| (bucket, *kept)).collect();
        if let Err(error) = self.limiter.restore(&hits).await {
            tracing::debug!(%error, "a number's window could not be rebuilt");
        }
    }

    /// Whether the store has not lost its data since the ticket was given. Asked once the message stands in
    /// the ledger: whatever is lost later is written back with it.
    pub async fn stands(&self, watched: &SmsLimits, ticket: &BudgetTicket) -> bool {
        matches!(self.limiter.rebuild_generation(MARK, &watched.shape()).await, Ok(Some(by)) if by == ticket.generation)
    }

    /// Writes the windows back where the store lacks them; whether it is whole now. A request that has
    /// no more patience leaves it to go on alone.
    pub async fn rebuild_windows(&self, watched: &Arc<SmsLimits>) -> bool {
        let (budgets, watched) = (self.clone(), Arc::clone(watched));
        let task = tokio::spawn(async move {
            match budgets.rebuild.run(&watched).await {
                Ok(by) => {
                    budgets.learn(&watched.shape(), by);
                    true
                }
                // Said once, by the run that failed.
                Err(LedgerRebuildError::FailedLately) => false,
                Err(error) => {
                    tracing::warn!(%error, "the windows of messages are incomplete; no message is sent until they are rebuilt");
                    false
                }
            }
        });
        matches!(tokio::time::timeout(PATIENCE, task).await, Ok(Ok(true)))
    }

    fn known(&self, shape: &str) -> Option<HitId> {
        let known = self.known_generation.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(of, _)| of == shape).map(|(_, by)| *by)
    }

    fn learn(&self, shape: &str, by: HitId) {
        *self.known_generation.lock().unwrap_or_else(PoisonError::into_inner) = Some((shape.to_owned(), by));
    }
}
