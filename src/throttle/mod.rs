//! The limiter: exact windows over logs of hits, in this process or on Redis.
//!
//! It knows limits and subjects, but no HTTP, SQL or accounts, and can be used as a library: create a
//! [`Limiter`] over a [`MemoryStore`] or a [`RedisStore`], name a subject with [`Limiter::bucket`], and
//! [`Limiter::reserve`] a hit, or [`Limiter::hold`] a slot until the outcome is known.

#[cfg(feature = "redis")]
mod any;
mod arrivals;
#[cfg(feature = "redis")]
mod connector;
mod entry;
mod hits;
mod hold;
mod limit;
mod limiter;
#[cfg(feature = "redis")]
mod link;
mod memory;
mod rebuild;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod remembered;
#[cfg(feature = "redis")]
mod replies;
#[cfg(feature = "redis")]
mod scripts;
#[cfg(feature = "redis")]
mod servers;
mod store;
pub mod window;

#[cfg(feature = "redis")]
pub use self::redis::RedisStore;
#[cfg(feature = "redis")]
pub use any::AnyStore;
#[cfg(feature = "server")]
pub(crate) use hits::{HitRing, LogHit};
pub use hold::*;
pub use limit::*;
pub use limiter::*;
#[cfg(feature = "redis")]
pub use link::{CallError, RedisLink};
pub use memory::MemoryStore;
pub use rebuild::{RebuildError, StoreState, WindowRebuild, WindowRecord};
#[cfg(feature = "redis")]
pub use servers::{RedisServers, RedisUrl};
pub use store::*;
