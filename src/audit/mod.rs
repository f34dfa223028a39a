//! Security events: what was tried, how it ended and why, for the console and for trying out new limits.
//!
//! [`Audit::record`] never waits and never fails: repetitions are folded (`episodes.rs`), the rest waits in
//! memory for the task that writes it (`writer.rs`), and beyond the bounds of both, events are dropped and
//! counted. Nothing is stored in clear: a subject is a keyed hash to find it by, and a mask.

mod attack;
mod episodes;
mod event;
mod log;
mod sums;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gatehouse_limiter::Refusal;
use metrics::Counter;

use crate::clock::{Clock, Micros};
use crate::db::DbError;
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::SubKey;
use crate::stop::StopSignal;

pub use crate::config::AuditSettings as Settings;
pub use attack::{
    AttackEntry, AttackFigures, AttackShare, AttackState, AttackWatch, OriginShare, recent_length,
};
use episodes::EpisodeTable;
pub use event::{
    Action, AttackKind, AuditEvent, DEVICE, DEVICE_FIRST, EventEntry, EventRule, EventSubject, FROM_DEVICE,
    Fate, KEY, MaskedSubject, NOT_FORGIVEN, Outcome, REPEAT, SubjectKind, UNCOUNTED_REGISTRATIONS, mask,
    with_repeat, words_of,
};
pub use log::{
    BusiestSubjects, EventCursor, EventFilter, EventLog, EventPage, FailedAttempts, FailureSummary,
    NewsEntry, RankedSubject, SEARCHED, SharedAddress, TOP_ROWS,
};
pub use sums::{EventCount, MINUTE, StepSpan, floor};
use writer::{EventKeys, EventWriter};

/// Between two checks for rows to write.
const WRITE_EVERY: Duration = Duration::from_millis(500);
/// Between two counts of all rows if this process wrote few: other instances write, too.
const COUNT_EVERY: Duration = Duration::from_secs(60 * 60);
/// Between two counts while there are too many: other instances delete, too.
const RECOUNT_EVERY: Duration = Duration::from_secs(5 * 60);
/// Counting ten million rows takes SQLite most of a second, so it is done once per this fraction of the
/// maximum written.
const COUNTED_SHARE: u64 = 100;

#[derive(Clone)]
pub struct Audit(Arc<AuditInner>);

struct AuditInner {
    clock: Clock,
    entropy: Entropy,
    key: SubKey,
    settings: Settings,
    episodes: EpisodeTable,
    writer: EventWriter,
    log: EventLog,
    excess: Mutex<RowExcess>,
    folded: Counter,
    recorded: AtomicU32,
}

/// The number of excess rows when they were last counted.
#[derive(Default)]
struct RowExcess {
    at: Option<Micros>,
    /// Rows that this process had written by then.
    written: u64,
    excess: u64,
}

impl Audit {
    /// Subjects are found by hashes under a key; every instance on one database needs the same.
    pub fn new(foundation: &Foundation, settings: Settings) -> Self {
        let Foundation { db, clock, entropy, secrets } = foundation.clone();
        Self(Arc::new(AuditInner {
            clock,
            entropy,
            key: secrets.derive("audit.subject"),
            settings,
            episodes: EpisodeTable::default(),
            writer: EventWriter::new(db.clone()),
            log: EventLog { db },
            excess: Mutex::default(),
            folded: metrics::counter!("gatehouse_audit_events_total", "fate" => "folded"),
            recorded: AtomicU32::new(0),
        }))
    }

    /// Never waits for the database, and never fails.
    pub fn record(&self, event: AuditEvent<'_>) {
        let AuditInner { episodes, writer, .. } = &*self.0;
        let keys = self.keys(&event);
        let begin = |keys| EventEntry::of(&event, keys, self.id());
        let recording = episodes::recording(&event);
        if episodes.fold((&event, recording), keys, self.0.clock.now(), begin, |row| writer.push(row)) {
            self.0.folded.increment(1);
        }
    }

    /// An action in the console: `who` did `name`, or was not allowed to.
    pub fn act(&self, name: &str, outcome: Outcome, who: ConsoleActor<'_>, detail: Option<String>) {
        let ConsoleActor { actor, account, address } = who;
        let event = AuditEvent::new(self.0.clock.now(), Action::Admin, outcome);
        self.record(AuditEvent { name: Some(name), actor, account, address, detail, ..event });
    }

    /// When this returns, everything recorded before is in the database, if that accepts it. Used by readers
    /// and at shutdown.
    pub async fn flush(&self) {
        self.end_episodes(true);
        self.0.writer.write().await;
    }

