//! `/admin/messages`, `/api/v1/admin/messages` and `/api/v1/admin/brakes`: the messages sent, their delivery, and the
//! brakes in force.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Form, Path, Query};
use actix_web::{Error, HttpResponse};
use askama::Template;
use rust_i18n::t;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::form_urlencoded;
use utoipa::openapi::schema::ObjectBuilder;
use utoipa::{IntoParams, ToSchema};

use crate::db::DbError;
use crate::sms::{
    HeldBrake, LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage, MessagePurpose, MessageState, Purpose,
    ReportState,
};
use crate::web::console::confirm::{self, FormPairs, value};
use crate::web::console::guard::{Admin, ClearSubjects, Permitted, ReadEvents};
use crate::web::console::lookup::api::{CLEARING, Clearing, reason};
use crate::web::console::{Choice, limit_text, read_after, read_filter, read_page_size};
use crate::web::http::describe::{self, ADMIN, CHANGE, SCOPED};
use crate::web::http::{
    Flash, Layout, Locale, Moment, PageRequest, Problem, Services, ServicesData, WebResult,
};

const HERE: &str = "/admin/messages";
const LIFT: &str = "/admin/brakes/lift";
const A_PAGE: u32 = 50;

/// Lifts the brake of a program, that of our pages (empty) or all, and records that with its reason. False if there is
/// none.
async fn lift_brake(
    services: &Services,
    admin: &Admin,
    prefix: &str,
    program: Option<&str>,
    reason: &str,
) -> Result<bool, DbError> {
    let lifted = services.codes.ledger().lift(prefix, program, &admin.id()).await?;
    if lifted {
        admin.did(services, "brake.lift", &json!({ "prefix": prefix, "program": program, "reason": reason }));
    }
    Ok(lifted)
}

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
pub async fn api_list(
    _: Permitted<ReadEvents>,
    wanted: Query<MessageQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    const STATES: &str = "Use pending, accepted, refused, unknown or withheld, or leave it out.";
    let state = read_filter(wanted.state.as_deref(), "state", STATES, MessageState::parse)?;
    let after = read_after(wanted.after.as_deref(), LedgerCursor::parse)?;
    let limit = read_page_size(wanted.limit)?;
    let prefix = wanted.prefix.clone().filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state, prefix, ..LedgerFilter::default() };
    let page = services.codes.ledger().page(&filter, after.as_ref(), limit).await?;
    let iso = |at| Moment(at).iso();
    let body = |entry: LedgerEntry| SentMessage {
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
    };
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(HttpResponse::Ok().json(SentMessages { messages: page.entries.into_iter().map(body).collect(), next }))
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
pub async fn api_brakes(_: Permitted<ReadEvents>, services: ServicesData) -> Result<HttpResponse, Problem> {
    let body = |HeldBrake { prefix, program, began_at, ends_at, sent, entered }| Brake {
        prefix,
        program,
        began_at: Moment(began_at).iso(),
        ends_at: Moment(ends_at).iso(),
        sent,
        entered,
    };
    let held = services.codes.ledger().brakes().await?;
    Ok(HttpResponse::Ok().json(Brakes { brakes: held.into_iter().map(body).collect() }))
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
pub async fn api_lift(
    Permitted { admin, .. }: Permitted<ClearSubjects>,
    prefix: Path<String>,
    query: Query<Lifting>,
    body: Result<Bytes, Error>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let reason = reason(&query.reason, body)?;
    match lift_brake(&services, &admin, &prefix, query.program.as_deref(), &reason).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MessagesPageQuery {
    state: String,
    prefix: String,
    after: String,
}

/// `GET /admin/messages`. Values that cannot be parsed do not filter.
pub async fn show(
    visit: PageRequest,
    admin: Admin,
    wanted: Query<MessagesPageQuery>,
    services: ServicesData,
) -> WebResult {
    let asked = MessagesAsked {
        state: MessageState::parse(&wanted.state),
        prefix: wanted.prefix.trim().chars().take(32).collect(),
        after: LedgerCursor::parse(&wanted.after),
    };
    respond(&visit, &services, &admin, asked, None).await
}

/// `POST /admin/brakes/lift`, with a reason and a confirmed password.
pub async fn lift(
    visit: PageRequest,
    admin: Admin,
    pairs: Form<FormPairs>,
    services: ServicesData,
) -> WebResult {
    let (prefix, program) = (value(&pairs, "prefix"), value(&pairs, "program"));
    let reason = confirm::reason(&pairs);
    let again = async |problem| {
        let kept = Some(([prefix, program].map(str::to_owned), problem));
        respond(&visit, &services, &admin, MessagesAsked::default(), kept).await
    };
    if !admin.sends_own_form(&visit, &services, &pairs) {
        return again(LiftProblem::Expired).await;
    }
    if reason.is_empty() {
        return again(LiftProblem::ReasonMissing).await;
    }
    let act = async {
        let lifted = lift_brake(&services, &admin, prefix, Some(program), &reason).await?;
        Ok(visit.see_other(HERE, lifted.then_some(Flash::BrakeLifted)))
    };
    confirm::confirmed(&visit, &services, &admin, LIFT, &pairs, act).await
}

async fn respond(
    visit: &PageRequest,
    services: &Services,
    admin: &Admin,
    asked: MessagesAsked,
    kept: Option<KeptBrake>,
) -> WebResult {
    let status = match kept {
        None => StatusCode::OK,
        Some((_, LiftProblem::ReasonMissing)) => StatusCode::UNPROCESSABLE_ENTITY,
        Some((_, LiftProblem::Expired)) => StatusCode::FORBIDDEN,
    };
    let ledger = services.codes.ledger();
    let prefix = Some(asked.prefix.clone()).filter(|prefix| !prefix.is_empty());
    let filter = LedgerFilter { state: asked.state, prefix, ..LedgerFilter::default() };
    let found = ledger.page(&filter, asked.after.as_ref(), A_PAGE).await?;
    let brakes = ledger.brakes().await?;
    Ok(visit.page(status, &MessagesPage::new(visit, admin.login(), asked, found, brakes, kept)))
}

/// The filter, and where the page begins.
#[derive(Debug, Clone, Default)]
pub struct MessagesAsked {
    pub state: Option<MessageState>,
    pub prefix: String,
    pub after: Option<LedgerCursor>,
}

impl MessagesAsked {
    fn href(&self, after: Option<&LedgerCursor>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.state.map(|state| ("state", state.as_str())));
        query.extend_pairs((!self.prefix.is_empty()).then_some(("prefix", &self.prefix)));
        query.extend_pairs(after.map(|after| ("after", after.to_string())));
        let query = query.finish();
        if query.is_empty() { HERE.to_owned() } else { format!("{HERE}?{query}") }
    }
}

/// Why a brake was not lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiftProblem {
    ReasonMissing,
    /// The form was too old, or not ours.
    Expired,
}

