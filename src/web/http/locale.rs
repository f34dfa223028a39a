//! The reader's language, and what is worded in it: texts, waits, moments and devices.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use rust_i18n::t;
use serde::{Serialize, Serializer};

use crate::clock::Micros;

pub use gatehouse_limiter::middleware::ratelimit_fields::whole_seconds;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locale {
    #[default]
    En,
    ZhCn,
}

impl Locale {
    pub const ALL: [Self; 2] = [Self::En, Self::ZhCn];

    /// The code used in file names, `lang` attributes and `Content-Language` (BCP 47).
    pub const fn code(self) -> &'static str {
        match self {
            Self::En => "en",
            Self::ZhCn => "zh-CN",
        }
    }

    pub const fn own_name(self) -> &'static str {
        match self {
            Self::En => "English",
            Self::ZhCn => "简体中文",
        }
    }

    /// An explicit choice, by `?lang=` or by the cookie. It must be exactly one of our codes.
    pub fn named(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|locale| locale.code().eq_ignore_ascii_case(code))
    }

    /// The locale that serves a language range of `Accept-Language`. Readers of Traditional Chinese are
    /// served better by Simplified Chinese than by English.
    fn serving(range: &str) -> Option<Self> {
        let language = range.split('-').next().unwrap_or(range);
        match language.to_ascii_lowercase().as_str() {
            "en" | "*" => Some(Self::En),
            "zh" => Some(Self::ZhCn),
            _ => None,
        }
    }

    /// The first of `ui_locales` that we have (OpenID Connect Core 1.0, 3.1.2.1).
    pub fn asked(tags: &str) -> Option<Self> {
        tags.split(' ').take(16).find_map(Self::serving)
    }

    /// The best match of `Accept-Language` (RFC 9110 §12.5.4): highest q first, then in order of appearance.
    pub fn accepted(header: &str) -> Option<Self> {
        let mut best: Option<(u16, Self)> = None;
        // More than sixteen languages are an attempt to cost us time.
        for item in header.split(',').take(16) {
            let mut parts = item.split(';');
            let range = parts.next().unwrap_or_default().trim();
            let Some(weight) = parts.next().map_or(Some(1000), weight) else { continue };
            let Some(locale) = Self::serving(range).filter(|_| weight > 0) else { continue };
            if best.is_none_or(|(most, _)| weight > most) {
                best = Some((weight, locale));
            }
        }
        best.map(|(_, locale)| locale)
    }

    /// `key` must be in `locales/en.toml`. A test checks every template and source for this.
    pub fn t(self, key: &'static str) -> Cow<'static, str> {
        t!(key, locale = self.code())
    }

    /// The word for what is stored under a name, in this section. What has no word, such as the detail of an event
    /// that an older version wrote, is shown as `name`. A test checks that everything of today has a word.
    pub fn named_word(self, section: &str, name: &str) -> Cow<'static, str> {
        let word =
            crate::_rust_i18n_try_translate(self.code(), format!("{section}.{}", name.replace('.', "-")));
        word.unwrap_or_else(|| Cow::Owned(name.to_owned()))
    }
}

/// `q=0.8` in thousandths; None if it is not a weight.
pub(super) fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.trim().split_once('=')?;
    let q: f32 = value.trim().parse().ok()?;
    (name.trim().eq_ignore_ascii_case("q") && (0.0..=1.0).contains(&q)).then_some((q * 1000.0).round() as u16)
}

/// Whole milliseconds, rounded up: who waits that long does not come too early.
pub fn millis(span: Duration) -> u64 {
    span.as_micros().div_ceil(1000) as u64
}

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

/// A moment for pages: UTC as text, which a page says once, and machine-readable in an attribute and in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment(pub Micros);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.iso())
    }
}

impl Moment {
    pub fn iso(&self) -> String {
        crate::clock::iso(self.0)
    }

    pub fn text(&self) -> String {
        self.show("%Y-%m-%d %H:%M")
    }

    /// `14:05`, if the day is obvious.
    pub fn clock(&self) -> String {
        self.show("%H:%M")
    }

    /// `11-28`, where the year is obvious.
    pub fn day(&self) -> String {
        self.show("%m-%d")
    }

    fn show(self, format: &str) -> String {
        // Only a time tens of thousands of years away cannot be shown.
        Timestamp::from_microsecond(self.0.0).unwrap_or(Timestamp::UNIX_EPOCH).strftime(format).to_string()
    }
}

/// The browser reports this itself, so nothing trusts it. The text shown is always one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    browser: Option<&'static str>,
    system: Option<&'static str>,
}

/// The order matters: most browsers also name the ones that they descend from.
const BROWSERS: [(&str, &str); 14] = [
    ("MicroMessenger", "WeChat"),
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser", "Samsung Internet"),
    ("HuaweiBrowser", "Huawei Browser"),
    ("UCBrowser", "UC Browser"),
    ("QQBrowser", "QQ Browser"),
    ("FxiOS", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-requests", "Python"),
];
const SYSTEMS: [(&str, &str); 9] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("HarmonyOS", "HarmonyOS"),
    ("OpenHarmony", "HarmonyOS"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
];

impl Device {
    pub fn parse(user_agent: &str) -> Self {
        let find = |table: &[(&str, &'static str)]| {
            table.iter().find(|(mark, _)| user_agent.contains(mark)).map(|(_, name)| *name)
        };
        Self { browser: find(&BROWSERS), system: find(&SYSTEMS) }
    }

    pub fn text(&self, locale: Locale) -> String {
        match (self.browser, self.system) {
            (Some(browser), Some(system)) => {
                t!("device.both", locale = locale.code(), browser = browser, system = system).into_owned()
            }
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => locale.t("device.unknown").into_owned(),
        }
    }
}

#[cfg(test)]
#[path = "locale_tests.rs"]
mod language_tests;

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

    #[test]
    fn browsers_are_told_apart_from_those_they_descend_from() {
        let edge = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0";
        assert_eq!(Device::parse(edge).text(Locale::En), "Edge on Windows");
        let safari = "Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1";
        assert_eq!(Device::parse(safari).text(Locale::En), "Safari on iPhone");
    }

    #[test]
    fn nothing_of_what_was_sent_is_shown() {
        assert_eq!(Device::parse("<script>").text(Locale::En), "Unknown device");
    }
}
