//! Which events a page asks for: the filter in its URL.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use url::form_urlencoded;

use crate::audit::{Action, EventCursor, EventFilter, Outcome};
use crate::clock::Micros;
use crate::login::Realm;
use crate::web::console::subject_link::{hash_text, parse_hash};
use crate::web::kit::wait::Moment;

/// The longest name of a limit.
const LONGEST: usize = 80;
const PATH: &str = "/admin/events";

/// The filter. Values that cannot be parsed do not filter.
#[derive(Debug, Clone, Default)]
pub struct EventsAsked {
    pub actions: Vec<Action>,
    pub outcomes: Vec<Outcome>,
    /// Attempts at this login of another program.
    pub realm: Option<String>,
    pub limit: Option<String>,
    pub noted: bool,
    pub account: Option<i64>,
    pub address: Option<i64>,
    pub network: Option<i64>,
    pub phone: Option<i64>,
    /// Up to now; without a beginning of its own.
    pub span: Option<EventSpan>,
    pub since: Option<Micros>,
    pub until: Option<Micros>,
    /// Attacks event by event, not one line each.
    pub each: bool,
    pub after: Option<EventCursor>,
}

/// The last hours or days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSpan {
    Hour,
    Day,
    Week,
    Month,
}

impl EventSpan {
    pub const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Month];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::Hour => "draft.hour",
            Self::Day => "draft.day",
            Self::Week => "draft.week",
            Self::Month => "event.month",
        }
    }

    const fn length(self) -> Duration {
        const HOUR: u64 = 60 * 60;
        Duration::from_secs(match self {
            Self::Hour => HOUR,
            Self::Day => 24 * HOUR,
            Self::Week => 7 * 24 * HOUR,
            Self::Month => 30 * 24 * HOUR,
        })
    }
}

impl EventsAsked {
    /// A name may come several times, or once with several words between commas.
    pub fn read(query: &[(String, String)]) -> Self {
        let all = |field: &'static str| {
            let named = query.iter().filter(move |(name, _)| name == field);
            named.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|text| !text.is_empty())
        };
        let one = |field| all(field).next().unwrap_or_default();
        let mut actions: Vec<_> = all("action").filter_map(Action::parse).collect();
        let mut outcomes: Vec<_> = all("outcome").filter_map(Outcome::parse).collect();
        actions.sort_unstable();
        actions.dedup();
        outcomes.sort_unstable();
        outcomes.dedup();
        let limit = one("limit");
        Self {
            actions,
            outcomes,
            realm: Realm::parse(one("realm")).map(|realm| realm.as_str().to_owned()),
            limit: (!limit.is_empty() && limit.len() <= LONGEST).then(|| limit.to_owned()),
            noted: one("noted") == "1",
            account: parse_hash(one("account")),
            address: parse_hash(one("address")),
            network: parse_hash(one("network")),
            phone: parse_hash(one("phone")),
            span: EventSpan::ALL.into_iter().find(|span| span.as_str() == one("span")),
            since: time(one("since")),
            until: time(one("until")),
            each: one("each") == "1",
            after: EventCursor::parse(one("after")),
        }
    }

    pub fn filter(&self, now: Micros) -> EventFilter {
        EventFilter {
            actions: self.actions.clone(),
            outcomes: self.outcomes.clone(),
            realm: self.realm.clone(),
            limit: self.limit.clone(),
            account: self.account,
            address: self.address,
            network: self.network,
            phone: self.phone,
            since: self.since.or_else(|| self.span.map(|span| now.minus(span.length()))),
            until: self.until,
            noted: self.noted.then_some(true),
            folded: None,
        }
    }

    /// Whether an attack is one line: not if the filter asks for some of its events.
    pub fn folds_attacks(&self) -> bool {
        let about_some = self.limit.is_some() || self.noted || !self.outcomes.is_empty();
        !self.each && !about_some && self.subjects().is_empty()
    }

    pub fn subjects(&self) -> Vec<(&'static str, i64)> {
        let all = [
            ("account", self.account),
            ("address", self.address),
            ("network", self.network),
            ("phone", self.phone),
        ];
        all.into_iter().filter_map(|(name, key)| Some((name, key?))).collect()
    }

    /// The same for all subjects.
    pub fn of_all(&self) -> Self {
        Self { account: None, address: None, network: None, phone: None, realm: None, ..self.clone() }
    }

    /// The filter as a query, without the place in the list.
    pub fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.actions.iter().map(|action| ("action", action.as_str())));
        query.extend_pairs(self.realm.iter().map(|realm| ("realm", realm)));
        query.extend_pairs(self.outcomes.iter().map(|outcome| ("outcome", outcome.as_str())));
        query.extend_pairs(self.limit.iter().map(|limit| ("limit", limit)));
        query.extend_pairs(self.noted.then_some(("noted", "1")));
        query.extend_pairs(self.subjects().into_iter().map(|(name, key)| (name, hash_text(key))));
        query.extend_pairs(self.span.map(|span| ("span", span.as_str())));
        query.extend_pairs(self.since.map(|at| ("since", Moment(at).iso())));
        query.extend_pairs(self.until.map(|at| ("until", Moment(at).iso())));
        query.extend_pairs(self.each.then_some(("each", "1")));
        query.finish()
    }

    pub fn href(&self, after: Option<&EventCursor>) -> String {
        let after = after.map(|after| format!("after={after}"));
        let query: Vec<String> =
            [self.query()].into_iter().chain(after).filter(|part| !part.is_empty()).collect();
        if query.is_empty() { PATH.to_owned() } else { format!("{PATH}?{}", query.join("&")) }
    }
}

