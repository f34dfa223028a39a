//! The limiter: exact windows over logs of hits, in this process or on Redis.
//!
//! It knows of limits and subjects, not of HTTP, SQL or accounts, and serves as a library: make a
//! [`Limiter`] over a [`MemoryStore`] or a [`RedisStore`], name a subject by [`Limiter::bucket`], and
//! [`Limiter::reserve`] a hit, or [`Limiter::hold`] a slot until the outcome is known.

mod any;
mod entry;
mod hits;
mod limit;
mod limiter;
mod line;
mod link;
mod memory;
mod rebuild;
mod redis;
mod remembered;
mod scripts;
mod store;
pub mod window;

pub use self::redis::RedisStore;
pub use any::AnyStore;
pub(crate) use hits::{Hit, Hits};
pub use limit::*;
pub use limiter::*;
pub use link::{CallError, Link};
pub use memory::MemoryStore;
pub use rebuild::{Found, Rebuild, RebuildError, WindowRecord};
pub use store::*;
