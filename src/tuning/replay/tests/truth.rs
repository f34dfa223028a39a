//! What the limiter decides in a week, attempt by attempt, and how that is recorded.

use std::collections::HashMap;
use std::time::Duration;

use gatehouse_limiter::{
    Bucket, HitDecision, HitId, Hold, HoldDecision as Asked, Limit, Limiter, MemoryStore, OwnedBucket,
    Refusal, RuleAction,
};
use tokio::task::JoinHandle;

use super::week::{Attempt, BEGIN, SECOND};
use crate::clock::{Clock, Micros};
use crate::config::{LimitName, Limits};
use crate::entropy::Entropy;
use crate::secret::MasterKey;
use crate::tuning::replay::row::{
    self, DEVICE, KEPT_ON_FAILURE, KINDS, RecordedEvent, ReplayAction, ReplayOutcome, ReplayRow, RowIntake,
    counts_devices,
};

/// The result of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// When it was decided, and when its outcome was known.
    pub at: i64,
    pub until: i64,
    /// The action that it counted as.
    pub action: ReplayAction,
    /// The limit that refused it, and how.
    pub refused: Option<(LimitName, Refusal)>,
    pub forgave: bool,
    pub noted: Option<LimitName>,
}

impl Fate {
    /// Where others are asked for a challenge, or would be, a wrong answer to one does not count.
    pub const fn is_uncounted_answer(&self) -> bool {
        self.action.is_answer() && (self.refused.is_some() || self.noted.is_some())
    }
}

pub struct Run {
    pub fates: Vec<Fate>,
    pub recording: Vec<ReplayRow>,
    pub honest: Vec<bool>,
}

/// The limits that count an attempt, and the index of their subject.
pub fn asked(action: ReplayAction) -> &'static [(LimitName, usize)] {
    use LimitName::*;
    match action {
        ReplayAction::SignIn => &[(LoginAccount, 0), (LoginAddress, 1), (LoginNetwork, 2)],
        ReplayAction::DeviceSignIn => &[(LoginDevice, 5)],
        ReplayAction::Attempt => &[(GuardAccount, 0), (GuardAddress, 1), (GuardNetwork, 2)],
        ReplayAction::DeviceAttempt => &[(GuardDevice, 5)],
        ReplayAction::Factor => &[(FactorAccount, 0)],
        ReplayAction::DeviceFactor => &[(FactorDevice, 5)],
        ReplayAction::FactorElsewhere => &[(LoginAddress, 1)],
        ReplayAction::AttemptAnswer => &[(GuardAddress, 1), (GuardNetwork, 2)],
        ReplayAction::Guess => &[(SmsGuess, 3), (LoginAddress, 1), (LoginNetwork, 2)],
        ReplayAction::Answer | ReplayAction::GuessApart => &[(LoginAddress, 1), (LoginNetwork, 2)],
        ReplayAction::Send => {
            &[(SmsPhone, 3), (SmsAddress, 1), (SmsNetwork, 2), (SmsPrefix, 4), (SmsTotal, 6)]
        }
        ReplayAction::Register => &[(RegisterAddress, 1)],
        ReplayAction::DeviceGuess
        | ReplayAction::VerifySend
        | ReplayAction::RelaySend
        | ReplayAction::Clear => &[],
    }
}

/// The action that was decided, and the answer.
type Said = (ReplayAction, Asked<MemoryStore>);
type Wait = JoinHandle<Said>;

enum End {
    Verified(usize),
    Refund(usize),
}

struct Machine<'a> {
    attempts: &'a [Attempt],
    /// Before that moment the first limits, from then on the second.
    limits: [&'a Limits; 2],
    changes: i64,
    clock: Clock,
    limiter: Limiter<MemoryStore>,
    fates: Vec<Option<Fate>>,
    flying: HashMap<usize, Hold<MemoryStore>>,
    sent: HashMap<usize, HitId>,
    waiting: Vec<(usize, Wait)>,
    ends: Vec<(i64, End)>,
}

pub async fn run(attempts: &[Attempt], limits: &Limits) -> Run {
    run_changed(attempts, [limits, limits], BEGIN).await
}