/// A moment, or a local time as a form's field sends it, which is taken as UTC.
fn time(text: &str) -> Option<Micros> {
    let moment = text.parse::<Timestamp>().ok();
    let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp());
    let at = moment.or_else(local)?.as_microsecond();
    (at >= 0).then_some(Micros(at))
}

/// For such a field, to the minute: a beginning is rounded down, an end up.
pub fn field_time(at: Micros, up: bool) -> String {
    let at = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    let rest = at.as_second().rem_euclid(60) != 0;
    let at = if up && rest { at.checked_add(1.minute()).unwrap_or(at) } else { at };
    at.strftime("%Y-%m-%dT%H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> EventsAsked {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        EventsAsked::read(&pairs)
    }

    #[test]
    fn a_filter_is_in_its_url_and_is_read_back() {
        for query in [
            "",
            "action=sign-in&action=send&outcome=wrong&limit=sms-phone&noted=1&account=00000000000000aa",
            "span=24h&each=1",
            "action=attempt&realm=shop&outcome=wrong",
            "since=2026-03-01T12%3A00%3A00Z&until=2026-03-02T00%3A00%3A00Z",
        ] {
            assert_eq!(asked(query).query(), query);
        }
        assert_eq!(asked("outcome=wrong,busy,,x&outcome=busy").query(), "outcome=wrong&outcome=busy");
        assert_eq!(asked("").href(None), "/admin/events");
        let after = EventCursor { at: Micros(7), id: -1 };
        assert_eq!(asked("each=1").href(Some(&after)), "/admin/events?each=1&after=7--1");
    }

    #[test]
    fn times_come_from_links_and_from_fields() {
        let noon = Micros(1_772_366_400_000_000);
        for text in
            ["2026-03-01T12:00:00Z", "2026-03-01T12:00", "2026-03-01T12:00:00", "2026-03-01T20:00+08:00"]
        {
            assert_eq!(time(text), Some(noon), "{text}");
        }
        for text in ["", "noon", "12:00", "1900-01-01T00:00"] {
            assert_eq!(time(text), None, "{text}");
        }
        let second = Micros(noon.0 + 1_000_000);
        assert_eq!(
            (field_time(noon, true), field_time(second, true)),
            ("2026-03-01T12:00".into(), "2026-03-01T12:01".into())
        );
        assert_eq!(field_time(second, false), "2026-03-01T12:00");
        let day = asked("span=24h").filter(noon).since;
        assert_eq!(day, Some(noon.minus(Duration::from_secs(86_400))));
    }

    #[test]
    fn an_attack_is_one_line_unless_its_events_are_asked_for() {
        for query in ["", "action=send", "span=1h&since=2026-03-01T12:00"] {
            assert!(asked(query).folds_attacks(), "{query}");
        }
        for query in ["each=1", "outcome=wrong", "limit=sms-phone", "account=00000000000000aa", "noted=1"] {
            assert!(!asked(query).folds_attacks(), "{query}");
        }
    }
}
