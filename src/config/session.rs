//! `[session]`: how long a session lasts.

use std::time::Duration;

use super::reader::SectionReader;
use super::reader::SectionTable;
use super::section::section;
use super::values::{DAY, MINUTE, SECOND, duration, shown};

section! {
    #[derive(Copy)]
    SessionSettings in "session" {
        /// A session that is not used for this long ends (up to a minute earlier: see `Session::last_seen`).
        idle: Duration = DAY * 14, duration(SECOND..=DAY * 366);
        /// A session ends this long after sign-in, however much it is used.
        absolute: Duration = DAY * 30, duration(SECOND..=DAY * 366);
        /// A change in the console requires that the password was entered within this time.
        confirm: Duration = MINUTE * 15, duration(MINUTE..=DAY);
    }
}

/// Also refuses values that can never be reached.
pub(super) fn read(section: &mut SectionReader<'_>) -> SessionSettings {
    let place = section.place_of("idle");
    let session = SessionSettings::read(section);
    if session.idle > session.absolute
        && !section.failed()
        && let Some(place) = place
    {
        let absolute = shown(session.absolute);
        let reason = format!("is longer than session.absolute ({absolute}), so it can never be reached");
        section.refuse(place, section.path_of("idle"), reason);
    }
    session
}
