//! `/admin/messages`: the ledger and the brakes, for administrators.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Form, Query};
use serde::Deserialize;

use crate::db::DbError;
use crate::login::Authenticated;
use crate::sms::{Cursor, Filter, State};
use crate::web::api::admin::record_lift;
use crate::web::flash::Flash;
use crate::web::handlers::broken;
use crate::web::handlers::session::{Member, member};
use crate::web::pages::error::{ErrorKind, ErrorPage};
use crate::web::pages::messages::{Asked, MessagesPage};
use crate::web::services::{Services, Shared};
use crate::web::visit::Visit;

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
    let who = match admin(&visit, &services).await {
        Ok(who) => who,
        Err(response) => return response,
    };
    let asked = Asked {
        state: State::parse(&wanted.state),
        prefix: wanted.prefix.trim().chars().take(32).collect(),
        after: Cursor::parse(&wanted.after),
    };
    match page(&visit, &services, &who, asked).await {
        Ok(page) => visit.page(StatusCode::OK, &page),
        Err(error) => broken(&visit, &error),
    }
}

async fn page(
    visit: &Visit,
    services: &Services,
    who: &Authenticated,
    asked: Asked,
) -> Result<MessagesPage, DbError> {
    let ledger = services.codes.ledger();
    let prefix = Some(asked.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let filter = Filter { state: asked.state, prefix, ..Filter::default() };
    let found = ledger.page(&filter, asked.after.as_ref(), A_PAGE).await?;
    let brakes = ledger.brakes().await?;
    Ok(MessagesPage::new(visit, who.account.login.as_str(), asked, found, brakes))
}

/// `POST /admin/brakes/lift`
pub async fn lift(visit: Visit, form: Form<LiftForm>, services: Shared) -> HttpResponse {
    let who = match admin(&visit, &services).await {
        Ok(who) => who,
        Err(response) => return response,
    };
    if !visit.admits_form(&form.csrf_token) {
        return ErrorPage::new(visit.layout(HERE, None), ErrorKind::ForeignForm).respond(&visit);
    }
    match services.codes.ledger().lift(&form.prefix, &who.account.id.to_string()).await {
        Ok(lifted) => {
            if lifted {
                record_lift(&services, &who, visit.client, &form.prefix);
            }
            visit.see_other(HERE, lifted.then_some(Flash::BrakeLifted))
        }
        Err(error) => broken(&visit, &error),
    }
}

/// An administrator, or the answer for anybody else.
async fn admin(visit: &Visit, services: &Services) -> Result<Authenticated, HttpResponse> {
    match member(visit, services, HERE).await {
        Member::Is(who) if who.account.roles.admin => Ok(*who),
        Member::Is(who) => {
            let layout = visit.layout("/account", Some(who.account.login.as_str()));
            Err(ErrorPage::new(layout, ErrorKind::Forbidden).respond(visit))
        }
        Member::Not(response) => Err(response),
    }
}
