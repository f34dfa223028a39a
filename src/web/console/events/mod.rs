//! `/admin/events`: recorded events, newest first, with their subjects, and how many there were over time.

pub mod api;
mod chip;
pub mod export;
pub mod row;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Query;
use askama::Template;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use strum::VariantArray;
use url::form_urlencoded;

use crate::accounts::Realm;
use crate::audit::{
    Action, AttackEntry, EventCount, EventCursor, EventFilter, EventPage, EventSubject, MINUTE, Outcome,
    SEARCHED, StepSpan, SubjectKind, floor,
};
use crate::clock::Micros;
use crate::config::{BESIDE_LIMITS, Limits};
use crate::db::DbError;
use crate::request_id::RequestId;
use crate::web::console::chart::Chart;
use crate::web::console::events::chip::FilterChip;
use crate::web::console::events::row::EventRow;
use crate::web::console::figures::{DAY, EVENTS, HOUR, stacked};
use crate::web::console::guard::AdminRequest;
use crate::web::console::limit_text::{grouped, title};
use crate::web::console::subject_link::{hash_text, parse_hash, tell_origins};
use crate::web::console::{Choice, RecordSpan};
use crate::web::form::FormPairs;
use crate::web::http::cookies;
use crate::web::http::{Flash, Layout, Locale, Moment, Services, WebError, WebResult};

const LONGEST: usize = 80;
/// The key of the text that a cookie keeps.
const TEXT: &str = "text";
const HERE: &str = "/admin/events";

/// What a page asks for: the filter in its URL. Values that cannot be parsed do not filter.
#[derive(Debug, Clone, Default)]
pub struct EventQuery {
    pub filter: EventFilter,
    /// The key of its text.
    pub text: Option<i64>,
    /// Up to now, if the filter has no beginning of its own.
    span: Option<RecordSpan>,
    /// Attacks event by event, not one line each.
    each: bool,
    after: Option<EventCursor>,
}