/// Under the first limits, and from a moment on under others.
pub async fn run_changed(attempts: &[Attempt], limits: [&Limits; 2], changes: i64) -> Run {
    let clock = Clock::manual(Micros(BEGIN));
    let limiter = Limiter::new(
        MemoryStore::new(clock.clone()),
        MasterKey::from_bytes([7; 32]).derive("test.replay"),
        &Entropy::seeded(1),
    );
    let mut machine = Machine {
        attempts,
        limits,
        changes,
        clock,
        limiter,
        fates: vec![None; attempts.len()],
        flying: HashMap::new(),
        sent: HashMap::new(),
        waiting: Vec::new(),
        ends: Vec::new(),
    };
    for (number, attempt) in attempts.iter().enumerate() {
        machine.advance(attempt.at).await;
        machine.arrive(number).await;
    }
    machine.advance(i64::MAX).await;
    assert!(machine.waiting.is_empty(), "everybody had their turn");
    let fates: Vec<Fate> = machine.fates.into_iter().map(|fate| fate.expect("decided")).collect();
    let rows = record(attempts, &fates);
    let mut intake = RowIntake::default();
    rows.iter().for_each(|(row, _)| intake.take(row));
    let recording = intake.finish();
    let honest = honest(attempts.len(), &rows, &recording);
    Run { fates, recording, honest }
}

