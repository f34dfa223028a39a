//! Writes rows in batches, apart from the requests that they come from. If the database does not accept them,
//! it tries again; what waits meanwhile is bounded, and what does not fit is counted.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use metrics::Counter;
use sqlx::{AssertSqlSafe, QueryBuilder, query, query_scalar};

use super::event::{Action, AuditEvent, EventEntry, EventSubject, MaskedSubject, mask};
use super::log::COLUMNS;
use super::sums::counted_by;
use crate::db::{Db, DbError, Tx, execute, on_tx};
use crate::request_id::RequestId;

const BATCH: usize = 500;
/// Rows of one statement. SQLite compares each of its values with all the others, so that ten times as many
/// rows would take ten times as long per row.
const AT_ONCE: usize = 20;
/// Rows that may wait, some ten megabytes: twice as many as all episodes that can be open at once.
const MOST_WAITING: usize = 32_768;
const MINUTE: i64 = 60_000_000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct EventKeys {
    pub account: Option<i64>,
    pub address: Option<i64>,
    pub network: Option<i64>,
    pub phone: Option<i64>,
    pub prefix: Option<i64>,
}

/// The maximum size of a detail in bytes. Details come from us, but a reason is typed by somebody.
const LONGEST_DETAIL: usize = 4096;

impl EventEntry {
    /// Only subjects with a key. The id increases with each row of this process, and ends in random bits.
    pub(super) fn of(event: &AuditEvent<'_>, keys: EventKeys, id: i64) -> Self {
        let shown = |key: Option<i64>, subject: &Option<EventSubject<'_>>| {
            Some(MaskedSubject { key: key?, mask: subject.as_ref().map(mask).unwrap_or_default() })
        };
        Self {
            at: event.at,
            id,
            until: event.settled.unwrap_or(event.at),
            count: 1,
            action: event.action,
            outcome: event.outcome,
            name: event.name.map(str::to_owned),
            limit: event.why.map(|why| why.limit).or(event.limit).map(str::to_owned),
            rule: event.why.map(|why| why.rule as i64),
            noted: event.why.is_some_and(|why| why.noted),
            solved: event.solved,
            account: shown(keys.account, &event.account),
            address: shown(keys.address, &event.address),
            network: shown(keys.network, &event.network),
            phone: shown(keys.phone, &event.phone),
            prefix: shown(keys.prefix, &event.prefix),
            actor: event.actor.map(str::to_owned),
            detail: event
                .detail
                .as_deref()
                .map(|text| text[..text.floor_char_boundary(LONGEST_DETAIL)].to_owned()),
            request: RequestId::current().map(|id| id.as_str().to_owned()),
            hits: None,
        }
    }
}

pub struct EventWriter {
    db: Db,
    waiting: Mutex<VecDeque<EventEntry>>,
    pub batch: tokio::sync::Notify,
    /// The rows being written, until the database has confirmed them.
    in_hand: tokio::sync::Mutex<Vec<EventEntry>>,
    failing: AtomicBool,
    full: AtomicBool,
    rows: AtomicU64,
    written: Counter,
    dropped: Counter,
    lost: AtomicU64,
}

impl EventWriter {
    pub fn new(db: Db) -> Self {
        let counter = |fate| metrics::counter!("gatehouse_audit_events_total", "fate" => fate);
        Self {
            db,
            waiting: Mutex::default(),
            batch: tokio::sync::Notify::new(),
            in_hand: tokio::sync::Mutex::default(),
            failing: AtomicBool::new(false),
            full: AtomicBool::new(false),
            rows: AtomicU64::new(0),
            written: counter("written"),
            dropped: counter("dropped"),
            lost: AtomicU64::new(0),
        }
    }

