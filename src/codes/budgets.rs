//! The budgets that a message counts in: those of its number, the requester's address and network, its
//! dialling prefix, and everyone's. A store that has lost its windows is rebuilt before it admits anything.

use std::collections::HashMap;
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gatehouse_limiter::{
    AdmittedHit, Bucket, CompleteWindows, HitDecision, HitId, KeptHit, LimitMode, LogPeek, OwnedBucket,
    RebuildError, Refusal, Rule, RuleAction, RulePeek, StoreError, StoreState, WindowRecord, WindowStore,
};

use super::decide::{BudgetShare, Obstacle, SendPath};
use super::ledger::{Ledger, LedgerPosition, Unsent};
use super::message_limits::{MessageLimits, MessageLogs, ONCE};
use super::recipient::Channel;
use crate::clock::Micros;
use crate::config::LimitName;
use crate::db::DbError;
use crate::throttle::{HoldDecision, Limiter, WindowRebuild};

/// A store that loses its data more often than this during one request has another problem.
const MOST_TRIES: usize = 4;
/// How long a request waits for the windows to be rebuilt. The rebuild continues without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The requester's own budgets; a program states addresses, so its own is among them. A message that the gateway
/// refuses still counts there: otherwise a number that no gateway accepts could be requested without end, each time
/// with a call to the gateway and a row of the ledger.
const OF_THE_ASKER: [LimitName; 8] = [
    LimitName::MailAddress,
    LimitName::MailNetwork,
    LimitName::SmsAddress,
    LimitName::SmsNetwork,
    LimitName::ProgramAddress,
    LimitName::ProgramNetwork,
    LimitName::VerifyToken,
    LimitName::RelayToken,
];

/// An admission, and the state of the store in which it is valid.
#[derive(Debug, Clone, Copy)]
pub struct BudgetTicket {
    pub admitted: AdmittedHit,
    pub generation: HitId,
}

#[derive(Clone)]
pub struct MessageBudgets {
    channel: Channel,
    pub limiter: Limiter,
    ledger: Ledger,
    rebuild: Arc<WindowRebuild>,
    /// The generation in which the store was complete when last read, and for which limits: a refusal costs one call.
    known: Arc<Mutex<Option<(String, HitId)>>>,
    /// When messages and wrong codes were last counted under a key that was given up: nobody can tell any more at which
    /// numbers.
    given_up: Micros,
}

impl MessageBudgets {
    pub fn new(channel: Channel, limiter: Limiter, ledger: Ledger, given_up: Micros) -> Self {
        let rebuild = WindowRebuild::new(limiter.clone(), channel.into_str(), ledger.clock.clone());
        Self { channel, limiter, ledger, rebuild: Arc::new(rebuild), known: Arc::default(), given_up }
    }

    /// A hit in every log that the path counts in at once, or in none. It is only returned if the store's windows were
    /// complete before and after.
    pub async fn admit(
        &self,
        logs: &MessageLogs,
        path: SendPath,
        solved: bool,
    ) -> Result<ControlFlow<Unsent, BudgetTicket>, Option<StoreError>> {
        let buckets = logs.at_once(path);
        for _ in 0..MOST_TRIES {
            let generation = self.complete(&logs.limits).await?;
            let admitted = match self.limiter.reserve_or_nothing(&buckets, solved).await.map_err(Some)? {
                HitDecision::Admitted(admitted) => admitted,
                HitDecision::Refused(refusal) => {
                    let limit = buckets[refusal.bucket].limit.name();
                    // If another limit has a longer wait, the refusal names that one, not the log of repetitions.
                    let repeated = limit == ONCE || self.is_repeated(logs).await;
                    let met = || Unsent::Met(Obstacle::Limit(limit.to_owned(), refusal));
                    return Ok(Break(if repeated { Unsent::Repeated } else { met() }));
                }
            };
            if self.is_current(&logs.limits, generation).await {
                return Ok(Continue(BudgetTicket { admitted, generation }));
            }
            self.limiter.refund(&buckets, admitted.id).await.map_err(Some)?;
        }
        Err(None)
    }