/// The prefix and program of the brake that was not lifted, and why.
pub type KeptBrake = ([String; 2], LiftProblem);

#[derive(Template)]
#[template(path = "pages/messages.html")]
pub struct MessagesPage {
    layout: Layout,
    asked: MessagesAsked,
    rows: Vec<LedgerEntry>,
    brakes: Vec<HeldBrake>,
    older: Option<String>,
    kept: Option<KeptBrake>,
}

impl MessagesPage {
    pub fn new(
        visit: &PageRequest,
        user: &str,
        asked: MessagesAsked,
        found: LedgerPage,
        brakes: Vec<HeldBrake>,
        kept: Option<KeptBrake>,
    ) -> Self {
        let mut layout = visit.layout(asked.href(asked.after.as_ref()), Some(user));
        layout.mistaken = matches!(kept, Some((_, LiftProblem::ReasonMissing)));
        let older = found.next.map(|next| asked.href(Some(&next)));
        Self { layout, rows: found.entries, brakes, older, asked, kept }
    }

    fn is_expired(&self) -> bool {
        matches!(self.kept, Some((_, LiftProblem::Expired)))
    }

    fn lacks_reason(&self, brake: &HeldBrake) -> bool {
        self.kept.as_ref().is_some_and(|([prefix, program], problem)| {
            *problem == LiftProblem::ReasonMissing
                && (prefix, program.as_str()) == (&brake.prefix, self.program(brake))
        })
    }

    /// Empty: for our pages.
    fn program<'a>(&self, brake: &'a HeldBrake) -> &'a str {
        brake.program.as_deref().unwrap_or_default()
    }

    fn states(&self) -> Vec<Choice> {
        let chosen = |state| self.asked.state == Some(state);
        let choice = |it: MessageState| Choice::new(it.as_str(), self.state_key(&it), chosen(it));
        MessageState::ALL.into_iter().map(choice).collect()
    }

    /// The path of the first page with the same filter.
    fn newest(&self) -> String {
        self.asked.href(None)
    }

    fn counted(&self, brake: &HeldBrake) -> Cow<'static, str> {
        let locale: Locale = self.layout.locale;
        t!("messages.counted", locale = locale.code(), entered = brake.entered, sent = brake.sent)
    }

    fn purpose<'a>(&self, row: &'a LedgerEntry) -> Cow<'a, str> {
        match &row.purpose {
            MessagePurpose::Own(Purpose::Login) => self.layout.t("messages.purpose-login"),
            MessagePurpose::Own(Purpose::Register) => self.layout.t("messages.purpose-register"),
            MessagePurpose::Own(Purpose::Reset) => self.layout.t("messages.purpose-reset"),
            MessagePurpose::Own(Purpose::Verify) => self.layout.t("messages.purpose-verify"),
            purpose @ (MessagePurpose::Verification(_) | MessagePurpose::Relayed(_)) => purpose.stored(),
        }
    }

    fn gateway(&self, row: &LedgerEntry) -> Cow<'static, str> {
        limit_text::gateway(&row.gateway, self.layout.locale)
    }

    /// The colour of the state's mark.
    fn tone(&self, row: &LedgerEntry) -> &'static str {
        match (row.state, row.report) {
            (MessageState::Refused | MessageState::Unknown | MessageState::Withheld, _)
            | (_, Some(ReportState::Failed)) => "warn",
            (MessageState::Pending | MessageState::Accepted, _) => "good",
        }
    }

    fn report_key(&self, row: &LedgerEntry) -> Option<&'static str> {
        row.report.map(|report| match report {
            ReportState::Pending => "messages.reported-pending",
            ReportState::Delivered => "messages.reported-delivered",
            ReportState::Failed => "messages.reported-failed",
        })
    }

    const fn state_key(&self, state: &MessageState) -> &'static str {
        match state {
            MessageState::Pending => "messages.state-pending",
            MessageState::Accepted => "messages.state-accepted",
            MessageState::Refused => "messages.state-refused",
            MessageState::Unknown => "messages.state-unknown",
            MessageState::Withheld => "messages.state-withheld",
        }
    }
}
