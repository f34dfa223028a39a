//! A session of PostgreSQL: what it is set to when it is opened, whatever an administrator's defaults are, and from when
//! on its connection is not used any more.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnectionMetadata;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row, raw_sql};
use tokio::time::Instant;

/// Whether it must survive a power failure once it is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Durable,
    AsConfigured,
}

/// What each session needs:
/// - a statement sees what was committed before it began, so what others committed before a lock was granted, and does not
///   fail because of what others did meanwhile;
/// - a backslash in a string is one;
/// - an instance that stalls while it has a lock does not block the others for long.
///
/// The driver itself states `DateStyle`, `TimeZone`, `client_encoding` and `extra_float_digits`. Everything else is its
/// administrator's to set: `search_path`, which says where the tables are, and `statement_timeout`.
const NEEDS: &str = "SET default_transaction_isolation = 'read committed';
    SET standard_conforming_strings = on;
    SET idle_in_transaction_session_timeout = '5s';";

/// `remote_write`, `local` and stricter ones remain.
const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') = 'off';";

/// A migration takes as long as it takes. The second one is known since PostgreSQL 17.
const UNBOUNDED: &str = "SELECT set_config(name, '0', false) FROM pg_settings
    WHERE name IN ('statement_timeout', 'transaction_timeout');";

/// Sets it to what we need; an error if the server takes no writes.
pub async fn set_up(
    session: &mut PgConnection,
    lock_timeout: Duration,
    durability: Durability,
) -> Result<(), sqlx::Error> {
    let durable = if durability == Durability::Durable { DURABLE } else { "" };
    let all = format!("{NEEDS} SET lock_timeout = {}; {durable}", lock_timeout.as_millis());
    session.execute(AssertSqlSafe(all)).await?;
    takes_writes(session).await
}

/// For migrations: a crash undoes none that statements rely on.
pub async fn set_up_to_migrate(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    session.execute(AssertSqlSafe(format!("{UNBOUNDED} {DURABLE}"))).await.map(drop)
}

/// An error if the server is a standby, or its administrator lets nobody write: as `target_session_attrs=read-write`
/// does it. One round trip.
pub async fn takes_writes(session: &mut PgConnection) -> Result<(), sqlx::Error> {
    const SQL: &str = "SELECT current_setting('transaction_read_only') = 'on'";
    let read_only: bool = raw_sql(SQL).fetch_one(session).await?.try_get(0)?;
    if read_only {
        let reason = "it takes no writes: it is a standby, or default_transaction_read_only is on";
        return Err(sqlx::Error::Configuration(reason.into()));
    }
    Ok(())
}

/// Whether two connections have a session each. They have not if something between gives a session of the server to whoever
/// has a transaction to run: settings get lost then, and statements that one has prepared are met by the other.
pub async fn are_kept(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, sqlx::Error> {
    const PROCESS: &str = "SELECT pg_backend_pid()";
    // No statement is prepared: that alone may fail.
    let one: i32 = raw_sql(PROCESS).fetch_one(one).await?.try_get(0)?;
    let other: i32 = raw_sql(PROCESS).fetch_one(other).await?.try_get(0)?;
    Ok(one != other)
}

/// Connections from before it lead to a server that has ended, does not answer or takes no writes, though their name may
/// lead to another one by now. A process has one database.
static DISTRUSTED: Mutex<Option<Instant>> = Mutex::new(None);

/// No connection that is open now is used again.
pub fn distrust() {
    *DISTRUSTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Called when a connection is taken from a pool: whether it may be used.
pub async fn is_usable(
    session: &mut PgConnection,
    metadata: PoolConnectionMetadata,
) -> Result<bool, sqlx::Error> {
    Ok(is_trusted(metadata) && session.ping().await.is_ok())
}

pub fn is_trusted(metadata: PoolConnectionMetadata) -> bool {
    let since = *DISTRUSTED.lock().unwrap_or_else(PoisonError::into_inner);
    since.is_none_or(|since| since.elapsed() > metadata.age)
}

/// Whether an error says that the server of its connection is not the one to talk to any more.
pub fn is_of_wrong_server(error: &sqlx::Error) -> bool {
    // Read-only; shut down by its administrator, crashed, starting or shutting down, its database dropped.
    const CODES: [&str; 5] = ["25006", "57P01", "57P02", "57P03", "57P04"];
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| CODES.contains(&&*code))
}
