//! What only administrators may do, and what other programs may do with a token.

mod access;
mod accounts;
mod accounts_list;
mod confirm;
mod leads;
mod machine;
mod passwords;
mod profiles;
mod standing;
mod subjects;
pub mod tokens;

use gatehouse::audit::{Action, EventEntry, EventFilter};

use crate::support::app::TestApp;

/// Administrators' actions, newest first.
async fn acts(app: &TestApp) -> Vec<EventEntry> {
    let audit = &app.services.audit;
    audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Admin], ..EventFilter::default() };
    audit.log().page(&filter, None, 1000).await.unwrap().entries
}
