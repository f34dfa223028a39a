//! `/admin/events`: all recorded events, newest first, with their subjects.

use askama::Template;
use url::form_urlencoded;

use crate::audit::{Action, EventCursor, EventFilter, EventPage, Outcome};
use crate::config::Limits;
use crate::web::console::events::row::{self, EventRow, action_key, outcome_key};
use crate::web::console::subject_link::hash_text;
use crate::web::kit::layout::Layout;
use crate::web::kit::visit::Visit;

struct Choice {
    value: &'static str,
    key: &'static str,
    chosen: bool,
}

#[derive(Template)]
#[template(path = "pages/admin/events.html")]
pub struct EventsPage {
    layout: Layout,
    filter: EventFilter,
    limits: Vec<String>,
    rows: Vec<EventRow>,
    first: bool,
    older: Option<String>,
    /// The subject of the list, if it has only one.
    only: Option<String>,
}

impl EventsPage {
    pub fn new(
        visit: &Visit,
        user: &str,
        filter: EventFilter,
        after: Option<EventCursor>,
        found: EventPage,
        limits: &Limits,
    ) -> Self {
        let only = found.entries.first().and_then(|entry| {
            let shown = [
                (filter.account, &entry.account),
                (filter.address, &entry.address),
                (filter.phone, &entry.phone),
            ];
            shown
                .into_iter()
                .find(|(key, _)| key.is_some())
                .and_then(|(_, shown)| Some(shown.as_ref()?.mask.clone()))
        });
        Self {
            layout: visit.layout(address(&filter, after.as_ref()), Some(user)),
            older: found.next.map(|next| address(&filter, Some(&next))),
            rows: row::rows(found.entries),
            limits: limits.iter().map(|limit| limit.name().to_owned()).collect(),
            first: after.is_none(),
            filter,
            only,
        }
    }

    fn actions(&self) -> Vec<Choice> {
        let choice = |action: &Action| Choice {
            value: action.as_str(),
            key: action_key(*action),
            chosen: self.filter.action == Some(*action),
        };
        Action::ALL.iter().map(choice).collect()
    }

    fn outcomes(&self) -> Vec<Choice> {
        let choice = |outcome: &Outcome| Choice {
            value: outcome.as_str(),
            key: outcome_key(*outcome),
            chosen: self.filter.outcome == Some(*outcome),
        };
        Outcome::ALL.iter().map(choice).collect()
    }

    fn chosen_limit(&self, name: &String) -> bool {
        self.filter.limit.as_ref() == Some(name)
    }

    /// Filters without an input field, which the form must carry.
    fn kept(&self) -> Vec<(&'static str, String)> {
        subjects(&self.filter).into_iter().map(|(name, key)| (name, hash_text(key))).collect()
    }

    fn about_one(&self) -> bool {
        !self.kept().is_empty()
    }

    /// The same list for all subjects.
    fn of_all(&self) -> String {
        address(&EventFilter { account: None, address: None, phone: None, ..self.filter.clone() }, None)
    }

    fn newest(&self) -> String {
        address(&self.filter, None)
    }
}

fn subjects(filter: &EventFilter) -> Vec<(&'static str, i64)> {
    let all = [("account", filter.account), ("address", filter.address), ("phone", filter.phone)];
    all.into_iter().filter_map(|(name, key)| Some((name, key?))).collect()
}

fn address(filter: &EventFilter, after: Option<&EventCursor>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    if let Some(action) = filter.action {
        query.append_pair("action", action.as_str());
    }
    if let Some(outcome) = filter.outcome {
        query.append_pair("outcome", outcome.as_str());
    }
    if let Some(limit) = &filter.limit {
        query.append_pair("limit", limit);
    }
    if filter.noted == Some(true) {
        query.append_pair("noted", "1");
    }
    for (name, key) in subjects(filter) {
        query.append_pair(name, &hash_text(key));
    }
    if let Some(after) = after {
        query.append_pair("after", &after.to_string());
    }
    let query = query.finish();
    if query.is_empty() { "/admin/events".to_owned() } else { format!("/admin/events?{query}") }
}
