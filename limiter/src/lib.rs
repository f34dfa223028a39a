//! All that its page, README.md, tells of.
#![cfg_attr(all(feature = "actix", feature = "redis"), doc = include_str!("../README.md"))]
#![cfg_attr(
    not(all(feature = "actix", feature = "redis")),
    doc = "An exact sliding-window limiter, in process or on Redis."
)]
#![warn(missing_docs)]

pub mod clock;
mod debts;
pub mod entropy;
mod entry;
#[cfg(test)]
mod faulty_store;
mod hits;
mod hold;
mod key;
mod limit;
mod limiter;
mod memory;
#[cfg(feature = "actix")]
pub mod middleware;
mod rebuild;
#[cfg(feature = "redis")]
mod redis;
// Hidden: names the application's own target; it, too, begins its spans there.
#[doc(hidden)]
pub mod spans;
mod store;
// Hidden: what a limiter's holds wait in; the application's codes and forms wait in the same.
#[doc(hidden)]
pub mod wait_queue;
pub mod window;

#[cfg(feature = "redis")]
pub use self::redis::{
    CallError, ClusterServers, Eviction, RedisLink, RedisServers, RedisStore, RedisUrl, SentinelServers,
};
// Hidden: a log in memory, in which the application's replay counts recorded attempts. Others take a store.
#[doc(hidden)]
pub use hits::HitRing;
pub use hold::*;
pub use key::SubKey;
pub use limit::*;
pub use limiter::*;
pub use memory::MemoryStore;
pub use rebuild::{RebuildError, StoreState, WindowRebuild, WindowRecord};
pub use store::*;