    /// Adds a row if there is room; never waits for the database.
    pub fn push(&self, row: EventEntry) {
        let mut waiting = self.waiting();
        if waiting.len() >= MOST_WAITING {
            drop(waiting);
            self.lose(&row);
            if !self.full.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "security events are lost: the database does not store them, and the queue in memory is full"
                );
            }
            return;
        }
        waiting.push_back(row);
        if waiting.len() == BATCH {
            self.batch.notify_one();
        }
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub fn len(&self) -> usize {
        self.waiting().len()
    }

    pub fn rows_written(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Writes what waits now. Stops at the first failure, which leaves everything in place.
    pub async fn write(&self) {
        let mut in_hand = self.in_hand.lock().await;
        let mut due = self.len() + in_hand.len();
        while due > 0 {
            if in_hand.is_empty() {
                let mut waiting = self.waiting();
                let most = BATCH.min(waiting.len());
                in_hand.extend(waiting.drain(..most));
            }
            if in_hand.is_empty() {
                return;
            }
            let many = in_hand.len();
            let written = match insert(&self.db, &in_hand).await {
                Ok(()) => {
                    self.wrote(many);
                    in_hand.clear();
                    Ok(())
                }
                Err(error) if error.is_about_values() => self.write_each(&mut in_hand).await,
                other => other,
            };
            if let Err(error) = written {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "security events wait in memory: the database does not store them");
                }
                return;
            }
            due = due.saturating_sub(many);
            self.full.store(false, Ordering::Relaxed);
            if self.failing.swap(false, Ordering::Relaxed) {
                tracing::info!("the database stores security events again");
            }
        }
    }

    /// One by one, so that a row which the database never accepts does not keep all others waiting: that one
    /// is lost, and counted.
    async fn write_each(&self, rows: &mut Vec<EventEntry>) -> Result<(), DbError> {
        while let Some(row) = rows.last() {
            match insert(&self.db, std::slice::from_ref(row)).await {
                Ok(()) => self.wrote(1),
                Err(error) if error.is_about_values() => {
                    self.lose(row);
                    tracing::error!(%error, "a security event is lost: the database refused it");
                }
                other => return other,
            }
            rows.pop();
        }
        Ok(())
    }

    fn wrote(&self, rows: usize) {
        self.written.increment(rows as u64);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    fn lose(&self, row: &EventEntry) {
        self.dropped.increment(row.count as u64);
        self.lost.fetch_add(row.count as u64, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<EventEntry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All rows or none, together with their sums. Written once, even if the database wrote them before and its
/// answer was lost.
async fn insert(db: &Db, rows: &[EventEntry]) -> Result<(), DbError> {
    let mut tx = db.begin().await?;
    let numbered = number_news(&mut tx, rows).await?;
    let whole = numbered.chunks_exact(AT_ONCE);
    let rest = whole.remainder();
    let mut written = 0;
    // Statements of only two lengths, each of which is prepared once.
    for some in whole.chain(rest.chunks(1)) {
        written += insert_rows(&mut tx, some).await?;
    }
    if written > 0 {
        add_up(&mut tx, rows).await?;
    }
    tx.commit().await
}

/// Each with its number, if it is news. Nobody else numbers any until this is committed or given up, so that a number is
/// seen after all smaller ones.
async fn number_news<'r>(
    tx: &mut Tx,
    rows: &'r [EventEntry],
) -> Result<Vec<(&'r EventEntry, Option<i64>)>, DbError> {
    const SQL: &str = "UPDATE event_news SET newest = newest + $1 RETURNING newest - $1";
    let count = rows.iter().filter(|row| row.is_news()).count() as i64;
    let mut last = 0;
    if count > 0 {
        last = on_tx!(tx, connection => query_scalar(SQL).bind(count).fetch_one(connection).await)?;
    }
    let mut number = |row: &EventEntry| {
        row.is_news().then(|| {
            last += 1;
            last
        })
    };
    Ok(rows.iter().map(|row| (row, number(row))).collect())
}

async fn insert_rows(tx: &mut Tx, rows: &[(&EventEntry, Option<i64>)]) -> Result<u64, DbError> {
    let key = |subject: &Option<MaskedSubject>| subject.as_ref().map(|subject| subject.key);
    let mask = |subject: Option<&MaskedSubject>| subject.map(|subject| subject.mask.clone());
    Ok(on_tx!(tx, connection => {
        let mut statement = QueryBuilder::new(format!("INSERT INTO events ({COLUMNS}, news) "));
        statement.push_values(rows, |mut values, (row, news)| {
            values.push_bind(row.at.0).push_bind(row.id).push_bind(row.until.0).push_bind(row.count)
                .push_bind(row.action.into_str()).push_bind(row.outcome.into_str())
                .push_bind(row.name.as_deref()).push_bind(row.limit.as_deref()).push_bind(row.rule)
                .push_bind(i64::from(row.noted)).push_bind(i64::from(row.solved))
                .push_bind(key(&row.account)).push_bind(key(&row.address)).push_bind(key(&row.network))
                .push_bind(key(&row.phone)).push_bind(key(&row.prefix)).push_bind(mask(row.account.as_ref()))
                .push_bind(mask(row.address.as_ref().or(row.network.as_ref())))
                .push_bind(mask(row.phone.as_ref().or(row.prefix.as_ref()))).push_bind(row.actor.as_deref())
                .push_bind(row.detail.as_deref()).push_bind(row.request.as_deref())
                .push_bind(row.hits.as_deref()).push_bind(*news);
        });
        statement.push(" ON CONFLICT DO NOTHING");
        statement.build().execute(connection).await.map(|done| done.rows_affected())
    })?)
}

/// What a sum is found by: the limit that decided; after a space, the one that counts what it only noted.
fn sum_key(row: &EventEntry) -> Cow<'_, str> {
    match (row.limit.as_deref(), counted_by(row)) {
        (None, by) => by.into(),
        (Some(limit), by) if row.noted && !by.is_empty() => format!("{limit} {by}").into(),
        (Some(limit), _) => limit.into(),
    }
}

/// The sums that are kept: the length of their spans, and the tables of what is here and of other programs' logins.
const SUMS: [(i64, &str, &str); 2] =
    [(MINUTE, "event_counts", "realm_counts"), (15 * MINUTE, "event_quarters", "realm_quarters")];

/// In the order of the keys, so that two instances never deadlock.
async fn add_up(tx: &mut Tx, rows: &[EventEntry]) -> Result<(), DbError> {
    let mut sums = BTreeMap::new();
    for (row, (length, here, realms)) in rows.iter().flat_map(|row| SUMS.map(|sum| (row, sum))) {
        let start = row.at.0 - row.at.0.rem_euclid(length);
        let (table, column, what) = match (row.action, row.name.as_deref()) {
            (Action::Attempt, Some(realm)) => (realms, "realm", realm),
            (action, _) => (here, "action", action.into_str()),
        };
        let key = (table, column, start, what, row.outcome.into_str(), sum_key(row), i64::from(row.noted));
        *sums.entry(key).or_insert(0) += row.count;
    }
    for (key, count) in sums {
        let (table, column, start, what, outcome, limit, noted) = key;
        let sql = format!(
            "INSERT INTO {table} (minute, {column}, outcome, limit_name, noted, count)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (minute, {column}, outcome, limit_name, noted)
            DO UPDATE SET count = {table}.count + excluded.count"
        );
        execute!(in &mut *tx => query(AssertSqlSafe(sql)).bind(start).bind(what).bind(outcome).bind(&*limit)
            .bind(noted).bind(count))?;
    }
    Ok(())
}
