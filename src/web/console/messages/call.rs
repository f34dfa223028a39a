//! `/api/v1/admin`: the ledger of messages and the brakes, for administrators.

use actix_web::web::{Bytes, Path, Query};
use actix_web::{Error, HttpResponse};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::{IntoParams, ToSchema};

use crate::sms::{HeldBrake, LedgerCursor, LedgerEntry, LedgerFilter, MessageState, ReportState};
use crate::web::console::lookup::call::{CLEARING, Clearing, reason};
use crate::web::console::messages::lift_brake;
use crate::web::console::permitted::{ClearSubjects, Permitted, ReadEvents};
use crate::web::kit::describe::{self, ADMIN, CHANGE, SCOPED};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

/// Messages on a page where nothing else is asked for, and at most.
const USUAL: u32 = 50;
const MOST: u32 = 200;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MessageQuery {
    #[param(schema_with = states)]
    state: Option<String>,
    /// A number without its last four digits, or without its last six.
    prefix: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "messages": [{
    "id": "b19bb51d57b40116de95f7448daf9aef", "at": "2026-11-21T10:00:00Z", "phone": "+861380013****",
    "prefix": "+861380013", "purpose": "login", "gateway": "outbox", "state": "accepted"
}] }))]
struct SentMessages {
    messages: Vec<SentMessage>,
    /// For `after`; left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct SentMessage {
    id: String,
    #[schema(format = DateTime)]
    at: String,
    /// Without its last four digits.
    phone: String,
    prefix: String,
    /// `login`, `register`, `reset` or `verify`; of another program, `verify:` with its name and what it is for, or `relay:` with a name.
    purpose: String,
    gateway: String,
    #[schema(schema_with = states)]
    state: &'static str,
    /// The gateway's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    /// Why it was refused, or why its state is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// When its code was entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    entered_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = reports)]
    report: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report_detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    reported_at: Option<String>,
}

impl From<LedgerEntry> for SentMessage {
    fn from(entry: LedgerEntry) -> Self {
        let iso = |at| Moment(at).iso();
        Self {
            id: entry.id.to_string(),
            at: iso(entry.at),
            phone: entry.phone,
            prefix: entry.block,
            purpose: entry.purpose.stored().into_owned(),
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

fn states() -> ObjectBuilder {
    describe::one_of(MessageState::ALL.map(MessageState::as_str))
}

fn reports() -> ObjectBuilder {
    describe::one_of(["pending", "delivered", "failed"])
}

/// The ledger of messages, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/messages",
    operation_id = "listMessages",
    tag = "admin",
    params(MessageQuery),
    responses((status = 200, description = "A page of them.", body = SentMessages)),
    security(("session" = []), ("token" = ["events:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, "invalid-input"])))
)]
pub async fn messages(
    _: Permitted<ReadEvents>,
    wanted: Query<MessageQuery>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let state = match wanted.state.as_deref() {
        None | Some("") => None,
        Some(text) => Some(MessageState::parse(text).ok_or_else(|| {
            Problem::wrong("state", "Use pending, accepted, refused, unknown or withheld, or leave it out.")
        })?),
    };
    let after = match wanted.after.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            LedgerCursor::parse(text)
                .ok_or_else(|| Problem::wrong("after", "Use the value of next from the previous page."))?,
        ),
    };
    let limit = wanted.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::wrong("limit", "Use 1 to 200."));
    }
    let prefix = wanted.prefix.clone().filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state, prefix, ..LedgerFilter::default() };
    let page = services.codes.ledger().page(&filter, after.as_ref(), limit).await;
    let page = page?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(HttpResponse::Ok()
        .json(SentMessages { messages: page.entries.into_iter().map(SentMessage::from).collect(), next }))
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "brakes": [{
    "prefix": "+861380013", "began_at": "2026-11-21T10:00:00Z", "ends_at": "2026-11-21T11:00:00Z",
    "sent": 20, "entered": 0
}] }))]
struct Brakes {
    brakes: Vec<Brake>,
}

#[derive(Serialize, ToSchema)]
struct Brake {
    prefix: String,
    /// The program that it is for, `verify:NAME` or `relay:NAME`. Missing: this installation's own pages and calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[schema(format = DateTime)]
    began_at: String,
    #[schema(format = DateTime)]
    ends_at: String,
    /// Codes that were sent to the prefix.
    #[schema(minimum = 0)]
    sent: i64,
    /// How many of them were entered.
    #[schema(minimum = 0)]
    entered: i64,
}

#[derive(Deserialize, Default, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Lifting {
    /// The brake of that program, `verify:NAME` or `relay:NAME`; empty: of our own pages and calls. If it is left out,
    /// every brake on the prefix.
    program: Option<String>,
    /// For the record.
    #[param(max_length = 500)]
    reason: String,
}

impl From<HeldBrake> for Brake {
    fn from(held: HeldBrake) -> Self {
        let HeldBrake { prefix, program, began_at, ends_at, sent, entered } = held;
        Self {
            prefix,
            program,
            began_at: Moment(began_at).iso(),
            ends_at: Moment(ends_at).iso(),
            sent,
            entered,
        }
    }
}

/// The dialling prefixes under a brake
#[utoipa::path(
    get,
    path = "/api/v1/admin/brakes",
    operation_id = "listBrakes",
    tag = "admin",
    responses((status = 200, description = "All of them.", body = Brakes)),
    security(("session" = []), ("token" = ["events:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED])))
)]
pub async fn brakes(_: Permitted<ReadEvents>, services: Shared) -> Result<HttpResponse, Problem> {
    let held = services.codes.ledger().brakes().await?;
    Ok(HttpResponse::Ok().json(Brakes { brakes: held.into_iter().map(Brake::from).collect() }))
}

/// Send messages to a prefix again
///
/// 404 if there is no such brake on it. The reason may be sent in the query instead.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/brakes/{prefix}",
    operation_id = "liftBrake",
    tag = "admin",
    params(("prefix" = String, Path, description = "Percent-encoded.", example = "%2B861380013"), Lifting),
    request_body = Option<Clearing>,
    responses((status = 204, description = "Lifted.")),
    security(("session" = []), ("token" = ["subjects:clear"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, CHANGE, CLEARING, "not-found"])))
)]
pub async fn lift(
    Permitted { admin, .. }: Permitted<ClearSubjects>,
    prefix: Path<String>,
    query: Query<Lifting>,
    body: Result<Bytes, Error>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let reason = reason(&query.reason, &body.map_err(|_| Problem::PayloadTooLarge)?)?;
    match lift_brake(&services, &admin, &prefix, query.program.as_deref(), &reason).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound),
    }
}
