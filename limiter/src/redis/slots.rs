//! Decisions about several logs in a cluster, where a script has the logs of one slot only: log by log.
//!
//! All logs are looked at first, so that a log that is full refuses without a write. Then a hold is taken in one
//! after the other, in the order in which the caller named them: its own subject first, what everybody shares
//! last. The first refusal refunds those that were taken. In between, other attempts see a hold that may go away;
//! a refund that is lost is an outage, after which the limiter refunds. So this can only err towards refusing.

use std::cmp::Reverse;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};

use super::{LOOK, RedisStore, logged};
use crate::limit::RuleAction;
use crate::store::*;

impl RedisStore {
    /// Whether the windows are complete is asked after the hit was written, so that what is lost before is noticed.
    pub(super) async fn reserve_in_cluster(
        &self,
        ask: &ReserveRequest<'_>,
    ) -> Result<StoreVerdict, StoreError> {
        let verdict = match logged(ask.buckets).nth(1) {
            Some(_) => self.reserve_by_slot(ask).await?,
            None => self.decide(ask, None, ask.kind as u8).await?,
        };
        if let StoreVerdict::Admitted { .. } = verdict
            && let Err(error) = self.demand(ask.complete).await
        {
            let taken: Vec<_> = logged(ask.buckets).map(|(_, bucket)| *bucket).collect();
            let refunds = vec![HoldOutcome::Refund; taken.len()];
            self.settle_by_slot(&taken, ask.id, &refunds, false).await.map_err(written_before)?;
            return Err(error);
        }
        Ok(verdict)
    }

    /// One decision for every log, not in one step; see the top of this file. `at` is the time of the first
    /// log's server.
    async fn reserve_by_slot(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        let looks = logged(ask.buckets).map(|(index, _)| self.decide(ask, Some(index), LOOK));
        if let Some(verdict) = strictest(try_join_all(looks).await?) {
            return Ok(verdict);
        }
        let (mut taken, mut first) = (Vec::with_capacity(ask.buckets.len()), None);
        let (mut tightest, mut would): (Option<LimitRoom>, Option<Refusal>) = (None, None);
        for (index, bucket) in logged(ask.buckets) {
            taken.push(*bucket);
            match self.decide(ask, Some(index), ReserveKind::Hold as u8).await {
                Ok(StoreVerdict::Admitted { at, room, noted }) => {
                    first.get_or_insert(at);
                    tightest = [tightest, room].into_iter().flatten().min_by_key(|room| room.remaining);
                    would = [would, noted]
                        .into_iter()
                        .flatten()
                        .min_by_key(|refusal| Reverse(strictness(refusal)));
                }
                other => {
                    // What may have been taken although no answer came, too.
                    let refunds = vec![HoldOutcome::Refund; taken.len()];
                    let refunded = self.settle_by_slot(&taken, ask.id, &refunds, false).await;
                    // What could not be taken back is taken back later, by whoever asked. Nor may it be asked again with
                    // the same id, which that would take back.
                    return refunded.map_err(written_before).and(other);
                }
            }
        }
        if ask.kind == ReserveKind::Hit {
            let keeps = vec![HoldOutcome::Keep; taken.len()];
            let kept = self.settle_by_slot(&taken, ask.id, &keeps, false).await.map_err(written_before)?;
            first = Some(kept.at);
        }
        let at = first.unwrap_or_else(|| self.now());
        Ok(StoreVerdict::Admitted { at, room: tightest, noted: would })
    }

    /// Settles all logs at once, each in a step of its own, however the others end. The time is that of the
    /// first log's server.
    pub(super) async fn settle_by_slot(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let each = buckets.iter().zip(outcomes).map(async |(bucket, outcome)| {
            self.settle_at_once(std::slice::from_ref(bucket), id, std::slice::from_ref(outcome), peek).await
        });
        let settled: Result<Vec<Settlement>, StoreError> = join_all(each).await.into_iter().collect();
        let settled = settled?;
        let at = settled.first().map_or_else(|| self.now(), |first| first.at);
        let states: Option<Vec<Vec<LogPeek>>> = settled.into_iter().map(|each| each.states).collect();
        Ok(Settlement { at, states: states.map(|states| states.concat()) })
    }

    /// Peeks at all logs at once, each in a step of its own.
    pub(super) async fn peek_by_slot(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        let each = buckets.iter().map(|bucket| self.peek_at_once(std::slice::from_ref(bucket)));
        try_join_all(each).await.map(|states| states.concat())
    }
}

/// A later step that was not sent does not mean that nothing was written.
fn written_before(error: StoreError) -> StoreError {
    if error.wrote_nothing() { StoreError::TimedOut } else { error }
}

/// The refusal that decides, or the first log that holds in flight fill; none if every log admits.
fn strictest(looks: Vec<StoreVerdict>) -> Option<StoreVerdict> {
    let refused = looks.iter().filter_map(|look| match look {
        StoreVerdict::Refused { refusal } => Some(*refusal),
        StoreVerdict::Admitted { .. } | StoreVerdict::Held { .. } => None,
    });
    // The first of equals, as in one script.
    match refused.min_by_key(|refusal| Reverse(strictness(refusal))) {
        Some(refusal) => Some(StoreVerdict::Refused { refusal }),
        None => looks.into_iter().find(|look| matches!(look, StoreVerdict::Held { .. })),
    }
}

/// A rule that blocks is stricter than one that asks for a challenge; then the longer wait.
fn strictness(refusal: &Refusal) -> (bool, Duration) {
    (refusal.then == RuleAction::Block, refusal.retry_after)
}
