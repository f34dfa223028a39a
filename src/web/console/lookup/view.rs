//! `/admin/lookup`: one subject, its counts, when they end, why it was refused, and how to let it in.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use rust_i18n::t;

use crate::clock::Micros;
use crate::lookup::{LimitStatus, RuleStatus};
use crate::throttle::{Rule, RuleAction, window};
use crate::web::console::events::row::EventRow;
use crate::web::console::lookup::asked;
use crate::web::console::words::{grouped, sentence, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;
use crate::web::kit::wait::{Moment, Wait};

/// Units of a time line's width.
const ACROSS: u64 = 1000;

/// Names the password if enabling it lacks a reason. No limit has this name.
pub const ENABLING: &str = "password";

/// What was found about the looked-up subject.
pub struct Person {
    /// The kind of subject.
    pub kind: &'static str,
    /// The name as limits count it: a canonical login, or a number in E.164.
    pub name: String,
    /// Other known facts, in words.
    pub facts: Vec<String>,
    /// Since when the password is disabled.
    pub disabled: Option<Moment>,
    pub limits: Vec<LimitState>,
    pub events: Vec<EventRow>,
    /// The link to all events, if there are any.
    pub all_events: Option<String>,
}

/// One limit's log for this subject.
pub struct LimitState {
    name: String,
    rules: Vec<RuleState>,
    /// Attempts in flight.
    holds: u32,
    empty: bool,
    /// Every instance counts separately.
    of_this_instance: bool,
    /// The link to what this limit decided about the subject.
    events: Option<String>,
}

/// The state of one rule, from the log.
struct RuleState {
    rule: Rule,
    used: u32,
    /// When the next hit is admitted; None if one is admitted now.
    frees: Option<Wait>,
    start: Moment,
    end: Moment,
    /// The position of each counted hit on the time line, newest last.
    marks: Vec<u64>,
}

impl LimitState {
    pub fn new(standing: LimitStatus) -> Self {
        let LimitStatus { limit, of_this_instance, at, holds, hits, rules } = standing;
        let state = |(rule, standing): (&Rule, RuleStatus)| RuleState::new(rule, at, &hits, standing);
        let empty = hits.is_empty() && holds == 0;
        let rules = limit.rules().iter().zip(rules).map(state).collect();
        Self { name: limit.name().to_owned(), rules, holds, empty, of_this_instance, events: None }
    }

    pub fn with_events(self, events: Option<String>) -> Self {
        Self { events, ..self }
    }

    fn is_full(&self) -> bool {
        self.rules.iter().any(|rule| rule.frees.is_some())
    }
}

impl RuleState {
    fn new(rule: &Rule, now: Micros, hits: &[Micros], standing: RuleStatus) -> Self {
        let start = window::start(&rule.span, now);
        let whole = now.since(start).max(Duration::from_micros(1)).as_micros();
        let place = |at: &Micros| (at.since(start).as_micros() * u128::from(ACROSS) / whole) as u64;
        // Hits that a success has forgiven are older than every hit that a captcha rule counts.
        let most = if rule.then == RuleAction::Captcha { standing.count as usize } else { hits.len() };
        let counted = hits.iter().filter(|at| **at > start && **at <= now).take(most);
        let mut marks: Vec<u64> = counted.map(place).collect();
        marks.reverse();
        marks.dedup();
        let frees = standing.frees_at.map(|at| Wait::new(now, at.since(now)));
        Self {
            rule: rule.clone(),
            used: standing.count,
            frees,
            start: Moment(start),
            end: Moment(now),
            marks,
        }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/lookup.html")]
pub struct LookupPage {
    layout: Layout,
    asked: String,
    found: Option<Person>,
    /// The input is not a subject that limits can count.
    unreadable: bool,
    /// The limit to clear without a reason given, or [`ENABLING`].
    reason_missing: Option<String>,
    down: bool,
    expired: bool,
    /// No event names the subject any more.
    gone: bool,
}

impl LookupPage {
    pub fn new(visit: &Visit, user: &str, asked: &str) -> Self {
        let by_hash = asked::recorded(asked).is_some() && visit.here().starts_with("/admin/lookup?");
        let layout = visit.layout(if by_hash { visit.here() } else { "/admin/lookup" }, Some(user));
        let asked = asked.to_owned();
        Self {
            layout,
            asked,
            found: None,
            unreadable: false,
            reason_missing: None,
            down: false,
            expired: false,
            gone: false,
        }
    }

    pub const fn gone(mut self) -> Self {
        self.gone = true;
        self
    }

    /// What stands in the field.
    fn typed(&self) -> &str {
        asked::typed(&self.asked)
    }

    pub fn found(mut self, person: Person) -> Self {
        self.found = Some(person);
        self
    }

    pub const fn unreadable(mut self) -> Self {
        self.unreadable = true;
        self.layout.mistaken = true;
        self
    }

    /// The form was too old, or not ours.
    pub const fn expired(mut self) -> Self {
        self.expired = true;
        self
    }

    /// The store does not answer.
    pub const fn down(mut self) -> Self {
        self.down = true;
        self
    }

    pub fn reason_missing(mut self, limit: &str) -> Self {
        self.reason_missing = Some(limit.to_owned());
        self.layout.mistaken = true;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let status = match self {
            Self { expired: true, .. } => StatusCode::FORBIDDEN,
            Self { down: true, .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self { gone: true, .. } => StatusCode::NOT_FOUND,
            _ if self.unreadable || self.reason_missing.is_some() => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::OK,
        };
        visit.page(status, self)
    }

    fn title(&self, name: &str) -> Cow<'static, str> {
        title(name, self.layout.locale)
    }

    fn sentence(&self, limit: &LimitState, rule: &RuleState) -> String {
        sentence(&limit.name, &rule.rule, self.layout.locale)
    }

    /// `2 of 3 used`
    fn used(&self, rule: &RuleState) -> Cow<'static, str> {
        let (used, max) = (grouped(u64::from(rule.used)), grouped(u64::from(rule.rule.max)));
        t!("lookup.used", locale = self.layout.locale.code(), used = used, max = max)
    }

    fn holds(&self, limit: &LimitState) -> Cow<'static, str> {
        t!("lookup.holds", locale = self.layout.locale.code(), count = limit.holds)
    }

    fn enabling_lacks_reason(&self) -> bool {
        self.reason_missing.as_deref() == Some(ENABLING)
    }

    fn lacks_reason(&self, limit: &LimitState) -> bool {
        self.reason_missing.as_deref() == Some(limit.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Limit, LimitMode, RuleAction};

    fn state(hits: &[i64], frees: Option<i64>) -> LimitState {
        let rule = Rule::sliding(2, Duration::from_secs(60), RuleAction::Block);
        let limit = Limit::new("login-account", vec![rule], LimitMode::Enforce).unwrap();
        let at = Micros::from_seconds(100);
        let hits: Vec<Micros> = hits.iter().map(|second| Micros::from_seconds(*second)).collect();
        let frees_at = frees.map(Micros::from_seconds);
        let rules = vec![RuleStatus { count: hits.len() as u32, frees_at }];
        LimitState::new(LimitStatus { limit, of_this_instance: false, at, holds: 0, hits, rules })
    }

    #[test]
    fn a_full_rule_says_how_long_until_the_next_place_frees() {
        let full = state(&[90, 70], Some(130));
        assert_eq!(full.rules[0].frees.unwrap().seconds(), 30);
        assert!(full.is_full() && !state(&[90], None).is_full());
    }

    #[test]
    fn hits_stand_on_the_line_where_they_were_in_the_window() {
        assert_eq!(
            state(&[100, 70, 55, 40, 12], None).rules[0].marks,
            [250, 500, 1000],
            "a window old has left"
        );
        assert!(state(&[], None).empty);
    }
}
