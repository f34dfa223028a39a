//! What administrators may, and nobody else; what other programs may with a token.

mod access;
mod confirm;
mod passwords;
mod subjects;
pub mod tokens;

use gatehouse::audit::{Action, Entry, Filter};

use crate::support::app::TestApp;

/// What administrators did, the newest first.
async fn acts(app: &TestApp) -> Vec<Entry> {
    let audit = &app.services.audit;
    audit.flush().await;
    let filter = Filter { action: Some(Action::Admin), ..Filter::default() };
    audit.log().page(&filter, None, 1000).await.unwrap().entries
}
