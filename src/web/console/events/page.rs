//! `/admin/events`: the record of events, filtered.

use actix_web::http::StatusCode;
use actix_web::web::Query;
use serde::Deserialize;

use crate::audit::{Action, EventCursor, EventFilter, Outcome};
use crate::web::console::events::view::EventsPage;
use crate::web::console::guard::Admin;
use crate::web::console::subject_link::parse_hash;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

const A_PAGE: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventsPageQuery {
    action: String,
    outcome: String,
    limit: String,
    noted: String,
    account: String,
    address: String,
    phone: String,
    after: String,
}

impl EventsPageQuery {
    /// Values that cannot be parsed do not filter.
    fn filter(&self) -> EventFilter {
        let limit = self.limit.trim();
        EventFilter {
            action: Action::parse(&self.action),
            outcome: Outcome::parse(&self.outcome),
            limit: (!limit.is_empty() && limit.len() <= 80).then(|| limit.to_owned()),
            account: parse_hash(&self.account),
            address: parse_hash(&self.address),
            phone: parse_hash(&self.phone),
            since: None,
            until: None,
            noted: (self.noted == "1").then_some(true),
        }
    }
}

/// `GET /admin/events`
pub async fn show(visit: Visit, admin: Admin, wanted: Query<EventsPageQuery>, services: Shared) -> WebResult {
    let (filter, after) = (wanted.filter(), EventCursor::parse(&wanted.after));
    if after.is_none() {
        services.audit.flush().await;
    }
    let found = services.audit.log().page(&filter, after, A_PAGE).await?;
    let limits = &services.live.snapshot().limits;
    let page = EventsPage::new(&visit, admin.login(), filter, after, found, limits);
    Ok(visit.page(StatusCode::OK, &page))
}
