//! What the script costs the Redis server, by the server's own count. How to run and read it: benches/README.md.

mod support;

use std::time::Duration;

use gatehouse_limiter::*;
use redis::{Cmd, Connection};
use support::contest::{self, median, verdict};
use support::harness::redis::RedisServer;
use support::redis::{runtime, store};
use support::{HOUR, cores, id, limit};

const MAX: u32 = 5;
const SUBJECTS: u64 = 200;
const ROUNDS: u64 = 60;
/// So short that what was written before has left it.
const SHORT: Duration = Duration::from_millis(100);

/// What everybody writes first: one rule, the time by the server, no holds.
const PLAIN: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local key, max, window = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', key, '-inf', now - window)
local count = redis.call('ZCARD', key)
if count < max then
  redis.call('ZADD', key, now, ARGV[1])
  redis.call('PEXPIRE', key, ARGV[4])
  return { 0, max - count - 1 }
end
return { 2, redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2] + window - now }
";
const TIME: &str = "return redis.call('TIME')";

fn main() {
    let cores = cores::pin_to_one();
    println!("script: microseconds of the server for one call, {cores}; medians of {ROUNDS} rounds in turn");
    let (runtime, server) = (runtime(), RedisServer::start());
    let store = store(&runtime, &server, |store| store);
    let mut bench = Bench { connection: server.connection(), store, ids: 0 };
    let met = bench.refusals() & bench.admissions();
    contest::end(met);
}

struct Bench {
    connection: Connection,
    store: Limiter<RedisStore>,
    ids: u64,
}

/// A call for a subject of a round.
type Call<'a> = &'a dyn Fn(&mut Bench, u64, u64) -> Cmd;

/// Calls that are measured, each for a subject of its own, and how often they are made beforehand, uncounted.
struct Contestant<'a> {
    name: &'static str,
    call: Call<'a>,
    before: Before,
    /// The contestant to compare with, and the most that it may cost in its measure.
    rival: Option<(usize, Option<f64>)>,
}

#[derive(Clone, Copy)]
enum Before {
    /// So often in each round, for the subjects of that round.
    Each(u32),
    /// So often before the first round, for subjects that stay.
    Once(u32),
    /// The same, and since the round before so long ago that a window of [`SHORT`] is over.
    Lapsed(u32),
}

impl Bench {
    fn refusals(&mut self) -> bool {
        let time = self.load(TIME);
        let one = limit(MAX, HOUR);
        let login =
            [Rule::sliding(3, HOUR, RuleAction::Captcha), Rule::sliding(20, 2 * HOUR, RuleAction::Block)];
        let login = Limit::new("login-account", login.to_vec(), LimitMode::Enforce).expect("a limit");
        let rival = |bar| Some((0, bar));
        self.table(
            "refused",
            &[
                Contestant {
                    name: "EVALSHA of TIME",
                    call: &|_, _, _| evalsha(&time, &[]),
                    before: Before::Once(0),
                    rival: None,
                },
                Contestant {
                    name: "one rule",
                    call: &|bench, _, subject| bench.ask(&one, "one", subject, ReserveKind::Hit),
                    before: Before::Once(MAX),
                    rival: rival(Some(2.7)),
                },
                Contestant {
                    name: "two rules, as login-account",
                    call: &|bench, _, subject| bench.ask(&login, "login", subject, ReserveKind::Hit),
                    before: Before::Once(3),
                    rival: rival(None),
                },
            ],
        )
    }