    /// A slot for a guess, by windows that are complete.
    pub async fn hold(
        &self,
        limits: &Arc<MessageLimits>,
        buckets: &[Bucket<'_>],
        solved: bool,
        patience: Duration,
    ) -> Result<HoldDecision, Option<StoreError>> {
        for _ in 0..MOST_TRIES {
            let generation = self.complete(limits).await?;
            let complete = CompleteWindows { name: self.mark(), shape: &limits.shape(), generation };
            match self.limiter.hold_if_complete(complete, buckets, solved, patience).await {
                Err(StoreError::Incomplete) => self.forget(generation),
                held => return held.map_err(Some),
            }
        }
        Err(None)
    }

    /// The generation in which the store's windows are complete; they are rebuilt first if it lacks them.
    async fn complete(&self, limits: &Arc<MessageLimits>) -> Result<HitId, Option<StoreError>> {
        if self.given_up > limits.horizon(self.ledger.clock.now()) {
            return Err(None);
        }
        let shape = limits.shape();
        if let Some((of, generation)) = &*self.known()
            && *of == shape
        {
            return Ok(*generation);
        }
        let generation =
            match self.limiter.store().rebuild_generation(self.mark(), &shape).await.map_err(Some)? {
                Some(generation) => generation,
                None => self.rebuild_windows(limits).await.ok_or(None)?,
            };
        *self.known() = Some((shape, generation));
        Ok(generation)
    }

    pub async fn is_repeated(&self, logs: &MessageLogs) -> bool {
        let Some(once) = &logs.once else { return false };
        let peek = self.limiter.peek(once.borrow()).await;
        peek.is_ok_and(|peek| peek.rules.iter().any(|rule| rule.count > 0))
    }

    pub async fn free_name(&self, logs: &MessageLogs, hit: HitId) {
        if let Some(once) = &logs.once {
            self.refund(&[once.borrow()], hit).await;
        }
    }

    /// In a shortage: takes a hit in the logs of the first share of the path that has room if the number is proven, and in
    /// logs that nobody reads if not. Returns the share.
    pub async fn take(
        &self,
        logs: &MessageLogs,
        path: SendPath,
        proven: bool,
        hit: HitId,
    ) -> Result<BudgetShare, StoreError> {
        for &share in path.shares(logs.of_program) {
            let mut shared: Vec<_> = logs.shared(share).iter().map(OwnedBucket::borrow).collect();
            let may_be_spent = share == BudgetShare::SpentAsker && path != SendPath::Accounts;
            if shared.is_empty() || (may_be_spent && self.spent(&shared).await?.is_some()) {
                continue;
            }
            if !proven {
                // Each apart: two of them are of one limit.
                for (place, log) in shared.iter_mut().enumerate() {
                    let nobody = [b"nobody ", &hit.0[..], &[place as u8]].concat();
                    log.key = self.limiter.bucket(log.limit, &nobody).key;
                }
            }
            match self.limiter.reserve_by(&shared, hit).await? {
                HitDecision::Admitted(_) if proven => return Ok(share),
                HitDecision::Admitted(_) => break,
                HitDecision::Refused(_) => {}
            }
        }
        Ok(BudgetShare::Withheld)
    }

    /// The full rule of the part that is open to everybody, if one is.
    pub async fn spent_open_part(&self, logs: &MessageLogs) -> Result<Option<Obstacle>, StoreError> {
        let open: Vec<_> = logs.shared(BudgetShare::Open).iter().map(OwnedBucket::borrow).collect();
        self.spent(&open).await
    }

    /// The first of them that blocks. Checked before a hit is taken, for every number alike.
    async fn spent(&self, logs: &[Bucket<'_>]) -> Result<Option<Obstacle>, StoreError> {
        let enforced = logs.iter().filter(|log| log.limit.mode() == LimitMode::Enforce);
        let enforced: Vec<Bucket<'_>> = enforced.copied().collect();
        let states = self.limiter.peek_all(&enforced).await?;
        let blocks = |(bucket, (log, state)): (usize, (&Bucket<'_>, &LogPeek))| {
            let rules = log.limit.rules().iter().zip(&state.rules);
            let full = |(rule, now): &(&Rule, &RulePeek)| {
                rule.then == RuleAction::Block && !now.retry_after.is_zero()
            };
            let (rule, (_, now)) = rules.enumerate().find(|(_, it)| full(it))?;
            let (retry_after, frees_at) = (now.retry_after, state.at.plus(now.retry_after));
            let refusal = Refusal { bucket, rule, then: RuleAction::Block, retry_after, frees_at };
            Some(Obstacle::Limit(log.limit.name().to_owned(), refusal))
        };
        Ok(enforced.iter().zip(&states).enumerate().find_map(blocks))
    }

    /// The message was not sent. If that cannot be written it still counts, which errs towards refusing.
    pub async fn refund(&self, buckets: &[Bucket<'_>], id: HitId) {
        if let Err(error) = self.limiter.refund(buckets, id).await {
            tracing::warn!(%error, "a message that was not sent could not be refunded and still counts");
        }
    }

    /// The gateway refused the message: the number got nothing, but the request still counts for the
    /// requester.
    pub async fn refund_all_but_asker(&self, logs: &MessageLogs, id: HitId) {
        let mut buckets = logs.all(BudgetShare::Open);
        buckets.retain(|bucket| OF_THE_ASKER.iter().all(|name| name.as_str() != bucket.limit.name()));
        self.refund(&buckets, id).await;
    }

    /// Writes a number's own window back: the ledger refused what the store had admitted, so the store has
    /// lost hits unnoticed. The next message is then refused without a transaction.
    pub async fn restore_number(&self, number: Bucket<'_>, sent: &[KeptHit]) {
        let hits: Vec<_> = sent.iter().map(|kept| (number, *kept)).collect();
        if let Err(error) = self.limiter.store().restore(&hits).await {
            tracing::debug!(%error, "a number's window could not be rebuilt");
        }
    }

    /// Whether the store has kept its data since that generation. Asked after the message is in the
    /// ledger: what the store loses later is rebuilt with it.
    pub async fn is_current(&self, limits: &MessageLimits, generation: HitId) -> bool {
        let complete = CompleteWindows { name: self.mark(), shape: &limits.shape(), generation };
        let current = self.limiter.store().are_complete(complete).await.unwrap_or(false);
        if !current {
            self.forget(generation);
        }
        current
    }

    /// Notices a loss before the next request does, and that somebody still counts here.
    pub async fn forget_if_lost(&self, limits: &MessageLimits) {
        let found = self.limiter.store().rebuild_generation(self.mark(), &limits.shape()).await;
        if let Ok(found) = found {
            self.known().take_if(|(_, known)| Some(*known) != found);
        }
    }

    /// The name in the store for all windows of the channel's messages, used to mark them as complete.
    const fn mark(&self) -> &'static str {
        self.channel.into_str()
    }

    fn forget(&self, generation: HitId) {
        self.known().take_if(|(_, known)| *known == generation);
    }

    fn known(&self) -> MutexGuard<'_, Option<(String, HitId)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rebuilds the windows if the store lacks them; returns the generation in which they are complete. If a request
    /// runs out of patience, the rebuild continues without it.
    pub async fn rebuild_windows(&self, limits: &Arc<MessageLimits>) -> Option<HitId> {
        let (budgets, limits) = (self.clone(), Arc::clone(limits));
        let task = tokio::spawn(async move {
            let (limiter, ledger) = (&budgets.limiter, &budgets.ledger);
            let recorded = RecordedMessages { channel: budgets.channel, limiter, ledger, limits: &limits };
            let rebuilt = budgets.rebuild.run(&limits.shape(), &recorded).await;
            match &rebuilt {
                // The run that failed has logged it.
                Ok(_) | Err(LedgerRebuildError::FailedLately) => {}
                Err(error) => {
                    tracing::warn!(%error, "the windows of messages are incomplete; no message is sent until they are rebuilt");
                }
            }
            rebuilt.ok()
        });
        tokio::time::timeout(PATIENCE, task).await.ok()?.ok()?
    }
}

/// Rows read at once: some milliseconds of the database, and of a worker. Hits of one log in one page are written back
/// together.
const PAGE: u32 = 5_000;
/// How much longer than its window a hit is written back, for the difference between the clocks of database and store.
const MARGIN: Duration = Duration::from_secs(60);

type LedgerRebuildError = RebuildError<DbError>;

/// The ledger, for the limits of one moment.
struct RecordedMessages<'a> {
    channel: Channel,
    limiter: &'a Limiter,
    ledger: &'a Ledger,
    limits: &'a Arc<MessageLimits>,
}

impl WindowRecord for RecordedMessages<'_> {
    type Error = DbError;

    async fn now(&self) -> Result<Micros, DbError> {
        self.ledger.now().await
    }

    /// Every message and every wrong code that a window can still count, newest first.
    async fn restore(&self, found: StoreState) -> Result<usize, LedgerRebuildError> {
        let Self { ledger, limits, .. } = self;
        if found == StoreState::Marked {
            return Ok(0);
        }
        let now = ledger.now().await.map_err(LedgerRebuildError::Record)?;
        Ok(self.restore_guesses(limits.horizon(now)).await? + self.restore_messages(now).await?)
    }
}

impl RecordedMessages<'_> {
    async fn restore_guesses(&self, horizon: Micros) -> Result<usize, LedgerRebuildError> {
        let Self { channel, limiter, ledger, limits } = *self;
        let (mut position, mut guesses) = (LedgerPosition::NEWEST, 0);
        loop {
            let page = ledger
                .wrong_guesses(channel, horizon, &position, PAGE)
                .await
                .map_err(LedgerRebuildError::Record)?;
            let bucket = |key| Bucket { limit: &limits.guess, key };
            let hits: Vec<_> = page.iter().map(|guess| (bucket(guess.log), guess.kept)).collect();
            limiter.store().restore(&hits).await?;
            guesses += page.len();
            match page.into_iter().last() {
                Some(last) if hits.len() == PAGE as usize => position = last.position,
                _ => return Ok(guesses),
            }
        }
    }

