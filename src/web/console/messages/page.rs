//! `/admin/messages`: the ledger and the brakes, for administrators.

use actix_web::http::StatusCode;
use actix_web::web::{Form, Query};
use serde::Deserialize;

use crate::sms::{LedgerCursor, LedgerFilter, MessageState};
use crate::web::console::guard::{self, Admin};
use crate::web::console::messages::lift_brake;
use crate::web::console::messages::view::{Asked, MessagesPage};
use crate::web::kit::flash::Flash;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

const HERE: &str = "/admin/messages";
const A_PAGE: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessagesPageQuery {
    state: String,
    prefix: String,
    after: String,
}

/// `POST /admin/brakes/lift`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LiftForm {
    prefix: String,
    csrf_token: String,
}

/// `GET /admin/messages`. Values that cannot be parsed do not filter.
pub async fn show(
    visit: Visit,
    admin: Admin,
    wanted: Query<MessagesPageQuery>,
    services: Shared,
) -> WebResult {
    let asked = Asked {
        state: MessageState::parse(&wanted.state),
        prefix: wanted.prefix.trim().chars().take(32).collect(),
        after: LedgerCursor::parse(&wanted.after),
    };
    let ledger = services.codes.ledger();
    let prefix = Some(asked.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state: asked.state, prefix, ..LedgerFilter::default() };
    let found = ledger.page(&filter, asked.after.as_ref(), A_PAGE).await?;
    let brakes = ledger.brakes().await?;
    let page = MessagesPage::new(&visit, admin.login(), asked, found, brakes);
    Ok(visit.page(StatusCode::OK, &page))
}

/// `POST /admin/brakes/lift`
pub async fn lift(visit: Visit, form: Form<LiftForm>, services: Shared) -> WebResult {
    let admin = guard::change(&visit, &services, HERE, &form.csrf_token).await?;
    let lifted = lift_brake(&services, &admin, &form.prefix).await?;
    Ok(visit.see_other(HERE, lifted.then_some(Flash::BrakeLifted)))
}
