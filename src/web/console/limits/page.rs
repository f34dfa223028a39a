//! `/admin/limits`: the limits in force, their decisions in the last hour, and the latest changes.

use actix_web::http::StatusCode;

use crate::audit::MINUTE;
use crate::config::Limits;
use crate::db::DbError;
use crate::web::console::figures::{HOUR, LimitUse};
use crate::web::console::guard::Admin;
use crate::web::console::limits::history_page::changes;
use crate::web::console::limits::view::{LimitCard, LimitsPage};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;
use crate::web::kit::web_error::WebResult;

/// How many of the latest changes are shown below the limits.
const LATEST: u32 = 3;

/// `GET /admin/limits`
pub async fn show(visit: Visit, admin: Admin, services: Shared) -> WebResult {
    Ok(visit.page(StatusCode::OK, &page(&visit, &services, &admin).await?))
}

async fn page(visit: &Visit, services: &Services, admin: &Admin) -> Result<LimitsPage, DbError> {
    let (now, current) = (visit.now(), services.tuning.current());
    let hour = services.audit.log().totals(now.minus(HOUR), now.plus(MINUTE)).await?;
    let default = Limits::default();
    let cards = current.live.limits.iter().map(|limit| {
        let name = limit.name();
        let is_default = default.get(name) == Some(limit);
        LimitCard::new(limit.clone(), is_default, current.is_overridden(name), LimitUse::of(name, &hour))
    });
    let page = LimitsPage::new(
        visit,
        admin.login(),
        current.version.clone(),
        current.backend.as_str().to_owned(),
        cards.collect(),
    );
    let (latest, _) = changes(services, &current, None, LATEST).await?;
    Ok(page.changes(latest))
}
