//! Random histories on both stores, compared with a model that is too simple to be wrong.

use std::time::Duration;

use gatehouse_limiter::clock::Micros;
use gatehouse_limiter::*;
use proptest::prelude::*;

use super::rig::*;

/// Every hit ever, and a count of those in the window.
#[derive(Default)]
struct Model {
    logs: [Vec<Hit>; 2],
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Hit {
    at: Micros,
    id: HitId,
    held: bool,
    /// Rules that ask for a challenge ignore it.
    forgiven: bool,
}

#[derive(Debug, PartialEq)]
enum Answer {
    /// What is left, and when there is more.
    Admitted {
        room: Option<(u32, Duration)>,
        noted: Option<(usize, usize, Duration)>,
    },
    Held {
        bucket: usize,
    },
    Refused {
        bucket: usize,
        rule: usize,
        wait: Duration,
    },
}

impl Model {
    /// The holds of dead owners become failures.
    fn settle_dead(&mut self, log: usize, clock: Micros) {
        for hit in &mut self.logs[log] {
            hit.held &= hit.at > clock.minus(window::HOLD_LIFE);
        }
    }

    /// When a hit of now is written: a clock that stepped back writes none before others.
    fn next_time(&self, log: usize, clock: Micros) -> Micros {
        self.logs[log].iter().map(|hit| hit.at).fold(clock, Micros::max)
    }

    fn reserve(&mut self, clock: Micros, ask: &ReserveRequest<'_>) -> Answer {
        let (mut refused, mut noted, mut held) = (vec![], vec![], None);
        let mut room: Option<(usize, Option<Micros>, Duration)> = None;
        for (index, bucket) in ask.buckets.iter().enumerate() {
            self.settle_dead(index, clock);
            for (rule_index, rule) in bucket.limit.rules().iter().enumerate() {
                if ask.solved && rule.then == RuleAction::Captcha {
                    continue;
                }
                let RuleSpan::Sliding(window) = rule.span else { unreachable!("this model slides") };
                let passed_over = |hit: &Hit| hit.forgiven && rule.then == RuleAction::Captcha;
                let inside = |hit: &&Hit| hit.held || hit.at > clock.minus(window) && !passed_over(hit);
                let (holds, mut kept): (Vec<Hit>, Vec<Hit>) =
                    self.logs[index].iter().filter(inside).partition(|hit| hit.held);
                kept.sort_by_key(|hit| hit.at);
                let max = rule.max as usize;
                if kept.len() >= max {
                    let wait = kept[kept.len() - max].at.plus(window).since(clock);
                    let list =
                        if bucket.limit.mode() == LimitMode::Monitor { &mut noted } else { &mut refused };
                    list.push((rule.then, wait, index, rule_index));
                } else if bucket.limit.mode() == LimitMode::Enforce {
                    match max.checked_sub(kept.len() + holds.len() + 1) {
                        Some(left) if room.is_none_or(|(least, ..)| left < least) => {
                            room = Some((left, kept.first().map(|hit| hit.at), window));
                        }
                        Some(_) => {}
                        None => held = held.or(Some(index)),
                    }
                }
            }
        }
        // Among equals the first.
        let strictest = |list: Vec<(RuleAction, Duration, usize, usize)>| {
            list.into_iter()
                .reduce(|best, other| if (other.0, other.1) > (best.0, best.1) { other } else { best })
        };
        if let Some((_, wait, bucket, rule)) = strictest(refused) {
            return Answer::Refused { bucket, rule, wait };
        }
        if let Some(bucket) = held {
            return Answer::Held { bucket };
        }
        let mut latest = clock;
        for index in 0..ask.buckets.len() {
            let at = self.next_time(index, clock);
            latest = latest.max(at);
            self.logs[index].push(Hit {
                at,
                id: ask.id,
                held: ask.kind == ReserveKind::Hold,
                forgiven: false,
            });
            if ask.kind == ReserveKind::Hit {
                self.forget_beyond_capacity(index, ask.buckets[index].limit);
            }
        }
        let noted = strictest(noted).map(|(_, wait, bucket, rule)| (bucket, rule, wait));
        let room = room
            .map(|(left, oldest, window)| (left as u32, oldest.unwrap_or(latest).plus(window).since(latest)));
        Answer::Admitted { room, noted }
    }

