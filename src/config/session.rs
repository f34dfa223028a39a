//! `[session]`: how long somebody stays signed in.

use std::time::Duration;

use super::reader::Section;
use super::values::{duration, shown};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// A session that is not used this long ends.
    pub idle: Duration,
    /// A session ends this long after sign-in however much it is used.
    pub absolute: Duration,
    /// A change in the console wants the password to have been shown within so long.
    pub confirm: Duration,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { idle: DAY * 14, absolute: DAY * 30, confirm: MINUTE * 15 }
    }
}

impl SessionSettings {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let default = Self::default();
        let place = section.place_of("idle");
        let bounds = Duration::from_secs(1)..=DAY * 366;
        let session = Self {
            idle: section.value("idle", default.idle, duration(bounds.clone())),
            absolute: section.value("absolute", default.absolute, duration(bounds)),
            confirm: section.value("confirm", default.confirm, duration(MINUTE..=DAY)),
        };
        if session.idle > session.absolute
            && !section.failed()
            && let Some(place) = place
        {
            let absolute = shown(session.absolute);
            let reason = format!("is longer than session.absolute ({absolute}), and can never be reached");
            section.refuse(place, section.path_of("idle"), reason);
        }
        session
    }
}
