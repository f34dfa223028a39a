//! The limiter: exact windows over logs of hits, in this process or on Redis.

mod limit;

pub use limit::*;