impl EventQuery {
    /// A name may come several times, or once with several words between commas.
    pub fn read(query: &[(String, String)]) -> Self {
        let all = |field: &'static str| {
            let named = query.iter().filter(move |(name, _)| name == field);
            named.flat_map(|(_, value)| value.split(',')).map(str::trim).filter(|text| !text.is_empty())
        };
        let one = |field| all(field).next().unwrap_or_default();
        let actions: BTreeSet<Action> = all("action").filter_map(|word| word.parse().ok()).collect();
        let outcomes: BTreeSet<Outcome> = all("outcome").filter_map(|word| word.parse().ok()).collect();
        let limit = one("limit");
        let subject = |kind: &SubjectKind| Some((*kind, parse_hash(one(kind.into_str()))?));
        let filter = EventFilter {
            actions: actions.into_iter().collect(),
            outcomes: outcomes.into_iter().collect(),
            realm: Realm::parse(one("realm")).map(|realm| realm.as_str().to_owned()),
            limit: (!limit.is_empty() && limit.len() <= LONGEST).then(|| limit.to_owned()),
            noted: (one("noted") == "1").then_some(true),
            subjects: SubjectKind::VARIANTS.iter().filter_map(subject).collect(),
            request: RequestId::parse(one("request").as_bytes()).map(|id| id.as_str().to_owned()),
            since: time(one("since")),
            until: time(one("until")),
            most: Some(SEARCHED),
            ..EventFilter::default()
        };
        Self {
            filter,
            text: parse_hash(one(TEXT)),
            span: RecordSpan::parse(one("span")),
            each: one("each") == "1",
            after: EventCursor::parse(one("after")),
        }
    }

    /// With the text that it is searched for, which is in no URL. If the cookie has another one by now, or none, it leads
    /// to the events without it.
    pub fn sent(request: &AdminRequest, query: &[(String, String)]) -> Result<Self, WebError> {
        let AdminRequest { visit, services, .. } = request;
        let mut asked = Self::read(query);
        let Some(key) = asked.text else { return Ok(asked) };
        let kept = cookies::typed(visit.request().headers(), visit.cookies().search_name);
        asked.filter.text = kept.filter(|text| text_key(services, text) == key);
        if asked.filter.text.is_none() {
            let without = Self { text: None, after: None, ..asked };
            return Err(visit.see_other(&without.href(None), Some(Flash::SearchEnded)).into());
        }
        Ok(asked)
    }

    pub fn filter(&self, now: Micros) -> EventFilter {
        let span = || self.span.map(|span| now.minus(span.length));
        EventFilter { since: self.filter.since.or_else(span), ..self.filter.clone() }
    }

    /// Whether an attack is one line: not if the filter asks for some of its events.
    fn folds_attacks(&self) -> bool {
        let EventFilter { limit, noted, outcomes, request, text, .. } = &self.filter;
        let names_some = [limit, request, text].into_iter().any(Option::is_some);
        let about_some = names_some || noted.is_some() || !outcomes.is_empty();
        !self.each && !about_some && self.filter.subjects.is_empty()
    }

    /// The filter, without the place in the list.
    fn pairs(&self) -> Vec<(&'static str, String)> {
        let EventFilter { actions, outcomes, realm, limit, noted, request, since, until, .. } = &self.filter;
        let mut pairs = Vec::new();
        pairs.extend(actions.iter().map(|action| ("action", action.into_str().to_owned())));
        pairs.extend(realm.iter().map(|realm| ("realm", realm.clone())));
        pairs.extend(outcomes.iter().map(|outcome| ("outcome", outcome.into_str().to_owned())));
        pairs.extend(limit.iter().map(|limit| ("limit", limit.clone())));
        pairs.extend(noted.map(|_| ("noted", "1".to_owned())));
        pairs.extend(self.filter.subjects.iter().map(|(kind, key)| (kind.into_str(), hash_text(*key))));
        pairs.extend(request.iter().map(|id| ("request", id.clone())));
        pairs.extend(self.text.map(|key| (TEXT, hash_text(key))));
        pairs.extend(self.span.map(|span| ("span", span.word.to_owned())));
        pairs.extend(since.map(|at| ("since", Moment(at).iso())));
        pairs.extend(until.map(|at| ("until", Moment(at).iso())));
        pairs.extend(self.each.then(|| ("each", "1".to_owned())));
        pairs
    }

    pub fn query(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(self.pairs()).finish()
    }

    /// The address of this list at another time.
    fn within(&self, since: i64, until: i64) -> String {
        let (since, until) = (Some(Micros(since.max(0))), Some(Micros(until.max(0))));
        let filter = EventFilter { since, until, ..self.filter.clone() };
        Self { filter, span: None, ..self.clone() }.href(None)
    }

    pub fn href(&self, after: Option<&EventCursor>) -> String {
        let after = after.map(|after| format!("after={after}"));
        let query: Vec<String> =
            [self.query()].into_iter().chain(after).filter(|part| !part.is_empty()).collect();
        if query.is_empty() { HERE.to_owned() } else { format!("{HERE}?{}", query.join("&")) }
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
fn field_time(at: Micros, up: bool) -> String {
    let at = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    let rest = at.as_second().rem_euclid(60) != 0;
    let at = if up && rest { at.checked_add(1.minute()).unwrap_or(at) } else { at };
    at.strftime("%Y-%m-%dT%H:%M").to_string()
}

const A_PAGE: u32 = 50;
/// Attacks that are one line each; the events of earlier ones are listed.
const MOST_ATTACKS: u32 = 50;

/// `GET /admin/events`
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let asked = EventQuery::sent(&request, &query)?;
    page(&request, asked, None).await
}

/// Names a text in a URL without telling it.
pub fn text_key(services: &Services, text: &str) -> i64 {
    services.audit.subject(&EventSubject::Custom(text))
}

/// `expired` is the text of a search that was sent from a page that is too old.
pub async fn page(request: &AdminRequest, asked: EventQuery, expired: Option<String>) -> WebResult {
    let AdminRequest { visit, services, admin } = request;
    let now = visit.now();
    if asked.after.is_none() {
        services.audit.flush().await;
    }
    let filter = asked.filter(now);
    // On later pages it would be the same. What no index counts has none.
    let chart = match (asked.after, filter.text.as_ref().or(filter.request.as_ref())) {
        (None, None) => Some(draw(services, &filter, now).await?),
        _ => None,
    };
    let mut attacks = attacks(services, &asked, &filter).await?;
    let folded = asked.folds_attacks().then(|| attacks.clone());
    let filter = EventFilter { folded, ..filter };
    let page = services.audit.log().page(&filter, asked.after, A_PAGE).await?;
    attacks.retain(|attack| is_on(attack, &asked, &page));
    let layout = request.layout(asked.href(asked.after.as_ref()));
    let limits = &services.live.snapshot().limits;
    let status = if expired.is_some() { StatusCode::FORBIDDEN } else { StatusCode::OK };
    let mut page = EventsPage { expired, ..EventsPage::new(layout, asked, page, &attacks, chart, limits) };
    let own = services.audit.subject(&admin.account.recorded());
    page.rows.iter_mut().flat_map(|row| &mut row.subjects).for_each(|it| it.name_own(own, admin.login()));
    let files = services.live.origins().in_use();
    tell_origins(page.rows.iter_mut().flat_map(|row| &mut row.subjects), &files);
    Ok(visit.page(status, &page))
}

