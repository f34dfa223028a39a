//! `/admin/messages`: the ledger and the brakes, for administrators.

use actix_web::web::{Form, Query};
use serde::Deserialize;

use crate::db::DbError;
use crate::sms::{LedgerCursor, LedgerFilter, MessageState};
use crate::web::console::LONGEST_REASON;
use crate::web::console::confirm::carried::{self, FormPairs};
use crate::web::console::guard::Admin;
use crate::web::console::messages::lift_brake;
use crate::web::console::messages::view::{Asked, LiftProblem, MessagesPage};
use crate::web::kit::flash::Flash;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::{WebError, WebResult};

const HERE: &str = "/admin/messages";
const LIFT: &str = "/admin/brakes/lift";
const A_PAGE: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessagesPageQuery {
    state: String,
    prefix: String,
    after: String,
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
    let page = page(&visit, &services, &admin, asked).await?;
    Ok(page.respond(&visit))
}

async fn page(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    asked: Asked,
) -> Result<MessagesPage, DbError> {
    let ledger = services.codes.ledger();
    let prefix = Some(asked.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state: asked.state, prefix, ..LedgerFilter::default() };
    let found = ledger.page(&filter, asked.after.as_ref(), A_PAGE).await?;
    let brakes = ledger.brakes().await?;
    Ok(MessagesPage::new(visit, admin.login(), asked, found, brakes))
}

/// `POST /admin/brakes/lift`, with a reason and a confirmed password.
pub async fn lift(visit: Visit, admin: Admin, pairs: Form<FormPairs>, services: Shared) -> WebResult {
    let (prefix, program) = (carried::value(&pairs, "prefix"), carried::value(&pairs, "program"));
    let reason: String = carried::value(&pairs, "reason").trim().chars().take(LONGEST_REASON).collect();
    let again = async |problem| -> WebResult {
        let page = page(&visit, &services, &admin, Asked::default()).await?;
        Ok(page.not_lifted([prefix, program], problem).respond(&visit))
    };
    if !visit.admits_form(carried::value(&pairs, "csrf_token")) {
        admin.was_foreign(&services, visit.pattern());
        return again(LiftProblem::Expired).await;
    }
    if reason.is_empty() {
        return again(LiftProblem::ReasonMissing).await;
    }
    let confirmed = carried::require(&visit, &services, &admin, LIFT, &pairs).await?;
    let lifted = lift_brake(&services, &admin, prefix, Some(program), &reason).await;
    let done = |lifted: bool| visit.see_other(HERE, lifted.then_some(Flash::BrakeLifted));
    confirmed.finish(&visit, services.session_lasts, lifted.map(done).map_err(WebError::from))
}