    pub fn log(&self) -> &EventLog {
        &self.0.log
    }

    /// The time of an event for which no store has given one.
    pub fn now(&self) -> Micros {
        self.0.clock.now()
    }

    /// When a refusal was decided, also if no hit caused it.
    pub fn decided(&self, refusal: &Refusal) -> Micros {
        if refusal.frees_at == Micros(0) { self.now() } else { refusal.at() }
    }

    pub fn subject(&self, subject: &EventSubject<'_>) -> i64 {
        let (tag, input) = match subject.input() {
            Ok(input) => input,
            Err(key) => return key,
        };
        let hash = self.0.key.short_hash(tag, input);
        i64::from_le_bytes(*hash.first_chunk().expect("16 bytes hold 8"))
    }

    /// Writes what is due until it is stopped, and then ends between two writes. Spawn it once.
    pub async fn keep_writing(self, mut stop: StopSignal) {
        let mut tick = tokio::time::interval(WRITE_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.told() => return,
                _ = tick.tick() => self.end_episodes(false),
                () = self.0.writer.batch.notified() => {}
            }
            self.0.writer.write().await;
        }
    }

    /// The number of open episodes and of waiting rows, which are what it holds in memory.
    pub fn held(&self) -> (usize, usize) {
        (self.0.episodes.len(), self.0.writer.len())
    }

    pub fn lost(&self) -> u64 {
        self.0.writer.lost()
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Deletes events that are older than the retention, or more than the maximum number of rows: at most `batch` rows.
    /// Returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        let old = self.0.log.purge_before(self.kept_from(), batch).await?;
        let excess = if old > 0 { 0 } else { self.excess().await? };
        if excess == 0 {
            return Ok(old);
        }
        let most = u32::try_from(excess).unwrap_or(batch).min(batch);
        let gone = self.0.log.purge_oldest(most).await?;
        let mut counted = self.counted_excess();
        counted.excess = counted.excess.saturating_sub(gone);
        Ok(gone)
    }

    /// Deletes old sums, whatever their number, and of attacks.
    pub async fn purge_sums(&self, batch: u32) -> Result<u64, DbError> {
        let (log, before) = (&self.0.log, self.kept_from());
        attack::purge(&log.db, before).await?;
        log.purge_counts(before, batch).await
    }

    fn kept_from(&self) -> Micros {
        self.0.clock.now().minus(self.0.settings.retention)
    }

    /// The number of excess rows, counted again when it is time.
    async fn excess(&self) -> Result<u64, DbError> {
        let (now, written) = (self.0.clock.now(), self.0.writer.rows_written());
        let most = u64::from(self.0.settings.max_rows);
        {
            let counted = self.counted_excess();
            let draining = counted.excess > 0;
            let every = if draining { RECOUNT_EVERY } else { COUNT_EVERY };
            let fresh = counted.at.is_some_and(|at| now.since(at) < every);
            if fresh && (draining || written - counted.written < most / COUNTED_SHARE) {
                return Ok(counted.excess);
            }
        }
        let excess = self.0.log.count().await?.saturating_sub(most);
        *self.counted_excess() = RowExcess { at: Some(now), written, excess };
        Ok(excess)
    }

    fn counted_excess(&self) -> MutexGuard<'_, RowExcess> {
        self.0.excess.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end_episodes(&self, all: bool) {
        let now = (!all).then(|| self.0.clock.now());
        self.0.episodes.end(now, |row| self.0.writer.push(row));
    }

    fn keys(&self, event: &AuditEvent<'_>) -> EventKeys {
        let key = |subject: &Option<EventSubject<'_>>| subject.as_ref().map(|subject| self.subject(subject));
        EventKeys {
            account: key(&event.account),
            address: key(&event.address),
            network: key(&event.network),
            phone: key(&event.phone),
            prefix: key(&event.prefix),
        }
    }

    /// Events that one process recorded in the same microsecond keep their order; those of several processes
    /// are ordered randomly.
    fn id(&self) -> i64 {
        let number = self.0.recorded.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1);
        i64::from(number) << 32 | i64::from(u32::from_le_bytes(self.0.entropy.bytes()))
    }
}

#[derive(Clone, Copy, Default)]
pub struct ConsoleActor<'a> {
    /// The id of the session's account.
    pub actor: Option<&'a str>,
    pub account: Option<EventSubject<'a>>,
    pub address: Option<EventSubject<'a>>,
}
