//! `[login]`: what becomes of a password after many wrong ones. Live.

use super::reader::Section;
use super::values::integer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginTunables {
    /// Wrong passwords in a row after which an account's password is disabled; 0: never.
    pub max_consecutive_failures: u32,
}

impl Default for LoginTunables {
    /// The most that NIST SP 800-63B-4 (3.2.2) allows.
    fn default() -> Self {
        Self { max_consecutive_failures: 100 }
    }
}

impl LoginTunables {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default().max_consecutive_failures;
        Self {
            max_consecutive_failures: section.value("max_consecutive_failures", default, integer(0..=100)),
        }
    }
}