    fn admissions(&mut self) -> bool {
        let plain = self.load(PLAIN);
        let (hour, short) = (limit(MAX, HOUR), limit(MAX, SHORT));
        let plainly = |name: &'static str, window: Duration| {
            let plain = plain.clone();
            move |bench: &mut Bench, round: u64, subject: u64| {
                let mut command = evalsha(&plain, &[format!("plain:{name}:{round:06}:{subject:016}")]);
                command.arg(&bench.id().0).arg(MAX).arg(window.as_micros() as u64).arg(3_610_001);
                command
            }
        };
        let ours = |name: &'static str, limit: Limit| {
            move |bench: &mut Bench, round: u64, subject: u64| {
                bench.ask(&limit, &format!("{name}:{round}"), subject, ReserveKind::Hit)
            }
        };
        let states = [
            ("a new log", Before::Each(0), HOUR, &hour),
            ("the third of five", Before::Each(2), HOUR, &hour),
            ("a log of five that have left", Before::Lapsed(MAX), SHORT, &short),
        ];
        let mut met = true;
        for (state, before, window, limit) in states {
            let (plain, ours) = (plainly(state, window), ours(state, limit.clone()));
            met &= self.table(
                state,
                &[
                    Contestant { name: "a plain log of one rule", call: &plain, before, rival: None },
                    Contestant { name: "the script", call: &ours, before, rival: Some((0, Some(1.5))) },
                ],
            );
        }
        met
    }

    /// Measures contestants in turn and prints what one call of each costs.
    fn table(&mut self, title: &str, contestants: &[Contestant<'_>]) -> bool {
        redis::cmd("FLUSHALL").exec(&mut self.connection).expect("an answer");
        let mut costs = vec![Vec::new(); contestants.len()];
        for round in 0..=ROUNDS {
            for (contestant, costs) in contestants.iter().zip(&mut costs) {
                let cost = self.round(contestant, round);
                if round > 0 {
                    costs.push(cost);
                }
            }
        }
        println!("\n{title}");
        let mut met = true;
        for (contestant, own) in contestants.iter().zip(&costs) {
            let versus = contestant.rival.map_or(String::new(), |(rival, bar)| {
                let ratio = median(own.iter().zip(&costs[rival]).map(|(own, other)| own / other).collect());
                let passed = bar.is_none_or(|bar| ratio <= bar);
                met &= passed;
                format!("{ratio:5.2} × {}{}", contestants[rival].name, verdict(bar, passed, "≤"))
            });
            println!("  {:<32} {:>6.2} µs  {versus}", contestant.name, median(own.clone()));
        }
        met
    }

    /// Microseconds of one call. Each waits for its answer, as those of one caller do.
    fn round(&mut self, contestant: &Contestant<'_>, round: u64) -> f64 {
        let (times, round) = match contestant.before {
            Before::Each(times) => (times, round),
            Before::Once(times) | Before::Lapsed(times) => (if round == 0 { times } else { 0 }, 0),
        };
        for subject in (0..times).flat_map(|_| 0..SUBJECTS) {
            (contestant.call)(self, round, subject).exec(&mut self.connection).expect("an answer");
        }
        if matches!(contestant.before, Before::Lapsed(_)) {
            self.wait_until_short_windows_are_over();
        }
        let commands: Vec<Cmd> =
            (0..SUBJECTS).map(|subject| (contestant.call)(self, round, subject)).collect();
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection).expect("an answer");
        for command in commands {
            command.exec(&mut self.connection).expect("an answer");
        }
        self.cost_of_a_call()
    }

    /// By the server's own clock, which no bench sets.
    fn wait_until_short_windows_are_over(&self) {
        std::thread::sleep(SHORT);
    }

    fn cost_of_a_call(&mut self) -> f64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut self.connection).expect("an answer");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:")).expect("calls");
        let figure = |name: &str| -> f64 {
            let figure = line.split(',').find_map(|figure| figure.strip_prefix(name)).expect("a figure");
            figure.parse().expect("a number")
        };
        figure("usec=") / figure("calls=")
    }

    /// A reservation as the store sends it.
    fn ask(&mut self, limit: &Limit, name: &str, subject: u64, kind: ReserveKind) -> Cmd {
        let bucket = self.store.bucket(limit, format!("{name}:{subject}").as_bytes());
        let id = self.id();
        self.store.store().reservation(&ReserveRequest {
            buckets: &[bucket],
            id,
            kind,
            solved: false,
            complete: None,
        })
    }

    fn id(&mut self) -> HitId {
        self.ids += 1;
        id(self.ids)
    }

    fn load(&mut self, script: &str) -> String {
        redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut self.connection).expect("a hash")
    }
}

fn evalsha(script: &str, keys: &[String]) -> Cmd {
    let mut command = redis::cmd("EVALSHA");
    command.arg(script).arg(keys.len()).arg(keys);
    command
}
