//! Decides on attempts while the window store is out or incomplete: everybody is challenged, and the record
//! of failures in the database decides, together with what this process has in flight. The instances see each
//! other's failures there, and each assumes that the others have as many in flight: together they verify at
//! most one more each than a single instance would.
//!
//! When a key was given up (`gatehouse key replace`), what was counted under it is lost: everybody is refused until the
//! longest window has passed.

use std::time::Duration;

use gatehouse_limiter::window::{GatheredVerdict, TimesLog};
use gatehouse_limiter::{
    Bucket, HitId, HoldDecision, Limit, MemoryStore, OwnedBucket, Refusal, RuleAction, UnclaimedHold, window,
};

use super::counting::{CountingMode, GuardLimits, GuardedLogin, OWN, by_own, enforced};
use super::slot::{AttemptSlot, HeldInOutage, InFlightTicket, NotYet, SlotHold};
use super::{ASKED, GuardAdmission, GuardRequest, LoginGuard, refused, stricter};
use crate::clock::Micros;
use crate::config::Limits;
use crate::db::DbError;

/// How long an attempt without a slot waits before it reads the record again, because another instance may
/// have freed one.
const READ_AGAIN: Duration = Duration::from_millis(200);

enum RecordDecision {
    Allowed(InFlightTicket, Micros),
    Refused(Refusal),
    /// It did not answer, or not in time.
    Busy,
    /// The store decides again.
    StoreIsBack,
}

impl LoginGuard {
    /// What everybody is told while failures that were counted under a key that was given up would still be in their
    /// windows: nobody can tell any more whose they were. None once all of them have left.
    pub(super) fn refuse_by_given_up(
        &self,
        limits: &Limits,
        login: GuardedLogin,
        mode: CountingMode,
    ) -> Option<GuardAdmission> {
        let last = match login {
            GuardedLogin::Own | GuardedLogin::Realm => self.given_up.passwords,
            GuardedLogin::Factor => self.given_up.factors,
        };
        if last == Micros::default() {
            return None;
        }
        let GuardLimits { account, device, .. } = login.limits(limits);
        let enforced = [account, device].into_iter().filter(|limit| enforced(limit));
        let longest = enforced.map(Limit::longest_window).max().unwrap_or_default();
        let retry_after = last.plus(longest).since(self.failures.clock().now());
        let refusal = Refusal { then: RuleAction::Block, retry_after, ..ASKED };
        (retry_after > Duration::ZERO).then(|| refused(login, mode, refusal))
    }

