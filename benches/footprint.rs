//! The memory cost of a subject, and whether decisions slow down as subjects or limits grow, in both stores.
//! How to run and read it: benches/README.md.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse_limiter::*;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use support::contest::{self, Contest};
use support::harness::redis::RedisServer;
use support::redis::{drive, runtime, store};
use support::{HOUR, cores, limit, limiter, subjects};
use tokio::runtime::Runtime;

/// Subjects of a small and of a large site.
const FEW: usize = 1_000;
const MANY: usize = 1_000_000;
/// Hits in each log.
const HITS: u64 = 3;
const CALLERS: u64 = 64;
const ROUNDS: usize = 9;
/// How much more a decision may cost among [`MANY`] subjects.
const SLOWER: f64 = 1.6;

fn main() {
    let cores = cores::pin_to_one();
    println!("footprint: {cores}; medians of {ROUNDS} rounds in turn");
    let runtime = runtime();
    let mut met = bytes_in_process() & bytes_on_redis(&runtime);
    for refused in [true, false] {
        met &= subjects_in_process(refused);
    }
    met &= subjects_on_redis(&runtime);
    met &= maxima_in_process();
    met &= maxima_on_redis(&runtime);
    contest::end(met);
}

fn bytes_in_process() -> bool {
    println!("\nbytes a subject in process, {HITS} hits each");
    let mut met = true;
    for count in [FEW, MANY] {
        let subjects = subjects(count);
        let limit = limit(5, HOUR);
        let before = LIVE.load(Ordering::Relaxed);
        let limiter = limiter(MemoryStore::new(Clock::System));
        fill_in_process(&limiter, &limit, &subjects, HITS);
        met &= bytes(count, (LIVE.load(Ordering::Relaxed) - before) as f64 / count as f64, 200.0);
    }
    met
}

fn bytes_on_redis(runtime: &Runtime) -> bool {
    println!("\nbytes a subject on Redis (MEMORY USAGE, name and expiry included), {HITS} hits");
    let server = RedisServer::start();
    let (limiter, limit) = (store(runtime, &server, |store| store), limit(5, HOUR));
    let subjects = subjects(1);
    fill_on_redis(runtime, &limiter, &limit, &subjects, HITS);
    let name = limiter.store().key_name(limiter.bucket(&limit, subjects[0].as_bytes()));
    let usage: f64 =
        redis::cmd("MEMORY").arg("USAGE").arg(name).query(&mut server.connection()).expect("an answer");
    bytes(1, usage, 160.0)
}

fn bytes(subjects: usize, each: f64, bar: f64) -> bool {
    let met = each <= bar;
    println!(
        "  {:<44} {each:>11.0}{}",
        format!("{} subjects", contest::thousands(subjects as f64)),
        contest::verdict(Some(bar), met, "≤")
    );
    met
}

/// Refused: every log is full of hits of this hour. Admitted: every log has room for all rounds.
fn limit_for(refused: bool) -> Limit {
    if refused { limit(HITS as u32, HOUR) } else { limit(1_000, Duration::from_millis(100)) }
}

fn subjects_in_process(refused: bool) -> bool {
    let mut contest = Contest::new(title("in process", refused));
    let places = [FEW, MANY].map(|count| {
        let (subjects, limit) = (subjects(count), limit_for(refused));
        let limiter = limiter(MemoryStore::new(Clock::System));
        fill_in_process(&limiter, &limit, &subjects, HITS);
        enter_in_process(&mut contest, &named(count), limiter, limit, subjects)
    });
    contest.compare(places[1], places[0], Some(1.0 / SLOWER));
    // What the same growth costs a limiter that stores one word per subject.
    let peers = [FEW, MANY].map(|count| {
        let name = format!("governor, {}", named(count));
        enter_peer(&mut contest, &name, refused, subjects(count))
    });
    contest.compare(peers[1], peers[0], None);
    contest.run(ROUNDS)
}

fn enter_peer<'c>(
    contest: &mut Contest<'c>,
    name: &str,
    refused: bool,
    subjects: Vec<String>,
) -> contest::Place {
    let unbounded = NonZeroU32::new(1_000_000_000).expect("not zero");
    let quota = if refused { Quota::per_hour(NonZeroU32::MIN) } else { Quota::per_second(unbounded) };
    let limiter: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(quota);
    for subject in &subjects {
        let _ = limiter.check_key(subject);
    }
    let mut next = 0;
    contest.enter(name, move || {
        next += 200_000;
        contest::time(200_000, |turn| {
            let _ = black_box(limiter.check_key(&subjects[(next + turn) as usize % subjects.len()]));
        })
    })
}

