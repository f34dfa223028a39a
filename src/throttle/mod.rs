//! The limiter: exact windows over logs of hits, in this process or on Redis.

mod limit;
mod limiter;
mod line;
mod link;
mod look;
mod memory;
mod redis;
mod store;
pub mod window;

pub use self::redis::RedisStore;
pub use limit::*;
pub use limiter::*;
pub use link::Link;
pub use memory::MemoryStore;
pub use store::*;
