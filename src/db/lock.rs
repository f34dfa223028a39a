//! What a PostgreSQL transaction has exclusively across all instances: one number's messages rather than all
//! of them, so that an instance that stalls blocks nothing else.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Pool, Postgres, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{ACQUIRE_TIMEOUT, DbError, READ_COMMITTED};

/// How long a transaction waits for the lock: longer than any transaction under it takes, and short enough
/// for somebody who waits for a code. After five seconds the server takes it away from a stalled instance.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
/// Two locks share an entry with a chance of one in a thousand; then they are requested one after the other.
const TURNS: usize = 1024;

/// One lock. A transaction that takes several takes them in the order in which they are declared here, and
/// among the same kind the smaller first, so that no two wait for each other.
#[derive(Debug, Clone, Copy)]
pub struct DbLock(i64);

impl DbLock {
    /// Messages to one number, by its key.
    pub fn number(key: &[u8]) -> Self {
        Self::of("sms.number", key)
    }

    /// Setting a brake of our pages or of one program on a dialling prefix.
    pub fn brake(scope: &str, prefix: &str) -> Self {
        Self::of("sms.brake", format!("{scope} {prefix}").as_bytes())
    }

    /// An account's password.
    pub fn account(id: &[u8]) -> Self {
        Self::of("account", id)
    }

    /// Something that exists once per installation.
    pub fn on(what: &'static str) -> Self {
        Self::of(what, b"")
    }

    fn of(kind: &str, subject: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("gatehouse 2026 database lock");
        hasher.update(kind.as_bytes()).update(&[0]).update(subject);
        Self(i64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("32 bytes hold 8")))
    }

    pub(super) async fn take(self, tx: &mut Transaction<'static, Postgres>) -> Result<(), DbError> {
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.0).execute(&mut **tx).await?;
        Ok(())
    }
}

/// Only one connection of this process asks for each lock at a time: otherwise a burst for a number whose
/// lock is stuck would take every connection, and none would be left for other numbers.
#[derive(Debug, Clone)]
pub(super) struct LockQueue(Arc<[Arc<Mutex<()>>]>);

impl Default for LockQueue {
    fn default() -> Self {
        Self((0..TURNS).map(|_| Arc::default()).collect())
    }
}

impl LockQueue {
    pub async fn begin(
        &self,
        pool: &Pool<Postgres>,
        lock: DbLock,
    ) -> Result<Transaction<'static, Postgres>, DbError> {
        let _asking = self.turn(lock).await?;
        let mut tx = pool.begin_with(READ_COMMITTED).await?;
        lock.take(&mut tx).await?;
        Ok(tx)
    }

    async fn turn(&self, lock: DbLock) -> Result<OwnedMutexGuard<()>, DbError> {
        let turn = Arc::clone(&self.0[lock.0 as u64 as usize % TURNS]);
        let waited = tokio::time::timeout(ACQUIRE_TIMEOUT, turn.lock_owned()).await;
        Ok(waited.map_err(|_| sqlx::Error::PoolTimedOut)?)
    }
}
