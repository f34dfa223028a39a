//! Decides on attempts while the window store is out or incomplete: everybody is challenged, and the record
//! of failures in the database decides, together with what this process has in flight. The instances see each
//! other's failures there, and each assumes that the others have as many in flight: together they verify at
//! most one more each than a single instance would.

use std::time::Duration;

use super::in_flight::{InFlightTicket, NotYet};
use super::path::{BeforePasswords, OWN, SignInPath};
use super::slot::{AttemptSlot, HeldInOutage, SlotHold, UnclaimedHold};
use super::{ASKED, AccountSubject, BUSY_RETRY, GuardAdmission, GuardRequest, LoginGuard, refused, stricter};
use crate::clock::Micros;
use crate::db::DbError;
use crate::throttle::window::{self, GatheredVerdict, WindowLog};
use crate::throttle::{Bucket, HitId, HoldDecision, Limit, MemoryStore, OwnedBucket, Refusal, RuleAction};

/// How long an attempt without a slot waits before it reads the record again, because another instance may
/// have freed one.
const READ_AGAIN: Duration = Duration::from_millis(200);

/// Between two checks whether the attempts in flight are in the store: the time of a few scripts.
const RETURNS_SOON: Duration = Duration::from_millis(10);

/// What the record decides on an attempt.
enum RecordDecision {
    Allowed(InFlightTicket, TakenHit),
    Refused(Refusal),
    /// The store decides again.
    StoreIsBack,
}

/// When it was taken, and its id.
struct TakenHit {
    at: Micros,
    id: HitId,
}

/// The failures of one log, newest first, and what is in flight there.
struct LogFailures<'a> {
    times: &'a [Micros],
    in_flight: u32,
}

