//! Whether the database answers and takes writes. Probed in the background, so that requests fail
//! immediately while it does not, and so that an instance without traffic knows, too.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use sqlx::{ConnectOptions, PgConnection, query, query_scalar};
use tokio::time::{sleep, timeout};

use super::{Db, DbError, DbLock, OUTAGE, Tx, execute, on_db, reason_of, session};
use crate::clock::Micros;

/// Between two probes.
const EVERY: Duration = Duration::from_secs(1);
/// Between two looks while it is out: another server that takes over is found within two seconds, with one attempt at
/// the old one.
const EVERY_WHILE_OUT: Duration = Duration::from_millis(250);
/// Probes per write, while writes succeed.
const PROBES_A_WRITE: u32 = 5;
/// How long a server may take to answer; and while it is out.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WHILE_OUT: Duration = Duration::from_secs(1);
/// How long [`Db::is_up`] waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a write may take: as long as it may wait for another one.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// PostgreSQL's code for too many connections.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// Just less than a page of SQLite, so that a row needs a page of its own.
const FILLER: usize = 3_500;

/// The state at the last probe; healthy before the first one.
#[derive(Debug, Default)]
pub struct DbHealth {
    unreachable: AtomicBool,
    unwritable: AtomicBool,
    /// One of SQLite's files is not the one that was opened.
    displaced: AtomicBool,
    probes: AtomicI64,
}

impl DbHealth {
    pub fn is_reachable(&self) -> bool {
        !self.unreachable.load(Ordering::Relaxed) && !self.displaced.load(Ordering::Relaxed)
    }

    /// Nothing more is written to files that nobody can open again. Logged once.
    fn note_files(&self, gone: Option<&Path>) {
        let was = self.displaced.swap(gone.is_some(), Ordering::Relaxed);
        if let (Some(path), false) = (gone, was) {
            let path = path.display();
            tracing::error!(
                "{path} was deleted or replaced while the server has it open, so nothing more is written: stop the server, put the database where it belongs (a backup if it is lost), and start again"
            );
            OUTAGE.failed(&"one of its files was deleted or replaced");
        }
    }

    /// If it is not, another server may have its name by now: no connection that is open is used again.
    fn note_reachable(&self, answered: Result<(), String>) {
        self.unreachable.store(answered.is_err(), Ordering::Relaxed);
        if let Err(reason) = answered {
            session::distrust();
            OUTAGE.failed(&format_args!(
                "{reason}; requests fail at once until a server answers that takes writes"
            ));
        }
    }

    fn note_writable(&self, outcome: Result<(), String>) {
        self.unwritable.store(outcome.is_err(), Ordering::Relaxed);
        match outcome {
            Ok(()) => OUTAGE.answered(),
            Err(error) => OUTAGE.failed(&format_args!("it does not accept writes: {error}")),
        }
    }
}

impl Db {
    /// Whether the last attempted write succeeded.
    pub fn is_writable(&self) -> bool {
        !self.health().unwritable.load(Ordering::Relaxed)
    }

    /// Whether it answers now, within a second, and the last attempted write succeeded.
    pub async fn is_up(&self) -> bool {
        self.look_at_files();
        matches!(timeout(PATIENCE, self.ping()).await, Ok(Ok(()))) && self.is_writable()
    }

    /// Notes whether SQLite's files are those that were opened.
    fn look_at_files(&self) {
        if let Self::Sqlite(pools) = self
            && let Some(files) = &pools.files
        {
            pools.health.note_files(files.gone());
        }
    }

    /// Probes for ever.
    pub async fn run_probes(&self) {
        let mut connection = None;
        let mut probes = 0_u32;
        loop {
            let health = self.health();
            self.look_at_files();
            if let Self::Postgres(pools) = self {
                let options = pools.all.connect_options();
                let within = if health.is_reachable() { ANSWER_WITHIN } else { ANSWER_WHILE_OUT };
                let probe = answers(&mut connection, &options);
                health.note_reachable(match timeout(within, probe).await {
                    Ok(answered) => answered.map_err(|error| reason_of(&error)),
                    Err(_) => Err("no answer".to_owned()),
                });
            }
            if health.is_reachable() && (probes.is_multiple_of(PROBES_A_WRITE) || !self.is_writable()) {
                let written = timeout(WRITTEN_WITHIN, self.try_write()).await;
                health.note_writable(match written {
                    Ok(written) => written.map_err(|error| error.to_string()),
                    Err(_) => Err("it does not answer in time".to_owned()),
                });
            }
            probes = probes.wrapping_add(1);
            sleep(if health.is_reachable() { EVERY } else { EVERY_WHILE_OUT }).await;
        }
    }

    /// Writes in the same way, over the same connections, as the most important writes. The new row is
    /// written before the old one is deleted, so that it needs space.
    pub async fn try_write(&self) -> Result<(), DbError> {
        const ADD: &str = "INSERT INTO write_probes (id, filler) VALUES ($1, $2)";
        const DROP: &str = "DELETE FROM write_probes WHERE id <> $1";
        let probe = self.health().probes.fetch_add(1, Ordering::Relaxed);
        let id = (i64::from(std::process::id()) << 32) | (probe & 0xFFFF_FFFF);
        let mut tx = match self {
            Self::Sqlite(_) => self.begin_exclusive(DbLock::on("health")).await?,
            // Without waiting for a lock: a stall of its holder is not this instance's.
            Self::Postgres(pools) => Tx::Postgres(pools.exclusive.begin().await?),
        };
        let filler = "-".repeat(FILLER);
        execute!(in &mut tx => query(ADD).bind(id).bind(filler))?;
        execute!(in &mut tx => query(DROP).bind(id))?;
        tx.commit().await
    }

    /// When the newest of what is written all the time was written; None if nothing was.
    pub async fn newest_row(&self) -> Result<Option<Micros>, DbError> {
        const SQL: &str = "SELECT MAX(at) FROM (SELECT MAX(at) AS at FROM events
            UNION ALL SELECT MAX(created_at) FROM sms_messages UNION ALL SELECT MAX(at) FROM failed_attempts) AS newest";
        let at: Option<i64> = on_db!(self, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(at.map(Micros))
    }

    fn health(&self) -> &DbHealth {
        match self {
            Self::Sqlite(pools) => &pools.health,
            Self::Postgres(pools) => &pools.health,
        }
    }
}

/// Over its own connection, because those of the pool may all be busy, which is a different problem.
async fn answers(
    connection: &mut Option<PgConnection>,
    options: &sqlx::postgres::PgConnectOptions,
) -> Result<(), sqlx::Error> {
    // Taken out: a connection that failed or did not answer in time is not used again.
    let mut open = match connection.take() {
        Some(open) => open,
        None => match options.connect().await {
            // No free connections, which the pool may all have: the server does answer.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(TOO_MANY_CONNECTIONS) => {
                return Ok(());
            }
            connected => connected?,
        },
    };
    session::takes_writes(&mut open).await?;
    *connection = Some(open);
    Ok(())
}
