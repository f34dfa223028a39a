//! Time: the limiter's clock, how long the process has run, and how long things took lately.

mod recent;
mod uptime;

pub use gatehouse_limiter::clock::{Clock, Micros};
pub use recent::RecentTimes;
pub(crate) use uptime::Uptime;
