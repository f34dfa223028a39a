//! `[audit]`: how long security events are kept.

use std::time::Duration;

use super::section::section;
use super::values::{DAY, duration, integer};

section! {
    AuditSettings in "audit" {
        retention: Duration = DAY * 30, duration(DAY..=DAY * 3660);
        /// Beyond this many rows the oldest events are deleted, whatever their age.
        max_rows: u32 = 10_000_000, integer(10_000..=1_000_000_000);
    }
}
