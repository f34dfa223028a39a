//! Decisions per second of the in-process store, compared with the keyed limiter of `governor`. How to run
//! and read it: benches/README.md.
#![expect(clippy::disallowed_methods, reason = "how long a round takes is what is measured")]

mod support;

use std::num::NonZeroU32;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use gatehouse::clock::Clock;
use gatehouse_limiter::*;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use support::contest::{self, Contest, Place, Round};
use support::{HOUR, limit, limiter, subjects};

const MANY: usize = 100_000;
/// Ten for each subject: a shorter round would only measure how the other's round emptied the caches.
const DECISIONS: u64 = 1_000_000;
/// For one subject: so few that those within [`SHORT`] stay below the largest possible limit.
const DECISIONS_OF_ONE: u64 = 400_000;
/// New subjects per round.
const NEW: usize = 200_000;
const ROUNDS: usize = 9;
const SHORT: Duration = Duration::from_millis(100);

fn main() {
    println!("memory: decisions in this process; medians of {ROUNDS} rounds in turn");
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let mut met = true;
    for threads in [1, 2] {
        for (name, traffic, count) in [
            ("many subjects, refused", Traffic::Refused, MANY),
            ("many subjects, admitted", Traffic::Admitted, MANY),
            // One more round is run than counts.
            ("new subjects, admitted", Traffic::New, NEW * (ROUNDS + 1)),
            ("one subject, refused", Traffic::Refused, 1),
            ("one subject, admitted", Traffic::Admitted, 1),
        ] {
            let title = format!("{name}, {threads} at once");
            if title.contains(&wanted) {
                met &= table(title, threads, &subjects(count), traffic);
            }
        }
    }
    contest::end(met);
}

/// The kind of traffic.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traffic {
    /// Subjects whose limit is reached.
    Refused,
    /// Subjects that come again and again, and are admitted.
    Admitted,
    /// Each subject once, so that its log is created.
    New,
}

fn table(title: String, threads: u64, subjects: &[String], traffic: Traffic) -> bool {
    let mut contest = Contest::new(title);
    let ours = enter_ours(&mut contest, threads, subjects, traffic);
    let rival = enter_rival(&mut contest, threads, subjects, traffic);
    contest.compare(ours, rival, Some(0.7));
    contest.run(ROUNDS)
}

/// Each subject is hashed when it comes, as in a request.
fn enter_ours<'c>(
    contest: &mut Contest<'c>,
    threads: u64,
    subjects: &'c [String],
    traffic: Traffic,
) -> Place {
    // Admitted: either a window larger than one subject can fill here, or a small log for each that holds a
    // whole round, however fast it passes.
    let limit = match (traffic, subjects.len()) {
        (Traffic::Refused | Traffic::New, _) => limit(5, HOUR),
        (Traffic::Admitted, 1) => limit(1_000_000, SHORT),
        (Traffic::Admitted, _) => limit(10 * threads as u32, SHORT),
    };
    let limiter = limiter(MemoryStore::new(Clock::System));
    let decide = move |turn: u64, subject: &String| {
        let bucket = limiter.bucket(&limit, subject.as_bytes());
        let ask = ReserveRequest {
            buckets: &[bucket],
            id: support::id(turn),
            kind: ReserveKind::Hit,
            solved: false,
            complete: None,
        };
        matches!(limiter.store().reserve_now(&ask), StoreVerdict::Refused { .. })
    };
    enter(contest, "MemoryStore, bucket() + reserve_now", threads, subjects, traffic, decide)
}

fn enter_rival<'c>(
    contest: &mut Contest<'c>,
    threads: u64,
    subjects: &'c [String],
    traffic: Traffic,
) -> Place {
    let quota = match traffic {
        Traffic::Refused | Traffic::New => Quota::per_hour(NonZeroU32::new(5).expect("not zero")),
        Traffic::Admitted => Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero")),
    };
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(quota);
    let decide = move |_, subject: &String| limiter.check_key(subject).is_err();
    enter(contest, "governor, check_key", threads, subjects, traffic, decide)
}

/// Adds a contestant, after each of its subjects has its log, which is full if refusals are measured.
fn enter<'c>(
    contest: &mut Contest<'c>,
    name: &str,
    threads: u64,
    subjects: &'c [String],
    traffic: Traffic,
    decide: impl Fn(u64, &String) -> bool + Sync + 'c,
) -> Place {
    let times = match traffic {
        Traffic::Refused => 5,
        Traffic::Admitted => 1,
        Traffic::New => 0,
    };
    for turn in 0..subjects.len() as u64 * times {
        decide(turn, &subjects[turn as usize % subjects.len()]);
    }
    let (order, mut next) = (support::scattered(subjects), 0);
    let decisions = match (traffic, subjects.len()) {
        (Traffic::New, _) => NEW as u64 / threads,
        (_, 1) => DECISIONS_OF_ONE,
        _ => DECISIONS,
    };
    contest.enter(name, move || {
        let (round, refusals) =
            drive(threads, next, decisions, &|turn| decide(turn, &order[turn as usize % order.len()]));
        assert_eq!(refusals, if traffic == Traffic::Refused { round.decisions } else { 0 });
        next += round.decisions;
        round
    })
}

/// This many decisions on each of this many threads; also counts the refusals. The workers read the clock
/// themselves: on a busy machine this thread may wake long after they began.
fn drive(threads: u64, from: u64, decisions: u64, decide: &(impl Fn(u64) -> bool + Sync)) -> (Round, u64) {
    let ready = &Barrier::new(threads as usize);
    let work = |thread: u64| {
        ready.wait();
        let start = Instant::now();
        let refusals = (0..decisions).filter(|turn| decide(from + turn * threads + thread)).count() as u64;
        (start, Instant::now(), refusals)
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let start = done.iter().map(|(start, ..)| *start).min().expect("a worker");
    let end = done.iter().map(|(_, end, _)| *end).max().expect("a worker");
    let refusals = done.iter().map(|(.., refusals)| refusals).sum();
    (Round { decisions: decisions * threads, took: end - start }, refusals)
}
