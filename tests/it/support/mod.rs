//! The harness: real servers, started for one test and stopped with it, and clocks that a test moves.

use std::time::Duration;

/// Longer than a loaded machine takes.
const MOST: Duration = Duration::from_secs(60);

pub mod answer;
pub mod app;
pub mod authenticator;
pub mod authority;
pub mod browser;
pub mod database;
pub mod dovecot;
pub mod fast_cgi;
pub mod hanging;
pub mod kannel;
pub mod limits;
pub mod mail_server;
#[cfg(feature = "nacos")]
pub mod nacos;
pub mod names;
pub mod ports;
pub mod postfix;
pub mod postgres;
pub mod process;
pub mod proof;
pub mod redis;
pub mod redis_group;
pub mod reverse_proxy;
pub mod routes;
pub mod rspamd;
pub mod setup;
pub mod steered;

/// Waits for what another thread, process or socket does in its own time, which no clock of ours moves.
pub async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(MOST, waiting).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// Makes the tables of a database; see [`database::TestDatabase`].
async fn migrate(url: &str) {
    gatehouse::db::Db::connect(url).await.unwrap().close().await;
}
