//! Whether PostgreSQL is there, asked in the background: while it is not, a request fails at once, where each would
//! wait for a connection until its patience is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, Pool, Postgres};

use super::ACQUIRE_TIMEOUT;

const EVERY: Duration = Duration::from_secs(1);
const EVERY_WHILE_DOWN: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Default)]
pub(super) struct Reach {
    down: Arc<AtomicBool>,
}

impl Reach {
    /// Asks until the pool is closed, over a connection of its own: those of the pool may all be busy.
    pub fn watch(pool: &Pool<Postgres>, options: PgConnectOptions) -> Self {
        let reach = Self::default();
        let (asks, pool) = (reach.clone(), pool.clone());
        tokio::spawn(async move {
            let mut own = None;
            while !pool.is_closed() {
                tokio::time::sleep(if asks.is_down() { EVERY_WHILE_DOWN } else { EVERY }).await;
                let asked = tokio::time::timeout(ACQUIRE_TIMEOUT, ask(&mut own, &options)).await;
                asks.learn(asked.unwrap_or(Err(sqlx::Error::PoolTimedOut)));
            }
        });
        reach
    }

    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    fn learn(&self, asked: Result<(), sqlx::Error>) {
        let was_down = self.down.swap(asked.is_err(), Ordering::Relaxed);
        match asked {
            Err(error) if !was_down => {
                tracing::warn!(%error, "the database is out: what needs it answers 503")
            }
            Ok(()) if was_down => tracing::info!("the database is back"),
            _ => {}
        }
    }
}

async fn ask(own: &mut Option<PgConnection>, options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    // What fails, or is given up half-way, is not used again. A server that restarted has closed the old one,
    // and is asked anew before it is said to be out.
    if let Some(mut connection) = own.take()
        && connection.ping().await.is_ok()
    {
        *own = Some(connection);
        return Ok(());
    }
    let mut connection = PgConnection::connect_with(options).await?;
    connection.ping().await?;
    *own = Some(connection);
    Ok(())
}

/// What a statement fails with meanwhile.
pub(super) fn down() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "the database is out"))
}
