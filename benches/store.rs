//! Decisions per second of the Redis store, compared with the most that a client can do and with a rival. How
//! to run and read it: benches/README.md.

mod support;

use std::rc::Rc;
use std::time::Duration;

use actix_extensible_rate_limit::backend::redis::RedisBackend;
use actix_extensible_rate_limit::backend::{Backend, SimpleInput};
use gatehouse_limiter::*;
use redis::{Cmd, Value};
use support::contest::{self, Contest, Place};
use support::harness::redis::RedisServer;
use support::redis::{connection, drive, runtime, store};
use support::{HOUR, cores, limit, subjects};
use tokio::runtime::Runtime;

const MAX: u32 = 5;
const REFUSED: usize = 1_000;
/// So many that none comes back more often than its limit allows, [`MAX`] in [`SHORT`].
const ADMITTED: usize = 24_000;
const SHORT: Duration = Duration::from_millis(100);
const ROUNDS: usize = 15;

fn main() {
    let cores = cores::pin_to_one();
    println!("store: one Redis server and one client thread, {cores}; medians of {ROUNDS} rounds in turn");
    let (runtime, server) = (runtime(), RedisServer::start());
    let bench = Bench { runtime: &runtime, server: &server };
    let mut met = true;
    for callers in [1, 64] {
        met &= bench.table(callers, Answer::Refused);
        met &= bench.table(callers, Answer::Admitted);
    }
    contest::end(met);
}

struct Bench<'a> {
    runtime: &'a Runtime,
    server: &'a RedisServer,
}

