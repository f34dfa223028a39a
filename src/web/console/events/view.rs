//! `/admin/events`: recorded events, newest first, with their subjects, and how many there were over time.

use std::borrow::Cow;

use askama::Template;

use crate::audit::{Action, EventPage, Outcome};
use crate::config::{Limits, SMS_BRAKE};
use crate::web::console::chart::Chart;
use crate::web::console::events::EventsAsked;
use crate::web::console::events::asked::{EventSpan, field_time};
use crate::web::console::events::export;
use crate::web::console::events::row::{self, EventRow, action_key, outcome_key};
use crate::web::console::subject_link::hash_text;
use crate::web::console::words::{grouped, title};
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;

struct Choice {
    value: &'static str,
    key: &'static str,
    chosen: bool,
}

/// What was found for a page.
pub struct EventsFound {
    pub page: EventPage,
    /// Attacks, newest first, each of which stands for its events.
    pub lines: Vec<EventRow>,
    /// None on later pages.
    pub chart: Option<Chart>,
}

#[derive(Template)]
#[template(path = "pages/admin/events.html")]
pub struct EventsPage {
    layout: Layout,
    asked: EventsAsked,
    limits: Vec<String>,
    rows: Vec<EventRow>,
    chart: Option<Chart>,
    older: Option<String>,
    /// The subject of the list, or its realm, if it has only one.
    only: Option<String>,
}

impl EventsPage {
    pub fn new(visit: &Visit, user: &str, asked: EventsAsked, found: EventsFound, limits: &Limits) -> Self {
        let EventsFound { page, lines, chart } = found;
        let of_one = page.entries.first().and_then(|entry| {
            let shown = [
                (asked.account, &entry.account),
                (asked.address, &entry.address),
                (asked.network, &entry.network),
                (asked.phone, &entry.phone),
            ];
            shown
                .into_iter()
                .find(|(key, _)| key.is_some())
                .and_then(|(_, shown)| Some(shown.as_ref()?.mask.clone()))
        });
        let only = of_one.or_else(|| asked.realm.as_ref().map(|realm| format!("guard:{realm}")));
        let names = limits.iter().map(|limit| limit.name().to_owned());
        let mut rows = row::rows(page.entries);
        rows.extend(lines);
        // Newest first: several that share a line stand where the last of them would.
        rows.sort_by_key(|row| std::cmp::Reverse(row.last()));
        Self {
            layout: visit.layout(asked.href(asked.after.as_ref()), Some(user)),
            older: page.next.map(|next| asked.href(Some(&next))),
            rows,
            limits: names.chain([SMS_BRAKE.to_owned()]).collect(),
            chart,
            asked,
            only,
        }
    }

    fn actions(&self) -> Vec<Choice> {
        let choice = |action: &Action| Choice {
            value: action.as_str(),
            key: action_key(*action),
            chosen: self.asked.actions.contains(action),
        };
        Action::ALL.iter().map(choice).collect()
    }

    fn outcomes(&self) -> Vec<Choice> {
        let choice = |outcome: &Outcome| Choice {
            value: outcome.as_str(),
            key: outcome_key(*outcome),
            chosen: self.asked.outcomes.contains(outcome),
        };
        Outcome::ALL.iter().map(choice).collect()
    }

    /// The chosen ones in words; `any` if there are none.
    fn chosen(&self, choices: &[Choice]) -> String {
        let words: Vec<_> =
            choices.iter().filter(|one| one.chosen).map(|one| self.layout.t(one.key)).collect();
        if words.is_empty() { self.layout.t("messages.any").into_owned() } else { words.join(" · ") }
    }

    fn spans(&self) -> Vec<Choice> {
        let choice = |span: EventSpan| Choice {
            value: span.as_str(),
            key: span.key(),
            chosen: self.asked.span == Some(span),
        };
        EventSpan::ALL.into_iter().map(choice).collect()
    }

    /// The beginning, as its field takes it.
    fn since(&self) -> String {
        self.asked.since.map(|at| field_time(at, false)).unwrap_or_default()
    }

    fn until(&self) -> String {
        self.asked.until.map(|at| field_time(at, true)).unwrap_or_default()
    }

    fn chosen_limit(&self, name: &String) -> bool {
        self.asked.limit.as_ref() == Some(name)
    }

    fn limit_title(&self, name: &str) -> Cow<'static, str> {
        title(name, self.layout.locale)
    }

    /// Filters without an input field, which the form must carry.
    fn kept(&self) -> Vec<(&'static str, String)> {
        let subjects = self.asked.subjects().into_iter().map(|(name, key)| (name, hash_text(key)));
        subjects.chain(self.asked.realm.iter().map(|realm| ("realm", realm.clone()))).collect()
    }

    fn about_one(&self) -> bool {
        !self.asked.subjects().is_empty() || self.asked.realm.is_some()
    }

    /// The same list for all subjects.
    fn of_all(&self) -> String {
        self.asked.of_all().href(None)
    }

    fn newest(&self) -> String {
        self.asked.href(None)
    }

    /// The same list as a file.
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
