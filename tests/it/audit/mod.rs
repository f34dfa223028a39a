//! What is recorded of attempts, and how it is read.

mod api;
mod attacks;
mod floods;
mod lists;
mod outcomes;
mod search;
mod shutdown;

use gatehouse::audit::{EventEntry, EventFilter};

use crate::support::app::TestApp;

/// Everything that was recorded, oldest first.
pub async fn events(app: &TestApp) -> Vec<EventEntry> {
    app.services.audit.flush().await;
    let page = app.services.audit.log().page(&EventFilter::default(), None, 1000).await.unwrap();
    page.entries.into_iter().rev().collect()
}

/// `action outcome` and, if present, `xCOUNT`, `by LIMIT/RULE`, `(NAME)`, `solved`, `noted`.
pub fn told(entry: &EventEntry) -> String {
    let mut text = format!("{} {}", entry.action.into_str(), entry.outcome.into_str());
    if entry.count != 1 {
        text += &format!(" x{}", entry.count);
    }
    if let (Some(limit), Some(rule)) = (&entry.limit, entry.rule) {
        text += &format!(" by {limit}/{rule}");
    }
    if let Some(name) = &entry.name {
        text += &format!(" ({name})");
    }
    for (said, word) in [(entry.solved, " solved"), (entry.noted, " noted")] {
        if said {
            text += word;
        }
    }
    text
}
