//! Sums of events: over time, from the sums of each minute; by subject, from the newest rows.

use std::time::Duration;

use sqlx::{AssertSqlSafe, query_as};

use super::event::{Action, Outcome};
use super::fate::Fate;
use super::log::{EventLog, MaskedSubject, SubjectKind, action, outcome};
use crate::clock::Micros;
use crate::db::{DbError, on_db};

/// The smallest step in time.
pub const MINUTE: Duration = Duration::from_secs(60);
/// Rows that are searched for a list of subjects: a quarter of a second of SQLite's time.
const MOST_ROWS: i64 = 100_000;

/// Which events are attempts, in SQL: one for each request. A challenge is part of the attempt that it came
/// with, a sign-in by code follows from the guess before it, and a guess at a code for a registration is part
/// of that.
const ATTEMPTS: &str = "action IN ('sign-in', 'attempt', 'register', 'send', 'guess', 'custom', 'request')
    AND action || ' ' || COALESCE(name, '') NOT IN ('sign-in code', 'guess register')";

/// How often one thing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    pub action: Action,
    /// Of an attempt at another program's login; empty for everything else.
    pub realm: String,
    pub outcome: Outcome,
    /// The one that decided, or noted; of what was admitted, one that counts it and no other of its kind. Otherwise
    /// empty.
    pub limit: String,
    /// The same, except for what a limit only noted.
    pub counted_by: String,
    pub noted: bool,
    pub count: i64,
}

impl EventCount {
    pub const fn fate(&self) -> Fate {
        self.outcome.fate(self.noted)
    }
}

/// What happened from `at` until the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FiguresStep {
    pub at: Micros,
    pub sums: Vec<EventCount>,
}

/// A subject, and the number of attempts in which it takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankedSubject {
    pub subject: MaskedSubject,
    pub count: i64,
}

/// The traffic of the busiest address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAddress {
    pub address: MaskedSubject,
    /// Attempts from there, and in total.
    pub count: i64,
    pub of: i64,
    /// Different accounts and names tried from there.
    pub accounts: i64,
}

/// Key and mask of an address, its attempts, the accounts tried from there, all attempts.
type SharedRow = (Option<i64>, Option<String>, i64, i64, i64);
type SumRow = (i64, String, String, String, String, i64, i64);

/// Sums by step and by everything that tells events apart here, from the minute `$1` until `$2`. Each table is summed by
/// itself, which takes SQLite half the time.
fn sums(at: &str, order: &str) -> String {
    let of = |table: &str, action: &str, realm: &str, key: &str| {
        format!(
            "SELECT {at} AS step, {action} AS action, {realm} AS realm, outcome, limit_name, noted,
            CAST(SUM(count) AS BIGINT) AS total FROM {table} WHERE minute >= $1 AND minute < $2
            GROUP BY step, {key}, outcome, limit_name, noted"
        )
    };
    let here = of("event_counts", "action", "''", "action");
    let realms = of("realm_counts", "'attempt'", "realm", "realm");
    format!(
        "SELECT step, action, realm, outcome, limit_name, noted, total
        FROM ({here} UNION ALL {realms}) AS counts ORDER BY {order}, action, realm, outcome, limit_name, noted"
    )
}

