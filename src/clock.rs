//! Time: the limiter's clock, how long the process has run, and how long things took lately.

mod recent;
mod uptime;

use serde::{Serialize, Serializer};

pub use gatehouse_limiter::clock::{Clock, Micros};
pub use recent::RecentTimes;
pub(crate) use uptime::Uptime;

/// A moment in the JSON of the API.
pub fn as_time<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&iso(*at))
}

/// The same of a time that there may not be.
pub fn as_time_if<S: Serializer>(at: &Option<Micros>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(iso).serialize(serializer)
}

/// RFC 3339 in UTC, in whole seconds.
pub fn iso(at: Micros) -> String {
    // Only a time tens of thousands of years away cannot be shown.
    let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