impl Machine<'_> {
    fn limits(&self, at: i64) -> &Limits {
        self.limits[usize::from(at >= self.changes)]
    }

    fn buckets(&self, attempt: &Attempt, action: ReplayAction) -> Vec<OwnedBucket> {
        let limits = row::replayed_limits(self.limits(attempt.at));
        let bucket = |(limit, kind): &(LimitName, usize)| {
            let subject = attempt.subjects.get(*kind).map_or(0, |subject| subject.expect("it has one"));
            self.limiter.bucket(limits[*limit as usize], &subject.to_le_bytes()).to_owned()
        };
        // Answers are counted by no limit that blocks.
        let blocks = |limit: &&Limit| limit.rules().iter().any(|rule| rule.then == RuleAction::Block);
        let counts =
            |(limit, _): &&(LimitName, usize)| !action.is_answer() || !blocks(&limits[*limit as usize]);
        asked(action).iter().filter(counts).map(bucket).collect()
    }

    async fn advance(&mut self, to: i64) {
        loop {
            self.ends.sort_by_key(|(at, _)| *at);
            if self.ends.first().is_none_or(|(at, _)| *at > to) {
                break;
            }
            let (at, end) = self.ends.remove(0);
            self.clock.set(Micros(at));
            match end {
                End::Verified(number) => {
                    let hold = self.flying.remove(&number).expect("in flight");
                    self.verified(number, hold).await;
                }
                End::Refund(number) => self.refund(number).await,
            }
            self.look_at_the_waiting().await;
        }
        if to < i64::MAX {
            self.clock.set(Micros(to));
        }
    }

    async fn arrive(&mut self, number: usize) {
        let attempt = self.attempts[number];
        let action = match attempt.action.from_device() {
            Some((login, stranger)) if !counts_devices(self.limits(attempt.at), login) => stranger,
            _ => attempt.action,
        };
        let owned = self.buckets(&attempt, action);
        match action {
            action if action.is_compared() => {
                let limiter = self.limiter.clone();
                let stranger = action.from_device().map(|(_, stranger)| stranger);
                let as_stranger = stranger.map(|stranger| (stranger, self.buckets(&attempt, stranger)));
                let mut wait = tokio::spawn(async move {
                    let own = hold(&limiter, &owned, attempt.solved).await;
                    match (own, as_stranger) {
                        (Asked::Refused(refusal), Some((stranger, owned)))
                            if refusal.then == RuleAction::Block =>
                        {
                            match hold(&limiter, &owned, attempt.solved).await {
                                Asked::Refused(other)
                                    if (refusal.then, refusal.retry_after)
                                        < (other.then, other.retry_after) =>
                                {
                                    (action, Asked::Refused(refusal))
                                }
                                said => (stranger, said),
                            }
                        }
                        (said, _) => (action, said),
                    }
                });
                settle_down(|| self.waiting.is_empty() && wait.is_finished()).await;
                if wait.is_finished() {
                    let said = (&mut wait).await.expect("no panic");
                    self.decided(number, said).await;
                } else {
                    self.waiting.push((number, wait));
                }
            }
            _ if owned.is_empty() => self.tell(number, action, attempt.at, None, None),
            _ => {
                let buckets: Vec<Bucket<'_>> = owned.iter().map(OwnedBucket::borrow).collect();
                let said = self.limiter.reserve_or_nothing(&buckets, attempt.solved).await;
                match said.expect("a store in memory") {
                    HitDecision::Admitted(admission) if action.is_answer() && admission.noted.is_some() => {
                        self.limiter.refund(&buckets, admission.id).await.expect("a store in memory");
                        self.tell(number, action, attempt.at, None, admission.noted);
                    }
                    HitDecision::Admitted(admission) => {
                        self.sent.insert(number, admission.id);
                        let until = attempt.at + attempt.lasts;
                        self.tell(number, action, until, None, admission.noted);
                        if attempt.action == ReplayAction::Send && !attempt.right {
                            self.ends.push((until, End::Refund(number)));
                            Box::pin(self.advance(attempt.at)).await;
                        }
                    }
                    HitDecision::Refused(refusal) => {
                        self.tell(number, action, attempt.at, Some(refusal), None)
                    }
                }
            }
        }
    }

    async fn look_at_the_waiting(&mut self) {
        settle_down(|| self.waiting.is_empty()).await;
        while let Some(place) = self.waiting.iter().position(|(_, wait)| wait.is_finished()) {
            let (number, wait) = self.waiting.remove(place);
            self.decided(number, wait.await.expect("no panic")).await;
            settle_down(|| self.waiting.is_empty()).await;
        }
    }

    async fn decided(&mut self, number: usize, (action, said): Said) {
        let now = self.clock.now().0;
        match said {
            Asked::Held(hold) => {
                let lasts = self.attempts[number].lasts;
                self.tell(number, action, now + lasts, None, hold.noted);
                if lasts == 0 {
                    Box::pin(self.verified(number, hold)).await;
                } else {
                    self.flying.insert(number, hold);
                    self.ends.push((now + lasts, End::Verified(number)));
                }
            }
            Asked::Refused(refusal) => self.tell(number, action, now, Some(refusal), None),
            Asked::OutOfPatience => unreachable!("nothing lasts that long"),
        }
    }

    fn tell(
        &mut self,
        number: usize,
        action: ReplayAction,
        until: i64,
        refused: Option<Refusal>,
        noted: Option<Refusal>,
    ) {
        let at = self.clock.now().0;
        let limits = asked(action);
        let refused = refused.map(|refusal| (limits[refusal.bucket].0, refusal));
        let noted = noted.map(|refusal| limits[refusal.bucket].0);
        self.fates[number] = Some(Fate { at, until, action, refused, forgave: false, noted });
    }

    async fn verified(&mut self, number: usize, hold: Hold<MemoryStore>) {
        let attempt = self.attempts[number];
        match (attempt.right, attempt.action) {
            (true, action) if action.is_password() => {
                let succeeded = hold.succeed(|bucket| bucket == 0).await;
                self.fates[number].as_mut().expect("told").forgave = succeeded.expect("a store in memory").1;
            }
            (true, _) => hold.refund().await.expect("a store in memory"),
            (false, _) => hold.keep().await.map(drop).expect("a store in memory"),
        }
    }

    async fn refund(&mut self, number: usize) {
        let owned = self.buckets(&self.attempts[number], self.attempts[number].action);
        let limits = asked(self.attempts[number].action);
        let others = owned.iter().zip(limits).filter(|(_, (limit, _))| !KEPT_ON_FAILURE.contains(limit));
        let buckets: Vec<Bucket<'_>> = others.map(|(bucket, _)| bucket.borrow()).collect();
        self.limiter.refund(&buckets, self.sent[&number]).await.expect("a store in memory");
    }
}

async fn hold(limiter: &Limiter<MemoryStore>, owned: &[OwnedBucket], solved: bool) -> Asked<MemoryStore> {
    let buckets: Vec<Bucket<'_>> = owned.iter().map(OwnedBucket::borrow).collect();
    limiter.hold(&buckets, solved, Duration::from_secs(5)).await.expect("a store in memory")
}

