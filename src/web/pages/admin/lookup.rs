//! `/admin/lookup`: one person, what is counted against them, when that ends, why they were refused, and the
//! way to let them in.

use std::borrow::Cow;
use std::time::Duration;

use askama::Template;
use rust_i18n::t;

use crate::clock::Micros;
use crate::throttle::{Limit, Rule, window};
use crate::web::pages::Layout;
use crate::web::pages::admin::event_row::EventRow;
use crate::web::pages::admin::words::{grouped, sentence, title};
use crate::web::visit::Visit;
use crate::web::wait::{Moment, Wait};

/// Units across a time line.
const ACROSS: u64 = 1000;

/// What was found of whoever was looked up.
pub struct Person {
    /// Which kind of thing was typed.
    pub kind: &'static str,
    /// As it is counted: a login in its one spelling, a number in E.164.
    pub name: String,
    /// More of what is known, in words by their keys.
    pub facts: Vec<&'static str>,
    pub limits: Vec<LimitState>,
    pub events: Vec<EventRow>,
    /// All of them.
    pub all_events: String,
}

/// One limit's log of that person.
pub struct LimitState {
    name: String,
    rules: Vec<RuleState>,
    /// Attempts under way.
    holds: u32,
    empty: bool,
}

/// What one rule makes of the log.
struct RuleState {
    rule: Rule,
    used: u32,
    /// When the next hit is admitted, where none is now.
    frees: Option<Wait>,
    start: Moment,
    end: Moment,
    /// Where on the line each counted hit is, the newest last.
    marks: Vec<u64>,
}

impl LimitState {
    /// `hits` are the times in its log, the newest first.
    pub fn new(limit: &Limit, now: Micros, hits: &[Micros], holds: u32) -> Self {
        let rules = limit.rules().iter().map(|rule| RuleState::new(rule, now, hits)).collect();
        Self { name: limit.name().to_owned(), rules, holds, empty: hits.is_empty() && holds == 0 }
    }

    fn is_full(&self) -> bool {
        self.rules.iter().any(|rule| rule.frees.is_some())
    }
}

impl RuleState {
    fn new(rule: &Rule, now: Micros, hits: &[Micros]) -> Self {
        let start = window::start(&rule.span, now);
        let counted: Vec<Micros> = hits.iter().copied().filter(|at| *at > start && *at <= now).collect();
        // It is the max-th newest that has to leave.
        let blocking = counted.get(rule.max as usize - 1).copied();
        let frees = blocking.map(|at| Wait::new(now, window::end(&rule.span, at, now).since(now)));
        let whole = now.since(start).max(Duration::from_micros(1)).as_micros();
        let place = |at: &Micros| (at.since(start).as_micros() * u128::from(ACROSS) / whole) as u64;
        let mut marks: Vec<u64> = counted.iter().rev().map(place).collect();
        marks.dedup();
        let used = u32::try_from(counted.len()).unwrap_or(u32::MAX);
        Self { rule: rule.clone(), used, frees, start: Moment(start), end: Moment(now), marks }
    }
}

#[derive(Template)]
#[template(path = "pages/admin/lookup.html")]
pub struct LookupPage {
    layout: Layout,
    asked: String,
    found: Option<Person>,
    /// What was typed is nobody that could be counted.
    unreadable: bool,
    /// The limit whose clearing lacks its reason.
    reason_missing: Option<String>,
    down: bool,
}

impl LookupPage {
    pub fn new(visit: &Visit, user: &str, asked: &str) -> Self {
        let layout = visit.layout("/admin/lookup", Some(user));
        let asked = asked.to_owned();
        Self { layout, asked, found: None, unreadable: false, reason_missing: None, down: false }
    }

    pub fn found(mut self, person: Person) -> Self {
        self.found = Some(person);
        self
    }

    pub const fn unreadable(mut self) -> Self {
        self.unreadable = true;
        self
    }

    /// The store does not answer.
    pub const fn down(mut self) -> Self {
        self.down = true;
        self
    }

    pub fn reason_missing(mut self, limit: &str) -> Self {
        self.reason_missing = Some(limit.to_owned());
        self
    }

    pub const fn is_wrong(&self) -> bool {
        self.unreadable || self.reason_missing.is_some()
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

    fn lacks_reason(&self, limit: &LimitState) -> bool {
        self.reason_missing.as_deref() == Some(limit.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::{Mode, Then};

    fn state(max: u32, hits: &[i64], now: i64) -> LimitState {
        let rule = Rule::sliding(max, Duration::from_secs(60), Then::Block);
        let limit = Limit::new("login-account", vec![rule], Mode::Enforce).unwrap();
        let hits: Vec<Micros> = hits.iter().map(|second| Micros::from_seconds(*second)).collect();
        LimitState::new(&limit, Micros::from_seconds(now), &hits, 0)
    }

    #[test]
    fn the_next_slot_frees_when_the_oldest_that_fills_the_rule_leaves() {
        let full = state(2, &[90, 70, 50], 100);
        assert_eq!(full.rules[0].used, 3);
        assert_eq!(full.rules[0].frees.unwrap().seconds(), 30, "the hit at 70 leaves at 130");
        assert!(full.is_full());
        let free = state(3, &[90, 70, 40], 100);
        assert_eq!(
            (free.rules[0].used, free.rules[0].frees),
            (2, None),
            "a hit exactly a window old has left"
        );
    }

    #[test]
    fn hits_stand_on_the_line_where_they_were_in_the_window() {
        assert_eq!(state(9, &[100, 70, 55], 100).rules[0].marks, [250, 500, 1000]);
        assert!(state(9, &[], 100).empty);
    }
}