impl LoginGuard {
    /// None: the store decides again.
    pub(super) async fn admit_in_outage(
        &self,
        limits: BeforePasswords<'_>,
        (subject, who): (AccountSubject, GuardRequest<'_>),
        path: SignInPath,
    ) -> Option<GuardAdmission> {
        let buckets = path.buckets(&self.limiter, limits, subject, who);
        let (own, others) = buckets.split_first().expect("the own log stands first");
        let elsewhere = match self.hold_elsewhere(others, who, path).await {
            Ok(hold) => hold,
            Err(admission) => return Some(admission),
        };
        // Nobody signs in without a challenge while the real windows cannot be read, but for known devices that
        // cannot be shown one.
        let known = path.device().is_some() && !who.means.challenges;
        let refused_by = if who.solved || known {
            let buckets: Vec<OwnedBucket> = buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
            let asking = self.ask_record(own.limit, &buckets, who.solved);
            let asking = tokio::time::timeout(who.means.patience, asking).await;
            match asking {
                Ok(Ok(RecordDecision::Allowed(ticket, TakenHit { at, id }))) => {
                    let limiter = self.limiter.clone();
                    let elsewhere = elsewhere.map(|hold| Box::new(hold.claim()));
                    let hold = SlotHold::Outage(HeldInOutage { id, at, buckets, elsewhere, limiter });
                    return Some(GuardAdmission::Held(AttemptSlot::new(
                        hold,
                        path,
                        ticket,
                        self.failures.clone(),
                    )));
                }
                Ok(Ok(RecordDecision::Refused(refusal))) => Ok(refusal),
                Ok(Ok(RecordDecision::StoreIsBack)) => Err(None),
                Ok(Err(_)) | Err(_) => Err(Some(GuardAdmission::Busy { retry_after: BUSY_RETRY })),
            }
        } else {
            Ok(ASKED)
        };
        if let Some(hold) = elsewhere {
            let _ = hold.refund().await;
        }
        match refused_by {
            Err(other) => other,
            Ok(refusal) if path.device().is_some() && refusal.then == RuleAction::Block && !who.alone => {
                let other =
                    Box::pin(self.admit_in_outage(limits, (subject, who), SignInPath::Stranger)).await?;
                Some(milder(refused(limits.login, path, refusal), other))
            }
            Ok(refusal) => Some(refused(limits.login, path, refusal)),
        }
    }

    /// The logs of address and network in this process, with half the limits.
    async fn hold_elsewhere(
        &self,
        others: &[Bucket<'_>],
        who: GuardRequest<'_>,
        path: SignInPath,
    ) -> Result<Option<UnclaimedHold<MemoryStore>>, GuardAdmission> {
        let others: Vec<OwnedBucket> = others
            .iter()
            .map(|bucket| OwnedBucket { limit: stricter(bucket.limit), key: bucket.key })
            .collect();
        let buckets: Vec<Bucket<'_>> = others.iter().map(OwnedBucket::borrow).collect();
        if buckets.is_empty() {
            return Ok(None);
        }
        match self.insurance.hold(&buckets, who.solved, who.means.patience).await {
            Ok(HoldDecision::Held(hold)) => Ok(Some(UnclaimedHold::new(hold))),
            Ok(HoldDecision::Refused(refusal)) => {
                Err(refused(who.guarded, path, Refusal { bucket: refusal.bucket + 1, ..refusal }))
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => Err(GuardAdmission::Busy { retry_after: BUSY_RETRY }),
        }
    }

    async fn ask_record(
        &self,
        limit: &Limit,
        buckets: &[OwnedBucket],
        solved: bool,
    ) -> Result<RecordDecision, DbError> {
        let id = self.limiter.fresh_id();
        // A failure that cannot be written would count nowhere.
        self.failures.writable()?;
        loop {
            let (ended, next_end) = self.in_flight.ended();
            let now = self.failures.now().await?;
            let horizon = limit.rules().iter().map(|rule| window::start(&rule.span, now)).min();
            let times =
                self.failures.newest(buckets[OWN].key, horizon.unwrap_or(now), limit.capacity()).await?;
            let instances = self.failures.live_instances(now).await?;
            let judge = |in_flight| {
                let mut gathered = GatheredVerdict::default();
                gathered.add(OWN, limit, &LogFailures { times: &times, in_flight }, now, solved);
                gathered
            };
            if let Some(refusal) = judge(0).refused() {
                return Ok(RecordDecision::Refused(refusal));
            }
            // Assumes that each other instance has as many in flight.
            let fits = |in_flight: u32| judge(in_flight.saturating_mul(instances)).held.is_none();
            match self.in_flight.begin_by_record((id, now, buckets), ended, fits) {
                Ok(ticket) => return Ok(RecordDecision::Allowed(ticket, TakenHit { at: now, id })),
                Err(NotYet::Returning) if self.in_flight.generation().is_some() => {
                    return Ok(RecordDecision::StoreIsBack);
                }
                Err(NotYet::Returning) => tokio::time::sleep(RETURNS_SOON).await,
                Err(NotYet::Stale) => tokio::task::yield_now().await,
                Err(NotYet::Full) => drop(tokio::time::timeout(READ_AGAIN, next_end).await),
            }
        }
    }
}

/// Of two refusals the one that ends sooner; anything else is returned unchanged.
fn milder(one: GuardAdmission, other: GuardAdmission) -> GuardAdmission {
    let told = |admission: &GuardAdmission| match admission {
        GuardAdmission::Refused { refusal, .. } => Some((refusal.then, refusal.retry_after)),
        GuardAdmission::Held(_) | GuardAdmission::Busy { .. } => None,
    };
    match (told(&one), told(&other)) {
        (Some(first), Some(second)) if first < second => one,
        _ => other,
    }
}

impl WindowLog for LogFailures<'_> {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.times.get((n as usize).checked_sub(1)?).copied()
    }

    fn newer_than(&self, start: Micros) -> u32 {
        self.times.iter().take_while(|&&at| at > start).count() as u32
    }

    fn holds(&self) -> u32 {
        self.in_flight
    }
}