    /// Decides by the record; None if the store decides again.
    pub(super) async fn admit_in_outage(
        &self,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> Option<GuardAdmission> {
        let buckets = mode.buckets(&self.limiter, limits, who);
        let own = &buckets[OWN];
        let shared: Vec<_> =
            buckets[OWN + 1..].iter().filter(|other| other.limit.name() != own.limit.name()).collect();
        let elsewhere = match self.hold_elsewhere(&shared, who, mode).await {
            Ok(hold) => hold,
            Err(admission) => return Some(admission),
        };
        // Nobody signs in without a challenge while the real windows cannot be read, but for known devices that
        // cannot be shown one. A second step follows a first one, which was challenged.
        let known = mode.device().is_some() && !who.means.challenges;
        let decision = if who.solved || known || who.guarded == GuardedLogin::Factor {
            let buckets: Vec<OwnedBucket> = buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
            let id = self.limiter.fresh_id();
            let asking = self.ask_record(id, own.limit, &buckets, who.solved);
            match tokio::time::timeout(who.means.patience, asking).await {
                Ok(Ok(RecordDecision::Allowed(ticket, at))) => {
                    let elsewhere = elsewhere.map(|hold| Box::new(hold.claim()));
                    let limiter = self.limiter.clone();
                    let hold = SlotHold::Outage(HeldInOutage { id, at, buckets, elsewhere, limiter });
                    let failures = self.failures.clone();
                    return Some(GuardAdmission::Held(AttemptSlot { hold, mode, ticket, failures }));
                }
                Ok(Ok(decision)) => decision,
                Ok(Err(_)) | Err(_) => RecordDecision::Busy,
            }
        } else {
            RecordDecision::Refused(ASKED)
        };
        if let Some(hold) = elsewhere {
            let _ = hold.refund().await;
        }
        match decision {
            RecordDecision::Refused(refusal) => Some(refused(who.guarded, mode, refusal)),
            RecordDecision::Busy => Some(GuardAdmission::Busy),
            RecordDecision::Allowed(..) | RecordDecision::StoreIsBack => None,
        }
    }

    /// The logs of address and network in this process, with half the limits.
    async fn hold_elsewhere(
        &self,
        others: &[&Bucket<'_>],
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> Result<Option<UnclaimedHold<MemoryStore>>, GuardAdmission> {
        let others: Vec<OwnedBucket> = others
            .iter()
            .map(|bucket| OwnedBucket { limit: stricter(bucket.limit), key: bucket.key })
            .collect();
        let buckets: Vec<Bucket<'_>> = others.iter().map(OwnedBucket::borrow).collect();
        if buckets.is_empty() {
            return Ok(None);
        }
        match self.local_fallback.hold(&buckets, who.solved, who.means.patience).await {
            Ok(HoldDecision::Held(hold)) => Ok(Some(UnclaimedHold::new(hold))),
            Ok(HoldDecision::Refused(refusal)) => {
                Err(refused(who.guarded, mode, Refusal { bucket: refusal.bucket + 1, ..refusal }))
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => Err(GuardAdmission::Busy),
        }
    }

    async fn ask_record(
        &self,
        id: HitId,
        limit: &Limit,
        buckets: &[OwnedBucket],
        solved: bool,
    ) -> Result<RecordDecision, DbError> {
        // A failure that cannot be written would count nowhere.
        self.failures.writable()?;
        loop {
            let mut ended = self.in_flight.ended();
            let now = self.failures.now().await?;
            let horizon = window::horizon(limit.rules(), now);
            let own = buckets[OWN].key;
            let times = self.failures.newest(own, horizon, limit.capacity(), false).await?;
            // Its `captcha` rules count the same guess again, too.
            let asks = match limit.challenging() {
                Some(asks) => Some((asks, self.failures.newest(own, horizon, asks.capacity(), true).await?)),
                None => None,
            };
            let instances = self.failures.live_instances(now).await?;
            let evaluate = |holds| {
                let mut gathered = GatheredVerdict::default();
                gathered.add(OWN, limit, &TimesLog { times: &times, holds }, now, solved);
                if let Some((asks, times)) = &asks {
                    gathered.add(OWN + 1, asks, &TimesLog { times, holds }, now, solved);
                }
                gathered
            };
            if let Some(refusal) = evaluate(0).refused() {
                let of = |bucket| asks.as_ref().filter(|_| bucket != OWN).map_or(limit, |(asks, _)| asks);
                let refusal = by_own(refusal, of);
                return Ok(RecordDecision::Refused(refusal));
            }
            // Assumes that each other instance has as many in flight.
            let fits = |in_flight: u32| evaluate(in_flight.saturating_mul(instances)).held.is_none();
            match self.in_flight.begin_by_record((id, now, buckets), &ended, fits) {
                Ok(ticket) => return Ok(RecordDecision::Allowed(ticket, now)),
                Err(NotYet::Returning) if self.in_flight.term().is_some() => {
                    return Ok(RecordDecision::StoreIsBack);
                }
                Err(NotYet::Returning) => self.in_flight.returned().await,
                Err(NotYet::Stale) => tokio::task::yield_now().await,
                Err(NotYet::Full) => drop(tokio::time::timeout(READ_AGAIN, ended.changed()).await),
            }
        }
    }
}