impl Bench<'_> {
    fn table(&self, callers: u64, answer: Answer) -> bool {
        redis::cmd("FLUSHALL").exec(&mut self.server.connection()).unwrap();
        let store = store(self.runtime, self.server, |store| store);
        let remembering = support::redis::store(self.runtime, self.server, RedisStore::remembering_refusals);
        let (limit, subjects) = match answer {
            Answer::Refused => (limit(MAX, HOUR), subjects(REFUSED)),
            Answer::Admitted => (limit(MAX, SHORT), subjects(ADMITTED)),
        };
        if answer == Answer::Refused {
            self.fill(&store, &limit, &subjects);
        }
        let mut contest = Contest::new(format!("{answer:?}, {callers} at once"));
        let ping = self.enter_ping(&mut contest, callers);
        let bare = self.enter_bare(&mut contest, callers, bare_commands(&store, &limit, &subjects), answer);
        let [at_hand, hashed] = self.enter_ours(&mut contest, callers, &store, &limit, &subjects, answer);
        let hot = self.enter_hashed(&mut contest, callers, &remembering, &limit, &subjects, answer);
        let rival = self.enter_rival(&mut contest, callers, subjects, answer);
        contest.compare(bare, ping, None);
        contest.compare(at_hand, bare, Some(0.9));
        contest.compare(hashed, rival, None);
        contest.compare(hot, rival, (answer == Answer::Refused && callers > 1).then_some(1.0));
        contest.run(ROUNDS)
    }

    fn fill(&self, store: &Limiter<RedisStore>, limit: &Limit, subjects: &[String]) {
        for subject in subjects {
            for _ in 0..MAX {
                let bucket = store.bucket(limit, subject.as_bytes());
                self.runtime.block_on(store.reserve(&[bucket], false)).unwrap();
            }
        }
    }

    /// Adds a contestant; its decisions are numbered across rounds.
    fn enter<'c, D>(&'c self, contest: &mut Contest<'c>, name: &str, callers: u64, decide: D) -> Place
    where
        D: AsyncFn(u64) + 'static,
    {
        let decisions = if callers == 1 { 4_000 } else { 16_000 };
        let (decide, mut next) = (Rc::new(decide), 0);
        contest.enter(name, move || {
            let round = drive(self.runtime, callers, next, decisions, &decide);
            next += round.decisions;
            round
        })
    }

    /// The cost for any client of asking the server at all.
    fn enter_ping<'c>(&'c self, contest: &mut Contest<'c>, callers: u64) -> Place {
        let connection = connection(self.runtime, self.server);
        self.enter(contest, "PING", callers, async move |_| {
            connection.clone().send_packed_command(&redis::cmd("PING")).await.unwrap();
        })
    }

    /// The store's own script with every command prepared beforehand.
    fn enter_bare<'c>(
        &'c self,
        contest: &mut Contest<'c>,
        callers: u64,
        commands: Vec<Cmd>,
        expected: Answer,
    ) -> Place {
        let connection = connection(self.runtime, self.server);
        self.enter(contest, "the same script, bare", callers, async move |turn| {
            let command = &commands[turn as usize % commands.len()];
            let reply = connection.clone().send_packed_command(command).await.unwrap();
            let verdict = match reply {
                Value::Array(reply) => reply[0].clone(),
                Value::BulkString(text) => Value::Int(i64::from(text[0] - b'0')),
                other => other,
            };
            assert_eq!(verdict, Value::Int(expected as i64));
        })
    }

    /// The store with prepared buckets, and with each subject hashed when it comes.
    fn enter_ours<'c>(
        &'c self,
        contest: &mut Contest<'c>,
        callers: u64,
        store: &Limiter<RedisStore>,
        limit: &Limit,
        subjects: &[String],
        expected: Answer,
    ) -> [Place; 2] {
        let subjects = subjects.to_vec();
        let bucket = |subject: &String| store.bucket(limit, subject.as_bytes()).to_owned();
        let buckets: Vec<OwnedBucket> = subjects.iter().map(bucket).collect();
        let limiter = store.clone();
        let prepared = self.enter(contest, "RedisStore, bucket at hand", callers, async move |turn| {
            let bucket = buckets[turn as usize % buckets.len()].borrow();
            expected.check(limiter.reserve(&[bucket], false).await.unwrap());
        });
        let hashed = self.enter_hashed(contest, callers, store, limit, &subjects, expected);
        [prepared, hashed]
    }

    fn enter_hashed<'c>(
        &'c self,
        contest: &mut Contest<'c>,
        callers: u64,
        store: &Limiter<RedisStore>,
        limit: &Limit,
        subjects: &[String],
        expected: Answer,
    ) -> Place {
        let (limiter, limit, subjects) = (store.clone(), limit.clone(), subjects.to_vec());
        let name = if store.store().remembers() {
            "… remembering refusals"
        } else {
            "RedisStore, bucket() + reserve"
        };
        self.enter(contest, name, callers, async move |turn| {
            let bucket = limiter.bucket(&limit, subjects[turn as usize % subjects.len()].as_bytes());
            expected.check(limiter.reserve(&[bucket], false).await.unwrap());
        })
    }

    /// A fixed-window counter, with its own client's default settings.
    fn enter_rival<'c>(
        &'c self,
        contest: &mut Contest<'c>,
        callers: u64,
        subjects: Vec<String>,
        expected: Answer,
    ) -> Place {
        let client = peer_redis::Client::open(self.server.url()).unwrap();
        let manager = self.runtime.block_on(peer_redis::aio::ConnectionManager::new(client)).unwrap();
        let backend = RedisBackend::builder(manager).key_prefix(Some("rival:")).build();
        let max_requests = if expected == Answer::Refused { 0 } else { u64::from(u32::MAX) };
        self.enter(contest, "actix-extensible-rate-limit", callers, async move |turn| {
            let key = subjects[turn as usize % subjects.len()].clone();
            let (decision, ..) =
                backend.request(SimpleInput { interval: HOUR, max_requests, key }).await.unwrap();
            assert_eq!(decision.is_denied(), expected == Answer::Refused);
        })
    }
}

/// The expected result of every decision of a table; the numbers are the script's.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Admitted = 0,
    Refused = 2,
}

impl Answer {
    fn check(self, decision: HitDecision) {
        assert_eq!(matches!(decision, HitDecision::Refused(_)), self == Self::Refused, "{decision:?}");
    }
}

/// The commands that the store sends for these subjects, in turn and with different ids: so many that an id
/// has left its log before it comes again.
fn bare_commands(store: &Limiter<RedisStore>, limit: &Limit, subjects: &[String]) -> Vec<Cmd> {
    let one = |turn: u32, subject: &String| {
        let bucket = store.bucket(limit, subject.as_bytes());
        let ask = ReserveRequest {
            buckets: &[bucket],
            id: support::id(turn.into()),
            kind: ReserveKind::Hit,
            solved: false,
            complete: None,
        };
        store.store().reservation(&ask)
    };
    (0..=MAX).flat_map(|turn| subjects.iter().map(move |subject| one(turn, subject))).collect()
}
