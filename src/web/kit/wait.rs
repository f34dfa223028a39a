//! How long a reader has to wait, worded so that it stays correct while the page is open.

use std::time::Duration;

use jiff::Timestamp;
use rust_i18n::t;

use crate::clock::Micros;
use crate::web::kit::locale::Locale;

pub use gatehouse_limiter::middleware::ratelimit_fields::whole_seconds;

/// A wait that starts when the answer is made. The page names the end in UTC. The page's script converts it
/// to the reader's time zone and counts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    seconds: u64,
    until: Micros,
}

impl Wait {
    pub fn new(now: Micros, retry_after: Duration) -> Self {
        let seconds = whole_seconds(retry_after);
        // The clock shows whole seconds. Rounded up, so that the time shown is never too early.
        let until =
            Micros::from_seconds(now.plus(retry_after).plus(Duration::from_micros(999_999)).seconds());
        Self { seconds, until }
    }

    pub const fn seconds(&self) -> u64 {
        self.seconds
    }

    /// `4 minutes 20 seconds`.
    pub fn words(&self, locale: Locale) -> String {
        span_in_words(self.seconds, locale)
    }

    /// For `<time datetime>`.
    pub fn iso(&self) -> String {
        self.until().iso()
    }

    pub const fn until(&self) -> Moment {
        Moment(self.until)
    }

    /// `14:05:12 UTC`, with the date if it is more than half a day away.
    pub fn clock(&self) -> String {
        let format = if self.seconds > 43_200 { "%Y-%m-%d %H:%M UTC" } else { "%H:%M:%S UTC" };
        Moment(self.until).show(format)
    }
}

/// In common words, rounded up: `3 days 2 hours`, `6 minutes`, `4 minutes 20 seconds`, `12 seconds`.
pub fn span_in_words(seconds: u64, locale: Locale) -> String {
    const UNITS: [(u64, [&str; 2]); 4] = [
        (86_400, ["span.day", "span.days"]),
        (3_600, ["span.hour", "span.hours"]),
        (60, ["span.minute", "span.minutes"]),
        (1, ["span.second", "span.seconds"]),
    ];
    /// (from this many seconds, the precision in seconds): nobody says five minutes and one second.
    const STEPS: [(u64, u64); 4] = [(86_400, 3_600), (300, 60), (60, 10), (0, 1)];
    let seconds = seconds.max(1);
    let step = STEPS.iter().find(|(from, _)| seconds >= *from).map_or(1, |(_, step)| *step);
    in_units(seconds.next_multiple_of(step), &UNITS, locale)
}

/// A span in the given units, largest first. Each unit has its singular and its plural.
pub fn in_units(mut left: u64, units: &[(u64, [&str; 2])], locale: Locale) -> String {
    let mut words: Vec<String> = Vec::with_capacity(2);
    for (size, [one, many]) in units {
        let count = left / size;
        left %= size;
        if count > 0 {
            let key = if count == 1 { one } else { many };
            words.push(t!(*key, locale = locale.code(), count = count).into_owned());
        }
    }
    words.join(" ")
}

/// A moment for pages: UTC as text, which a page says once, and machine-readable in an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Micros);

impl Moment {
    pub fn iso(&self) -> String {
        self.show("%Y-%m-%dT%H:%M:%SZ")
    }

    pub fn text(&self) -> String {
        self.show("%Y-%m-%d %H:%M")
    }

    /// `14:05`, if the day is obvious.
    pub fn clock(&self) -> String {
        self.show("%H:%M")
    }

    fn show(self, format: &str) -> String {
        // Only a time tens of thousands of years away cannot be shown.
        Timestamp::from_microsecond(self.0.0).unwrap_or(Timestamp::UNIX_EPOCH).strftime(format).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_as_told_never_comes_too_early() {
        let now = Micros(1_700_000_000_400_000);
        let wait = Wait::new(now, Duration::from_millis(251_700));
        assert_eq!(wait.seconds(), 252);
        assert!(wait.until >= now.plus(Duration::from_millis(251_700)));
        assert_eq!(wait.clock(), "22:17:33 UTC");
        assert_eq!(wait.iso(), "2023-11-14T22:17:33Z");
        assert_eq!(Wait::new(now, Duration::ZERO).seconds(), 1);
    }

    #[test]
    fn a_span_is_told_as_people_say_it_rounded_up() {
        for (seconds, english, chinese) in [
            (0, "1 second", "1 秒"),
            (59, "59 seconds", "59 秒"),
            (60, "1 minute", "1 分钟"),
            (61, "1 minute 10 seconds", "1 分钟 10 秒"),
            (252, "4 minutes 20 seconds", "4 分钟 20 秒"),
            (299, "5 minutes", "5 分钟"),
            (301, "6 minutes", "6 分钟"),
            (3_599, "1 hour", "1 小时"),
            (3_601, "1 hour 1 minute", "1 小时 1 分钟"),
            (7_199, "2 hours", "2 小时"),
            (86_399, "1 day", "1 天"),
            (90_000, "1 day 1 hour", "1 天 1 小时"),
            (90_001, "1 day 2 hours", "1 天 2 小时"),
        ] {
            assert_eq!(span_in_words(seconds, Locale::En), english);
            assert_eq!(span_in_words(seconds, Locale::ZhCn), chinese);
        }
    }
}
