//! The harness: real servers, started for one test and stopped with it, and clocks that a test moves.

pub mod app;
pub mod authenticator;
pub mod authority;
pub mod browser;
pub mod database;
pub mod dovecot;
pub mod fast_cgi;
pub mod kannel;
#[cfg(feature = "nacos")]
pub mod nacos;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proof;
pub mod redis;
pub mod redis_group;
pub mod reverse_proxy;
pub mod routes;
pub mod setup;
pub mod steered;

/// Makes the tables of a database; see [`database::TestDatabase`].
async fn migrate(url: &str) {
    gatehouse::db::Db::connect(url).await.unwrap().close().await;
}