/// Lets every task run as far as it can while time stands still; no further than `is_settled`, where that can be
/// told: a turn asks the kernel for news, and a week has a hundred thousand attempts.
async fn settle_down(is_settled: impl Fn() -> bool) {
    for _ in 0..64 {
        if is_settled() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The rows as they are written: admitted attempts one by one, refused ones by the hit that caused the wait.
/// Each with its attempts.
pub fn record(attempts: &[Attempt], fates: &[Fate]) -> Vec<(RecordedEvent, Vec<usize>)> {
    let mut rows: Vec<(RecordedEvent, Vec<usize>)> = Vec::new();
    let mut open: HashMap<_, usize> = HashMap::new();
    let mut order: Vec<usize> = (0..attempts.len()).collect();
    order.sort_by_key(|number| fates[*number].at);
    for number in order {
        let (attempt, fate) = (&attempts[number], &fates[number]);
        // An answer that did not count is recorded as one that was too late.
        if fate.is_uncounted_answer() {
            continue;
        }
        let outcome = match (fate.refused, attempt.right, attempt.action) {
            (Some((_, Refusal { then: RuleAction::Captcha, .. })), ..) => ReplayOutcome::Challenged,
            (Some(_), ..) => ReplayOutcome::Throttled,
            (None, true, _) => ReplayOutcome::Ok,
            (None, false, ReplayAction::Send) => ReplayOutcome::Failed,
            (None, false, _) => ReplayOutcome::Wrong,
        };
        let mut keys = attempt.subjects;
        keys[DEVICE] = keys[DEVICE].filter(|_| fate.action.from_device().is_some());
        // Whether a known device's success was to forgive is not recorded at our own sign-in.
        let told = fate.action.is_password()
            && fate.action != ReplayAction::DeviceSignIn
            && outcome == ReplayOutcome::Ok;
        let row = RecordedEvent {
            at: Micros(fate.at),
            until: Micros(fate.until),
            count: 1,
            action: fate.action,
            outcome,
            limit: fate.refused.map(|(limit, _)| limit).or(fate.noted),
            rule: fate.refused.map_or(0, |(_, refusal)| refusal.rule as u8),
            noted: fate.noted.is_some(),
            solved: attempt.solved,
            forgave: !told || fate.forgave,
            keys,
        };
        let Some((limit, refusal)) = fate.refused else {
            rows.push((row, vec![number]));
            continue;
        };
        let frees_at = fate.at + refusal.retry_after.as_micros() as i64;
        let identity = (fate.action as u8, outcome as u8, limit, refusal.rule, keys, attempt.solved);
        if let Some(same) = open.get(&identity).map(|place: &usize| &mut rows[*place])
            && same.0.at.0 + 10 * SECOND > fate.at
            && frees(&fates[same.1[0]]) == frees_at
        {
            same.0.count += 1;
            same.0.until = Micros(fate.at);
            same.1.push(number);
        } else {
            open.insert(identity, rows.len());
            rows.push((row, vec![number]));
        }
    }
    rows
}

fn frees(fate: &Fate) -> i64 {
    fate.at + fate.refused.map_or(0, |(_, refusal)| refusal.retry_after.as_micros() as i64)
}

fn honest(count: usize, rows: &[(RecordedEvent, Vec<usize>)], recording: &[ReplayRow]) -> Vec<bool> {
    let mut honest = vec![false; count];
    // As many rows as went in, in another order: matched by time and subject.
    let mut left: Vec<bool> = vec![true; recording.len()];
    let mut by_time: HashMap<i64, Vec<usize>> = HashMap::new();
    for (index, row) in recording.iter().enumerate() {
        by_time.entry(row.at().0).or_default().push(index);
    }
    for (row, attempts) in rows {
        let same = |index: &&usize| {
            let other = &recording[**index];
            left[**index]
                && (other.action, other.outcome, other.until(), other.count)
                    == (row.action, row.outcome, row.until, row.count as u32)
                && (0..KINDS).all(|kind| (other.subject(kind) == row::NOBODY) == row.keys[kind].is_none())
        };
        let index = *by_time[&row.at.0].iter().find(same).expect("it went in");
        left[index] = false;
        attempts.iter().for_each(|number| honest[*number] = recording[index].honest());
    }
    honest
}