/// The attacks that are one line each.
async fn attacks(
    services: &Services,
    asked: &EventQuery,
    filter: &EventFilter,
) -> Result<Vec<AttackEntry>, DbError> {
    if !asked.folds_attacks() {
        return Ok(Vec::new());
    }
    let mut attacks = services.attacks.since(filter.since.unwrap_or(Micros(0)), MOST_ATTACKS).await?;
    attacks.retain(|attack| {
        let is_asked = (filter.actions.is_empty() || filter.actions.contains(&attack.kind.action()))
            && filter.realm.as_ref().is_none_or(|realm| *realm == attack.realm);
        is_asked && filter.until.is_none_or(|until| attack.began_at < until)
    });
    Ok(attacks)
}

/// An attack stands where its last event would.
fn is_on(attack: &AttackEntry, asked: &EventQuery, page: &EventPage) -> bool {
    let at = attack.seen_at;
    asked.after.is_none_or(|after| at < after.at) && page.next.is_none_or(|next| at >= next.at)
}

const COLUMNS: u32 = 100;
const STEPS: [Duration; 8] = [
    MINUTE,
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    HOUR,
    Duration::from_secs(3 * 60 * 60),
    Duration::from_secs(6 * 60 * 60),
    Duration::from_secs(12 * 60 * 60),
    DAY,
];

/// A list without a beginning is drawn from a day before its end on.
fn chart_span(filter: &EventFilter, now: Micros) -> StepSpan {
    let end = filter.until.unwrap_or(now).min(now.plus(MINUTE));
    let wanted = end.since(filter.since.unwrap_or(end.minus(DAY))).max(MINUTE);
    let step = STEPS.into_iter().find(|step| wanted <= *step * (COLUMNS - 2)).unwrap_or(DAY);
    let last = floor(Micros(end.0 - 1), step);
    let start = floor(end.minus(wanted), step).max(last.minus(step * (COLUMNS - 1)));
    StepSpan { start, step, steps: (last.since(start).as_micros() / step.as_micros()) as usize + 1 }
}

/// The chart above a list: how many events there were over time, by how they ended. Sums of minutes serve most filters,
/// whatever the traffic was. Those of a subject count rows.
async fn draw(services: &Services, filter: &EventFilter, now: Micros) -> Result<Chart, DbError> {
    let (span, log) = (chart_span(filter, now), services.audit.log());
    let fits = |sum: &EventCount| {
        (filter.actions.is_empty() || filter.actions.contains(&sum.action))
            && (filter.outcomes.is_empty() || filter.outcomes.contains(&sum.outcome))
            && filter.realm.as_ref().is_none_or(|realm| *realm == sum.realm)
            && filter.limit.as_ref().is_none_or(|limit| sum.names(limit))
            && filter.noted.is_none_or(|noted| noted == sum.noted)
    };
    let series = match filter.subjects.is_empty() {
        true => stacked(&EVENTS, &log.series(&span).await?, fits),
        false => stacked(&EVENTS, &log.counts(filter, &span).await?, |_| true),
    };
    Ok(Chart { id: "events-chart", title: "event.chart", span, series, now })
}

#[derive(Template)]
#[template(path = "pages/admin/events.html")]
pub struct EventsPage {
    layout: Layout,
    asked: EventQuery,
    chips: Vec<FilterChip>,
    limits: Vec<String>,
    rows: Vec<EventRow>,
    chart: Option<Chart>,
    older: Option<String>,
    /// How far back the list was searched, if it found too few.
    reached: Option<Moment>,
    expired: Option<String>,
}

impl EventsPage {
    pub fn new(
        layout: Layout,
        asked: EventQuery,
        page: EventPage,
        attacks: &[AttackEntry],
        chart: Option<Chart>,
        limits: &Limits,
    ) -> Self {
        let names = limits.iter().map(|limit| limit.name().to_owned());
        let chips = chip::chips(&asked, page.entries.first(), layout.locale);
        let cut = page.entries.len() < A_PAGE as usize;
        let mut rows = row::rows(page.entries);
        rows.extend(attacks.iter().map(EventRow::from));
        // Newest first: several that share a line stand where the last of them would.
        rows.sort_by_key(|row| std::cmp::Reverse(row.last().0));
        Self {
            layout,
            older: page.next.map(|next| asked.href(Some(&next))),
            reached: page.next.filter(|_| cut).map(|next| Moment(next.at)),
            rows,
            limits: names.chain(BESIDE_LIMITS.map(str::to_owned)).collect(),
            chart,
            chips,
            asked,
            expired: None,
        }
    }