    /// What a rule counts.
    fn count(&self, log: usize, rule: &Rule, now: Micros) -> u32 {
        let RuleSpan::Sliding(window) = rule.span else { unreachable!("this model slides") };
        let passed_over = |hit: &Hit| hit.forgiven && rule.then == RuleAction::Captcha;
        let counts = |hit: &&Hit| !hit.held && hit.at > now.minus(window) && !passed_over(hit);
        (self.logs[log].iter().filter(counts).count() as u32).min(rule.max)
    }

    /// The holds in flight, and what each rule counts.
    fn counted(&mut self, log: usize, limit: &Limit, now: Micros) -> (u32, Vec<u32>) {
        self.settle_dead(log, now);
        let holds = self.logs[log].iter().filter(|hit| hit.held).count();
        (holds as u32, limit.rules().iter().map(|rule| self.count(log, rule, now)).collect())
    }

    /// Whether the owner's hold is alive. Changes nothing: a store that is not asked does not notice time
    /// either.
    fn may_keep(&self, log: usize, clock: Micros, id: HitId) -> bool {
        let lives = |hit: &Hit| hit.held && hit.at > clock.minus(window::HOLD_LIFE);
        self.logs[log].iter().any(|hit| hit.id == id && lives(hit))
    }

    fn settle(&mut self, clock: Micros, log: usize, id: HitId, outcome: HoldOutcome, limit: &Limit) {
        self.settle_dead(log, clock);
        let now = self.next_time(log, clock);
        match outcome {
            HoldOutcome::Keep => {
                let hold = self.logs[log].iter_mut().find(|hit| hit.id == id);
                *hold.unwrap() = Hit { at: now, id, held: false, forgiven: false };
                self.forget_beyond_capacity(log, limit);
            }
            HoldOutcome::Refund => self.logs[log].retain(|hit| hit.id != id),
            HoldOutcome::Forgive { up_to } => {
                self.logs[log].retain(|hit| hit.id != id);
                if limit.challenges() && self.logs[log].iter().all(|hit| !hit.held) {
                    self.logs[log].iter_mut().for_each(|hit| hit.forgiven |= hit.at <= up_to);
                }
            }
        }
    }

    /// Only the newest `capacity` kept hits are remembered: no rule looks further back.
    fn forget_beyond_capacity(&mut self, log: usize, limit: &Limit) {
        let mut kept: Vec<Hit> = self.logs[log].iter().copied().filter(|hit| !hit.held).collect();
        kept.sort_by_key(|hit| (!hit.forgiven, hit.at));
        let excess = kept.len().saturating_sub(limit.capacity() as usize);
        let forgotten: Vec<HitId> = kept[..excess].iter().map(|hit| hit.id).collect();
        self.logs[log].retain(|hit| !forgotten.contains(&hit.id));
    }
}

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Ask {
        both: bool,
        kind: ReserveKind,
        solved: bool,
    },
    /// Settles the n-th newest id so far, including one that was refused or settled before.
    Settle {
        back: usize,
        log: usize,
        outcome: u8,
    },
    /// Moves the clock, sometimes backwards; often by exactly a window, or one less or more.
    Clock {
        micros: i64,
    },
}