    async fn restore_messages(&self, now: Micros) -> Result<usize, LedgerRebuildError> {
        let Self { channel, limiter, ledger, limits } = *self;
        let horizon = limits.horizon(now.minus(MARGIN));
        let (mut counted, mut messages) = (HashMap::new(), 0);
        let mut page = ledger
            .hits(channel, horizon, &LedgerPosition::NEWEST, PAGE)
            .await
            .map_err(LedgerRebuildError::Record)?;
        while let Some(last) = page.last() {
            messages += page.len();
            let forgiven = ledger.forgiven().await.map_err(LedgerRebuildError::Record)?;
            let mut hits = Vec::with_capacity(4 * page.len());
            for row in &page {
                let subjects = [row.phone, row.address, row.network];
                let program = row.purpose.program();
                let logs = MessageLogs::new(limiter, limits, subjects, row.once, &row.block, program);
                let kept = KeptHit { at: row.position.at, id: row.hit };
                let shared = logs.shared(row.share);
                let mut needed = logs.all(row.share);
                needed.retain(|Bucket { limit, key }| {
                    let counts = kept.at > now.minus(limit.longest_window() + MARGIN)
                        && forgiven.get(key).is_none_or(|up_to| kept.at > *up_to);
                    // No more than the store keeps: what comes later is older.
                    counts
                        && (shared.iter().all(|log| log.key != *key) || {
                            let newer = counted.entry(*key).or_insert(0);
                            *newer += 1;
                            *newer <= 2 * limit.capacity()
                        })
                });
                hits.extend(needed.into_iter().map(|bucket| (bucket.to_owned(), kept)));
            }
            let hits: Vec<_> = hits.iter().map(|(log, kept)| (log.borrow(), *kept)).collect();
            // The next page is read while this one is written.
            let (written, next) = tokio::join!(
                limiter.store().restore(&hits),
                ledger.hits(channel, horizon, &last.position, PAGE)
            );
            written?;
            page = next.map_err(LedgerRebuildError::Record)?;
        }
        Ok(messages)
    }
}