    /// What was searched for.
    fn text(&self) -> &str {
        self.expired.as_ref().or(self.asked.filter.text.as_ref()).map_or("", |text| text)
    }

    fn searched(&self) -> String {
        grouped(u64::from(SEARCHED))
    }

    /// Other times: locale keys, and what a link to each looks like.
    fn times(&self, chart: &Chart) -> Vec<(&'static str, &'static str, String)> {
        let (from, until) = (chart.from().0.0, chart.until().0.0);
        let (half, quarter) = ((until - from) / 2, (until - from) / 4);
        let of = |since, until| self.asked.within(since, until);
        let later =
            (self.asked.filter.until.is_some()).then(|| ("event.later", "›", of(until, until + 2 * half)));
        let before = [
            ("event.earlier", "‹", of(from - 2 * half, from)),
            ("event.wider", "−", of(from - half, until + half)),
            ("event.closer", "+", of(from + quarter, until - quarter)),
        ];
        before.into_iter().chain(later).collect()
    }

    fn choices<T>(&self, chosen: &[T], word: fn(T, Locale) -> Cow<'static, str>) -> Vec<Choice>
    where
        T: VariantArray + Copy + PartialEq + Into<&'static str>,
    {
        let choice = |it: &T| Choice::new((*it).into(), word(*it, self.layout.locale), chosen.contains(it));
        T::VARIANTS.iter().map(choice).collect()
    }

    fn spans(&self) -> Vec<Choice> {
        let choice =
            |it: RecordSpan| Choice::new(it.word, self.layout.t(it.key), self.asked.span == Some(it));
        RecordSpan::ALL.into_iter().map(choice).collect()
    }

    fn since(&self) -> String {
        self.asked.filter.since.map(|at| field_time(at, false)).unwrap_or_default()
    }

    fn until(&self) -> String {
        self.asked.filter.until.map(|at| field_time(at, true)).unwrap_or_default()
    }

    fn chosen_limit(&self, name: &String) -> bool {
        self.asked.filter.limit.as_ref() == Some(name)
    }

    fn limit_title(&self, name: &str) -> Cow<'static, str> {
        title(name, self.layout.locale)
    }

    /// Filters without an input field, which the form must carry.
    fn kept(&self) -> Vec<(&'static str, String)> {
        let kept = ["account", "address", "network", "phone", "realm", "request", TEXT];
        self.asked.pairs().into_iter().filter(|(name, _)| kept.contains(name)).collect()
    }

    fn newest(&self) -> String {
        self.asked.href(None)
    }

    fn file(&self, ending: &str) -> String {
        let query = self.asked.query();
        if query.is_empty() {
            format!("/admin/events.{ending}")
        } else {
            format!("/admin/events.{ending}?{query}")
        }
    }

    fn most(&self) -> String {
        grouped(export::MOST as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::console::figures::{MESSAGES, SIGN_INS};

    const NOON: Micros = Micros(1_772_366_400_000_000);

    fn asked(query: &str) -> EventQuery {
        let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        EventQuery::read(&pairs)
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
        let noon = NOON;
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

    #[test]
    fn every_outcome_is_in_one_series_of_each_chart() {
        for outcome in Outcome::VARIANTS {
            for chart in [EVENTS, SIGN_INS, MESSAGES] {
                let of = chart.iter().filter(|(_, _, fates)| fates.contains(&outcome.fate(false)));
                assert_eq!(of.count(), 1, "{outcome:?}");
            }
        }
    }

    #[test]
    fn a_span_has_at_most_a_hundred_columns_and_ends_with_its_end() {
        for minutes in [0_u32, 1, 59, 60, 61, 1_440, 10_080, 43_200, 5_256_000] {
            let filter = EventFilter { since: Some(NOON.minus(MINUTE * minutes)), ..EventFilter::default() };
            let span = chart_span(&filter, NOON);
            assert!(span.steps >= 1 && span.steps <= 100, "{minutes}: {}", span.steps);
            assert_eq!(span.place(Micros(NOON.0 - 1)), Some(span.steps - 1), "{minutes}");
        }
        let day = chart_span(&EventFilter::default(), NOON);
        assert_eq!((day.step, day.steps), (MINUTE * 15, 96));
        let backwards =
            EventFilter { since: Some(NOON), until: Some(NOON.minus(HOUR)), ..EventFilter::default() };
        assert_eq!(chart_span(&backwards, NOON).steps, 1);
    }
}