/// How far back the clock steps at most, all steps together. Logs outlive a step of ten seconds.
const STEPPED_BACK: Duration = Duration::from_secs(9);

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(ReserveKind::Hit), Just(ReserveKind::Hold)];
    let near = prop_oneof![Just(0i64), Just(1), Just(99_999), Just(100_000), Just(100_001), Just(1_000_000)];
    prop_oneof![
        6 => (any::<bool>(), kind, prop::bool::weighted(0.25))
            .prop_map(|(both, kind, solved)| Step::Ask { both, kind, solved }),
        3 => (0..6usize, 0..2usize, 0..3u8).prop_map(|(back, log, outcome)| Step::Settle { back, log, outcome }),
        1 => (-150_000i64..0).prop_map(|micros| Step::Clock { micros }),
        1 => (-4_000_000i64..0).prop_map(|micros| Step::Clock { micros }),
        3 => near.prop_map(|micros| Step::Clock { micros }),
        1 => (0i64..20_000_000).prop_map(|micros| Step::Clock { micros }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let window = prop_oneof![Just(100u64), Just(1000), Just(20_000)].prop_map(Duration::from_millis);
    let then = prop_oneof![Just(RuleAction::Captcha), Just(RuleAction::Block)];
    (1..5u32, window, then).prop_map(|(max, window, then)| Rule::sliding(max, window, then))
}

fn some_limit(name: &'static str) -> impl Strategy<Value = Limit> {
    let mode = prop_oneof![4 => Just(LimitMode::Enforce), 1 => Just(LimitMode::Monitor)];
    (prop::collection::vec(rule(), 1..4), mode)
        .prop_filter_map("two rules of one span", move |(rules, mode)| Limit::new(name, rules, mode).ok())
}

fn answer(verdict: StoreVerdict) -> Answer {
    match verdict {
        StoreVerdict::Admitted { room, noted, .. } => Answer::Admitted {
            room: room.map(|room| (room.remaining, room.more_after)),
            noted: noted.map(|noted| (noted.bucket, noted.rule, noted.retry_after)),
        },
        StoreVerdict::Held { bucket, .. } => Answer::Held { bucket },
        StoreVerdict::Refused { refusal, .. } => {
            Answer::Refused { bucket: refusal.bucket, rule: refusal.rule, wait: refusal.retry_after }
        }
    }
}

async fn replay<R: Rig>(
    rig: &R,
    subject: &[u8],
    limits: &[Limit; 2],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    rig.set(NOON);
    let mut model = Model::default();
    let mut ids = Vec::new();
    let mut latest = NOON;
    let buckets = [rig.limiter().bucket(&limits[0], subject), rig.limiter().bucket(&limits[1], subject)];
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Clock { micros } => {
                rig.set(Micros(rig.now().0 + micros).max(latest.minus(STEPPED_BACK)));
                latest = latest.max(rig.now());
            }
            Step::Ask { both, kind, solved } => {
                let id = fresh_id();
                ids.push(id);
                let ask = ReserveRequest {
                    buckets: &buckets[..if both { 2 } else { 1 }],
                    id,
                    kind,
                    solved,
                    complete: None,
                };
                let got = answer(rig.store().reserve(&ask).await.unwrap());
                prop_assert_eq!(got, model.reserve(rig.now(), &ask), "step {}: {:?}", number, step);
            }
            Step::Settle { back, log, outcome } => {
                let Some(index) = ids.len().checked_sub(back + 1) else { continue };
                let outcomes = [
                    HoldOutcome::Keep,
                    HoldOutcome::Refund,
                    HoldOutcome::Forgive { up_to: rig.now().minus(Duration::from_millis(50)) },
                ];
                let outcome = outcomes[usize::from(outcome)];
                // An owner settles while its hold lives; a late settlement has its own cases.
                if outcome == HoldOutcome::Keep && !model.may_keep(log, rig.now(), ids[index]) {
                    continue;
                }
                let told = rig.store().settle(&[buckets[log]], ids[index], &[outcome], true).await.unwrap();
                model.settle(rig.now(), log, ids[index], outcome, &limits[log]);
                prop_assert_eq!(
                    counted(&told.states.unwrap()[0]),
                    model.counted(log, &limits[log], rig.now())
                );
            }
        }
    }
    for (log, state) in rig.limiter().peek_all(&buckets).await.unwrap().iter().enumerate() {
        prop_assert_eq!(counted(state), model.counted(log, &limits[log], rig.now()));
    }
    Ok(())
}

/// The same as a store tells it.
fn counted(state: &LogPeek) -> (u32, Vec<u32>) {
    (state.holds, state.rules.iter().map(|rule| rule.count).collect())
}

fn histories(cases: u32, test: impl Fn([Limit; 2], Vec<Step>) -> Result<(), TestCaseError>) {
    // PROPTEST_CASES asks for more.
    let cases = ProptestConfig::default().cases.max(cases);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let input = (some_limit("one"), some_limit("other"), prop::collection::vec(step(), 1..60));
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner.run(&input, |(one, other, steps)| test([one, other], steps)).unwrap();
}

#[test]
fn the_in_process_store_does_what_the_model_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    histories(3000, |limits, steps| {
        runtime.block_on(async { replay(&MemoryRig::new().await, b"a", &limits, &steps).await })
    });
}

#[test]
fn redis_does_what_the_model_does() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rig = runtime.block_on(RedisRig::new());
    histories(800, |limits, steps| {
        let a_fresh_log = fresh_id().0;
        runtime.block_on(replay(&rig, &a_fresh_log, &limits, &steps))
    });
}
