//! A draft of the limits tried on a million recorded events: how long reading them from SQLite takes, how long
//! the replay, and how much memory both. How to run and read it: benches/README.md.
#![expect(clippy::disallowed_methods, reason = "how long it takes is what is measured")]

use std::time::{Duration, Instant};

use gatehouse::clock::Micros;
use gatehouse::config::Limits;
use gatehouse::db::Db;
use gatehouse::throttle::{Limit, LimitMode, Rule, RuleAction};
use gatehouse::tuning::replay::{read, replay};
use sqlx::{Connection, SqliteConnection};

const EVENTS: i64 = 1_000_000;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// 2026-03-01 12:00:00 UTC.
const BEGIN: i64 = 1_772_366_400_000_000;
const ROUNDS: usize = 5;

/// A day of everything: sign-ins of 200,000 accounts from 50,000 addresses, a tenth of them at a hundred that
/// are attacked, wrong passwords, refusals, messages and guesses. Made by SQLite itself, the same each time.
const FILL: &str = "INSERT INTO events (at, id, until_at, count, action, outcome, limit_name, rule, solved,
        account_key, address_key, network_key, phone_key, prefix_key)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $1),
    kind AS (SELECT i, (i * 7919) % 100 AS k, (i * 104729) % 200000 AS who, (i * 15485863) % 50000 AS place FROM n)
    SELECT $2 + i * 86400, i, $2 + i * 86400 + CASE WHEN k < 70 THEN 90000 ELSE 0 END,
        CASE WHEN k BETWEEN 85 AND 89 THEN 20 ELSE 1 END,
        CASE WHEN k < 90 THEN 'sign-in' WHEN k < 95 THEN 'send' WHEN k < 99 THEN 'guess' ELSE 'register' END,
        CASE WHEN k < 55 THEN 'ok' WHEN k < 85 THEN 'wrong' WHEN k < 90 THEN 'challenged' WHEN k < 95 THEN 'ok'
            WHEN k < 97 THEN 'wrong' ELSE 'ok' END,
        CASE WHEN k BETWEEN 85 AND 89 THEN 'login-account' END, CASE WHEN k BETWEEN 85 AND 89 THEN 0 END,
        CASE WHEN i % 9 = 0 THEN 1 ELSE 0 END,
        CASE WHEN k < 90 THEN CASE WHEN k >= 80 THEN who % 100 ELSE who END * 2654435761 END,
        place * 2246822519, CASE WHEN k BETWEEN 90 AND 94 THEN (place / 16) * 3266489917 END,
        CASE WHEN k BETWEEN 90 AND 98 THEN who * 668265263 END,
        CASE WHEN k BETWEEN 90 AND 94 THEN (who / 500) * 374761393 END
    FROM kind";

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("events.db");
    let url = format!("sqlite://{}", path.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let db = runtime.block_on(fill(&url));
    println!("replay: {EVENTS} events of a day; medians of {ROUNDS} rounds");
    let before = resident();
    let (mut reads, mut kept) = (Vec::new(), None);
    for _ in 0..ROUNDS {
        drop(kept.take());
        let begun = Instant::now();
        kept = Some(runtime.block_on(read(&db, Micros(BEGIN), Micros(BEGIN).plus(DAY), DAY)).expect("read"));
        reads.push(begun.elapsed());
    }
    let kept = kept.expect("read above");
    let held = resident();
    println!("read      {:>8.0?}   rows {}", median(reads), kept.recording.rows.len());
    println!(
        "kept      {:>8} MiB in rows; the process has grown by {} MiB",
        kept.recording.bytes() >> 20,
        (held - before) >> 20
    );
    for (name, limits) in [("unchanged", Limits::default()), ("a draft", draft())] {
        let mut took = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            let replayed = replay(&kept.recording, &Limits::default(), &limits, kept.from);
            took.push(begun.elapsed());
            std::hint::black_box(replayed);
        }
        println!("{name:<9} {:>8.0?}   the most memory so far {} MiB", median(took), peak() >> 20);
    }
}

async fn fill(url: &str) -> Db {
    let db = Db::connect(url).await.expect("a new database");
    let mut own = SqliteConnection::connect(url).await.expect("a connection");
    sqlx::query(FILL).bind(EVENTS).bind(BEGIN).execute(&mut own).await.expect("filled");
    own.close().await.expect("closed");
    db
}

/// One rule tighter, one wider.
fn draft() -> Limits {
    let minute = Duration::from_secs(60);
    let rules = vec![
        Rule::sliding(2, minute, RuleAction::Captcha),
        Rule::sliding(30, 60 * minute, RuleAction::Block),
    ];
    let login_account = Limit::new("login-account", rules, LimitMode::Enforce).expect("within bounds");
    Limits { login_account, ..Limits::default() }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn resident() -> u64 {
    status("VmRSS:")
}

fn peak() -> u64 {
    status("VmHWM:")
}

/// In bytes, as Linux counts it.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
