//! `[audit]`: how long security events are kept.

use std::time::Duration;

use super::reader::Section;
use super::values::{duration, integer};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    pub retention: Duration,
    /// The oldest events go where there are more rows, however young they are.
    pub max_rows: u32,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { retention: DAY * 30, max_rows: 10_000_000 }
    }
}

impl AuditSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        Self {
            retention: section.value("retention", default.retention, duration(DAY..=DAY * 3660)),
            max_rows: section.value("max_rows", default.max_rows, integer(10_000..=1_000_000_000)),
        }
    }
}