impl EventLog {
    /// How often each thing happened, step by step, from `since` (rounded down to a whole step) until
    /// `until`. Steps without events are left out. Reads the sums of minutes: some ten thousand rows for a
    /// day, whatever the traffic was. An episode counts at its start.
    pub async fn series(
        &self,
        since: Micros,
        until: Micros,
        step: Duration,
    ) -> Result<Vec<FiguresStep>, DbError> {
        let sql = sums("CAST(minute / $3 * $3 AS BIGINT)", "step");
        let step = step.max(MINUTE).as_micros() as i64;
        let step = step - step % MINUTE.as_micros() as i64;
        let since = since.0 - since.0.rem_euclid(step);
        let rows: Vec<SumRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since).bind(until.0)
            .bind(step).fetch_all(pool).await)?;
        let mut steps: Vec<FiguresStep> = Vec::new();
        for (at, rest) in rows.into_iter().map(parse) {
            let sum = rest?;
            match steps.last_mut().filter(|step| step.at == at) {
                Some(step) => step.sums.push(sum),
                None => steps.push(FiguresStep { at, sums: vec![sum] }),
            }
        }
        Ok(steps)
    }

    /// How often each thing happened from `since` (rounded down to a whole minute) until `until`, the most
    /// frequent first.
    pub async fn totals(&self, since: Micros, until: Micros) -> Result<Vec<EventCount>, DbError> {
        let sql = sums("CAST(0 AS BIGINT)", "total DESC");
        let since = since.0 - since.0.rem_euclid(MINUTE.as_micros() as i64);
        let rows: Vec<SumRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql)).bind(since).bind(until.0)
            .fetch_all(pool).await)?;
        Ok(rows.into_iter().map(|row| parse(row).1).collect::<Result<_, _>>()?)
    }

    /// The subjects with the most attempts since then, among the newest 100,000 rows.
    pub async fn top(
        &self,
        kind: SubjectKind,
        since: Micros,
        limit: u32,
    ) -> Result<Vec<RankedSubject>, DbError> {
        let (key, mask) = match kind {
            SubjectKind::Account => ("account_key", "account_mask"),
            SubjectKind::Address => ("address_key", "address_mask"),
            SubjectKind::Network => ("network_key", "address_mask"),
            SubjectKind::Phone => ("phone_key", "phone_mask"),
        };
        let sql = format!(
            "SELECT {key}, MAX({mask}), CAST(SUM(count) AS BIGINT) AS total FROM (SELECT {key}, {mask}, count
            FROM events WHERE at >= $1 AND {ATTEMPTS} ORDER BY at DESC, id DESC LIMIT $2) AS newest WHERE {key} IS NOT NULL
            GROUP BY {key} ORDER BY total DESC, {key} LIMIT $3"
        );
        let rows: Vec<(i64, Option<String>, i64)> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql))
            .bind(since.0).bind(MOST_ROWS).bind(i64::from(limit)).fetch_all(pool).await)?;
        let ranked = |(key, mask, count): (i64, Option<String>, i64)| RankedSubject {
            subject: MaskedSubject { key, mask: mask.unwrap_or_default() },
            count,
        };
        Ok(rows.into_iter().map(ranked).collect())
    }

    /// The share of attempts from one address, and at how many accounts. If nearly all come from one, there
    /// is a proxy that we do not trust. Among the newest 100,000 rows; console actions and reloads are not
    /// attempts, and addresses that other programs state say nothing about our proxies. None if there were no
    /// attempts.
    pub async fn shared_address(&self, since: Micros) -> Result<Option<SharedAddress>, DbError> {
        let sql = format!("SELECT address_key, MAX(address_mask), CAST(SUM(count) AS BIGINT) AS total,
            COUNT(DISTINCT account_key), CAST(SUM(SUM(count)) OVER () AS BIGINT)
            FROM (SELECT address_key, address_mask, account_key, count FROM events WHERE at >= $1
            AND {ATTEMPTS} AND action NOT IN ('custom', 'attempt') ORDER BY at DESC, id DESC LIMIT $2) AS newest
            GROUP BY address_key ORDER BY CASE WHEN address_key IS NULL THEN 1 ELSE 0 END, total DESC LIMIT 1");
        let row: Option<SharedRow> = on_db!(&self.db, pool => query_as(AssertSqlSafe(sql))
            .bind(since.0).bind(MOST_ROWS).fetch_optional(pool).await)?;
        let shared = |(key, mask, count, accounts, of): SharedRow| {
            let address = MaskedSubject { key: key?, mask: mask.unwrap_or_default() };
            Some(SharedAddress { address, count, of, accounts })
        };
        Ok(row.and_then(shared))
    }
}

fn parse((at, did, realm, ended, limit, noted, count): SumRow) -> (Micros, Result<EventCount, sqlx::Error>) {
    let sum = || {
        let (action, outcome) = (action(&did)?, outcome(&ended)?);
        let (limit, counted_by) =
            limit.split_once(' ').unwrap_or((&limit, if noted == 0 { &limit } else { "" }));
        let (limit, counted_by) = (limit.to_owned(), counted_by.to_owned());
        Ok(EventCount { action, realm, outcome, limit, counted_by, noted: noted != 0, count })
    };
    (Micros(at), sum())
}