fn subjects_on_redis(runtime: &Runtime) -> bool {
    let servers = [(FEW, RedisServer::start()), (MANY, RedisServer::start())];
    for (count, server) in &servers {
        let limiter = store(runtime, server, |store| store);
        fill_on_redis(runtime, &limiter, &limit_for(true), &subjects(*count), HITS);
    }
    let table = |refused| {
        let mut contest = Contest::new(title("on Redis", refused));
        let places = servers.each_ref().map(|(count, server)| {
            let (limiter, subjects) = (store(runtime, server, |store| store), subjects(*count));
            enter_on_redis(&mut contest, &named(*count), runtime, limiter, limit_for(refused), subjects)
        });
        contest.compare(places[1], places[0], Some(1.0 / SLOWER));
        contest.run(ROUNDS)
    };
    table(true) & table(false)
}

fn title(place: &str, refused: bool) -> String {
    format!("{} {place}, few and many subjects", if refused { "refusals" } else { "admissions" })
}

fn named(count: usize) -> String {
    format!("{} subjects", contest::thousands(count as f64))
}

const MAXIMA: [u32; 4] = [5, 100, 1_000, 10_000];

fn maxima_in_process() -> bool {
    let mut contest = Contest::new("refusals in process, by max");
    let places = MAXIMA.map(|max| {
        let (limit, subjects) = (limit(max, HOUR), subjects(1));
        let limiter = limiter(MemoryStore::new(Clock::System));
        fill_in_process(&limiter, &limit, &subjects, max.into());
        enter_in_process(&mut contest, &format!("max = {max}"), limiter, limit, subjects)
    });
    for place in &places[1..] {
        contest.compare(*place, places[0], None);
    }
    contest.run(ROUNDS)
}

fn maxima_on_redis(runtime: &Runtime) -> bool {
    let server = RedisServer::start();
    let mut contest = Contest::new("refusals on Redis, by max");
    let places = MAXIMA.map(|max| {
        let rules = vec![Rule::sliding(max, HOUR, RuleAction::Block)];
        let limit = Limit::new(format!("max-{max}"), rules, LimitMode::Enforce).expect("a fine limit");
        let (limiter, subjects) = (store(runtime, &server, |store| store), subjects(1));
        fill_on_redis(runtime, &limiter, &limit, &subjects, max.into());
        enter_on_redis(&mut contest, &format!("max = {max}"), runtime, limiter, limit, subjects)
    });
    for place in &places[1..] {
        contest.compare(*place, places[0], None);
    }
    contest.run(ROUNDS)
}

fn fill_in_process(limiter: &Limiter<MemoryStore>, limit: &Limit, subjects: &[String], hits: u64) {
    for turn in 0..subjects.len() as u64 * hits {
        decide_in_process(limiter, limit, subjects, turn);
    }
}

fn decide_in_process(limiter: &Limiter<MemoryStore>, limit: &Limit, subjects: &[String], turn: u64) {
    let bucket = limiter.bucket(limit, subjects[turn as usize % subjects.len()].as_bytes());
    let ask = ReserveRequest {
        buckets: &[bucket],
        id: support::id(turn),
        kind: ReserveKind::Hit,
        solved: false,
        complete: None,
    };
    black_box(limiter.store().reserve_now(&ask));
}

fn enter_in_process<'c>(
    contest: &mut Contest<'c>,
    name: &str,
    limiter: Limiter<MemoryStore>,
    limit: Limit,
    subjects: Vec<String>,
) -> contest::Place {
    let mut next = 0;
    contest.enter(name, move || {
        next += 200_000;
        contest::time(200_000, |turn| decide_in_process(&limiter, &limit, &subjects, next + turn))
    })
}

fn fill_on_redis(
    runtime: &Runtime,
    limiter: &Limiter<RedisStore>,
    limit: &Limit,
    subjects: &[String],
    hits: u64,
) {
    let decide = deciding(limiter.clone(), limit.clone(), subjects.to_vec());
    drive(runtime, 1, 0, subjects.len() as u64 * hits % CALLERS, &decide);
    drive(runtime, CALLERS, 0, subjects.len() as u64 * hits, &decide);
}

fn enter_on_redis<'c>(
    contest: &mut Contest<'c>,
    name: &str,
    runtime: &'c Runtime,
    limiter: Limiter<RedisStore>,
    limit: Limit,
    subjects: Vec<String>,
) -> contest::Place {
    let (decide, mut next) = (deciding(limiter, limit, subjects), 0);
    contest.enter(name, move || {
        let round = drive(runtime, CALLERS, next, 16_000, &decide);
        next += round.decisions;
        round
    })
}

fn deciding(limiter: Limiter<RedisStore>, limit: Limit, subjects: Vec<String>) -> Rc<impl AsyncFn(u64)> {
    Rc::new(async move |turn| {
        let bucket = limiter.bucket(&limit, subjects[turn as usize % subjects.len()].as_bytes());
        black_box(limiter.reserve(&[bucket], false).await.expect("the server answers"));
    })
}

/// Bytes allocated by this program.
static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: passes everything on to the system's allocator, and only counts.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}
