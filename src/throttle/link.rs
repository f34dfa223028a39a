//! The connection to Redis: one multiplexed connection, watched over. A call never waits for a
//! connection to be made: where there is none it fails at once, and a task tries until there is.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Script, Value};
use tokio::sync::Notify;

use super::store::StoreError;

/// Between two attempts to connect: short enough that a restarted server is found at once.
const RETRY_EVERY: Duration = Duration::from_millis(25);

/// A link to one Redis server. Clones share it; it ends with its last clone.
#[derive(Clone)]
pub struct Link(Arc<Shared>);

struct Shared {
    connection: ArcSwapOption<MultiplexedConnection>,
    lost: Notify,
}

impl Link {
    /// Starts connecting in the background. `scripts` are loaded at every connection.
    /// `timeout` bounds each call, and each attempt to connect.
    pub fn open(client: Client, timeout: Duration, scripts: Vec<Script>) -> Self {
        let shared = Arc::new(Shared { connection: ArcSwapOption::empty(), lost: Notify::new() });
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let watched = Arc::downgrade(&shared);
        tokio::spawn(async move {
            while let Some(shared) = watched.upgrade() {
                if shared.connection.load().is_some() {
                    shared.wait_for_loss().await;
                    continue;
                }
                match connect(&client, &config, &scripts).await {
                    Ok(connection) => shared.connection.store(Some(Arc::new(connection))),
                    Err(_) => {
                        drop(shared);
                        tokio::time::sleep(RETRY_EVERY).await;
                    }
                }
            }
        });
        Self(shared)
    }

    pub fn is_up(&self) -> bool {
        self.0.connection.load().is_some()
    }

    /// Waits until the link is up, at most this long; answers whether it is.
    pub async fn ready(&self, at_most: Duration) -> bool {
        let up = async {
            while !self.is_up() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(at_most, up).await.is_ok()
    }

    /// One round trip.
    pub async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        let connection = self.connection()?;
        let answer = MultiplexedConnection::clone(&connection).send_packed_command(command).await;
        self.judge(&connection, answer)
    }

    /// One round trip that runs a `MULTI` … `EXEC` and answers with what `EXEC` does.
    pub async fn call_all(&self, transaction: &Pipeline) -> Result<Value, CallError> {
        let connection = self.connection()?;
        let before = transaction.len() + 1; // MULTI's "OK", and "QUEUED" for each command
        let answer =
            MultiplexedConnection::clone(&connection).send_packed_commands(transaction, before, 1).await;
        self.judge(&connection, answer.map(|mut answers| answers.pop().unwrap_or(Value::Nil)))
    }

    fn connection(&self) -> Result<Arc<MultiplexedConnection>, CallError> {
        self.0.connection.load_full().ok_or(CallError::Store(StoreError::Down))
    }

    fn judge(
        &self,
        connection: &Arc<MultiplexedConnection>,
        answer: Result<Value, RedisError>,
    ) -> Result<Value, CallError> {
        match answer {
            Ok(Value::ServerError(error)) => Err(CallError::Server(error.into())),
            Ok(value) => Ok(value),
            Err(error) if error.is_io_error() || error.is_timeout() || error.is_connection_dropped() => {
                self.lose(connection);
                let kind = if error.is_timeout() { StoreError::TimedOut } else { StoreError::Down };
                Err(CallError::Store(kind))
            }
            Err(error) => Err(CallError::Server(error)),
        }
    }

    /// Gives up this connection, unless another stands in its place already.
    fn lose(&self, broken: &Arc<MultiplexedConnection>) {
        let current = self.0.connection.compare_and_swap(broken, None);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, broken)) {
            tracing::warn!("the connection to redis is lost; connecting again");
            self.0.lost.notify_one();
        }
    }
}

impl Shared {
    /// Ends now and then even without a loss, so that the task sees when the last link is dropped.
    async fn wait_for_loss(self: Arc<Self>) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.lost.notified()).await;
    }
}

/// Why a call failed: the store is out of reach, or it answered with an error.
pub enum CallError {
    Store(StoreError),
    Server(RedisError),
}

async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
    scripts: &[Script],
) -> Result<MultiplexedConnection, RedisError> {
    let mut connection = client.get_multiplexed_async_connection_with_config(config).await?;
    for script in scripts {
        script.load_async(&mut connection).await?;
    }
    Ok(connection)
}
