//! `/api/v1/admin`: the ledger of messages and the brakes, for administrators.

use actix_web::HttpResponse;
use actix_web::web::{Data, Path, Query};
use serde::{Deserialize, Serialize};

use crate::sms::{HeldBrake, LedgerCursor, LedgerEntry, LedgerFilter, MessageState, ReportState};
use crate::web::console::guard::Admin;
use crate::web::console::guard::ConfirmedAdmin;
use crate::web::console::messages::lift_brake;
use crate::web::kit::problem::{InputError, Problem};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;
use crate::web::kit::wait::Moment;

/// Messages on a page where nothing else is asked for, and at most.
const USUAL: u32 = 50;
const MOST: u32 = 200;

#[derive(Deserialize)]
pub struct Wanted {
    state: Option<String>,
    prefix: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct Messages {
    messages: Vec<Message>,
    /// For `after` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct Message {
    id: String,
    at: String,
    /// Without its last four digits.
    phone: String,
    prefix: String,
    purpose: &'static str,
    gateway: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    entered_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_at: Option<String>,
}

impl From<LedgerEntry> for Message {
    fn from(entry: LedgerEntry) -> Self {
        let iso = |at| Moment(at).iso();
        Self {
            id: entry.id.to_string(),
            at: iso(entry.at),
            phone: entry.phone,
            prefix: entry.block,
            purpose: entry.purpose.as_str(),
            gateway: entry.gateway,
            state: entry.state.as_str(),
            reference: entry.reference,
            reason: entry.reason,
            entered_at: entry.entered_at.map(iso),
            report: entry.report.map(|report| match report {
                ReportState::Pending => "pending",
                ReportState::Delivered => "delivered",
                ReportState::Failed => "failed",
            }),
            report_detail: entry.report_detail,
            reported_at: entry.reported_at.map(iso),
        }
    }
}

/// `GET /admin/messages`, newest first.
pub async fn messages(
    _: Admin,
    wanted: Query<Wanted>,
    services: Shared,
    _edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let wrong = |field: &'static str, message: &'static str| Problem::InvalidInput {
        errors: vec![InputError { field: field.into(), message: message.into() }],
    };
    let state = match wanted.state.as_deref() {
        None | Some("") => None,
        Some(text) => Some(MessageState::parse(text).ok_or_else(|| {
            wrong("state", "Use pending, accepted, refused, unknown or withheld, or leave it out.")
        })?),
    };
    let after = match wanted.after.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            LedgerCursor::parse(text)
                .ok_or_else(|| wrong("after", "Use the value of next from the previous page."))?,
        ),
    };
    let limit = wanted.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(wrong("limit", "Use 1 to 200."));
    }
    let prefix = wanted.prefix.clone().filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state, prefix, ..LedgerFilter::default() };
    let page = services.codes.ledger().page(&filter, after.as_ref(), limit).await;
    let page = page?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(HttpResponse::Ok()
        .json(Messages { messages: page.entries.into_iter().map(Message::from).collect(), next }))
}

#[derive(Serialize)]
struct Brakes {
    brakes: Vec<Brake>,
}

#[derive(Serialize)]
struct Brake {
    prefix: String,
    began_at: String,
    ends_at: String,
    sent: i64,
    entered: i64,
}

impl From<HeldBrake> for Brake {
    fn from(held: HeldBrake) -> Self {
        let HeldBrake { prefix, began_at, ends_at, sent, entered } = held;
        Self { prefix, began_at: Moment(began_at).iso(), ends_at: Moment(ends_at).iso(), sent, entered }
    }
}

/// `GET /admin/brakes`
pub async fn brakes(_: Admin, services: Shared, _edge: Data<Edge>) -> Result<HttpResponse, Problem> {
    let held = services.codes.ledger().brakes().await?;
    Ok(HttpResponse::Ok().json(Brakes { brakes: held.into_iter().map(Brake::from).collect() }))
}

/// `DELETE /admin/brakes/{prefix}`
pub async fn lift(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    prefix: Path<String>,
    services: Shared,
    _edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    match lift_brake(&services, &admin, &prefix).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound),
    }
}
