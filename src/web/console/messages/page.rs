//! `/admin/messages`: the ledger and the brakes, for administrators.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Query};
use serde::Deserialize;
use serde_json::json;

use crate::db::DbError;
use crate::sms::{LedgerCursor, LedgerFilter, MessageState};
use crate::web::console::guard::{self, Admin};
use crate::web::console::messages::view::{Asked, MessagesPage};
use crate::web::kit::error_page::broken;
use crate::web::kit::flash::Flash;
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::Visit;

const HERE: &str = "/admin/messages";
const A_PAGE: u32 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
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

/// `GET /admin/messages`. What cannot be read of the filter is no filter.
pub async fn show(visit: Visit, wanted: Query<Wanted>, services: Shared) -> HttpResponse {
    let admin = match guard::page::read(&visit, &services).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    let asked = Asked {
        state: MessageState::parse(&wanted.state),
        prefix: wanted.prefix.trim().chars().take(32).collect(),
        after: LedgerCursor::parse(&wanted.after),
    };
    match page(&visit, &services, &admin, asked).await {
        Ok(page) => visit.page(StatusCode::OK, &page),
        Err(error) => broken(&visit, &error),
    }
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

/// `POST /admin/brakes/lift`
pub async fn lift(visit: Visit, form: Form<LiftForm>, services: Shared) -> HttpResponse {
    let admin = match guard::page::change(&visit, &services, HERE, &form.csrf_token).await {
        Ok(admin) => admin,
        Err(response) => return response,
    };
    match services.codes.ledger().lift(&form.prefix, &admin.id()).await {
        Ok(lifted) => {
            if lifted {
                admin.did(&services, "brake.lift", &json!({ "prefix": form.prefix }));
            }
            visit.see_other(HERE, lifted.then_some(Flash::BrakeLifted))
        }
        Err(error) => broken(&visit, &error),
    }
}
