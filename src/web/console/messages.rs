//! `/admin/messages`, `/api/v1/admin/messages` and `/api/v1/admin/brakes`: the messages sent, their delivery, and the
//! brakes in force.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Path, Query};
use actix_web::{Error, HttpResponse};
use askama::Template;
use gatehouse_limiter::{Limit, Rule, RuleAction, RuleSpan};
use ipnet::IpNet;
use rust_i18n::t;
use serde::{Deserialize, Serialize};
use serde_json::json;
use strum::VariantArray;
use utoipa::{IntoParams, ToSchema};

use crate::audit::{Audit, EventSubject, MaskedSubject, SubjectKind, words_of};
use crate::codes::{
    Channel, CountryFigures, LedgerCursor, LedgerEntry, LedgerFilter, MessageState, Recipient, as_text,
};
use crate::config::{LiveSettings, Money};
use crate::db::DbError;
use crate::mail::Mailbox;
use crate::message::{MessagePurpose, hex};
use crate::sms::{HeldBrake, ReportState};
use crate::web::console::confirm;
use crate::web::console::figures::HOUR;
use crate::web::console::guard::{Admin, AdminForm, AdminRequest, Permitted};
use crate::web::console::lookup::api::{CLEARING, Clearing, reason};
use crate::web::console::subject_link::SubjectLink;
use crate::web::console::{FormProblem, limit_text, list_href, read_cursor, read_filter, read_page_size};
use crate::web::form::{FormPairs, value};
use crate::web::http::{
    ClientAddress, Flash, Layout, Problem, Services, ServicesData, TrustedProxies, WebResult, no_content_if,
};

const HERE: &str = "/admin/messages";
const A_PAGE: u32 = 50;
/// The part of a masked address between its first letter and its domain.
const MASKED: &str = "***@";
/// The filter keeps so many letters of what is typed: no e-mail address is longer.
const LONGEST_TYPED: usize = 254;

/// Lifts the brake of a program, that of our pages (empty) or all, and records that with its reason. False if there is
/// none.
async fn lift_brake(
    admin: &Admin,
    prefix: &str,
    program: Option<&str>,
    reason: &str,
) -> Result<bool, DbError> {
    let lifted = admin.services.codes.ledger().lift(prefix, program, &admin.id()).await?;
    if lifted {
        admin.did("brake.lift", &json!({ "prefix": prefix, "program": program, "reason": reason }));
    }
    Ok(lifted)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct MessageQuery {
    #[param(schema_with = words_of::<MessageState>)]
    state: Option<String>,
    #[param(schema_with = words_of::<Channel>)]
    channel: Option<String>,
    /// A number without its last four digits, or without its last six; or an e-mail address in any spelling.
    prefix: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "messages": [{
    "id": "b19bb51d57b40116de95f7448daf9aef", "at": "2026-11-21T10:00:00Z", "channel": "sms", "phone": "+861380013****",
    "prefix": "+861380013", "purpose": "login", "gateway": "outbox", "state": "accepted"
}] }))]
struct SentMessages {
    messages: Vec<LedgerEntry>,
    /// For `after`; left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The ledger of messages, newest first
#[utoipa::path(
    get,
    path = "/api/v1/admin/messages",
    operation_id = "listMessages",
    tag = "admin",
    params(MessageQuery),
    responses((status = 200, description = "A page of them.", body = SentMessages)),
    extensions(("x-problems" = json!(["invalid-input"])))
)]
pub async fn api_list(
    _: Permitted,
    wanted: Query<MessageQuery>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    const STATES: &str = "Use pending, accepted, refused, unknown or withheld, or leave it out.";
    let state = read_filter(wanted.state.as_deref(), "state", STATES, |text| text.parse().ok())?;
    let after = read_cursor(wanted.after.as_deref(), "after", LedgerCursor::parse)?;
    let limit = read_page_size(wanted.limit.as_deref())?;
    let channel = |text: &str| text.parse().ok();
    let channel =
        read_filter(wanted.channel.as_deref(), "channel", "Use sms or mail, or leave it out.", channel)?;
    let to = filter_to(&services, wanted.prefix.as_deref().unwrap_or_default());
    let filter = LedgerFilter { state, channel, ..to };
    let page = services.codes.ledger().page(&filter, after.as_ref(), limit).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(HttpResponse::Ok().json(SentMessages { messages: page.entries, next }))
}

/// Messages of the last 24 hours by country, the dearest first.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "countries": [{
    "country": "CN", "sent": 1200, "entered": 1056, "unreturned": 0, "asks_from": 500, "asks": false, "cost": "6.00"
}], "spent": "6.00", "budget": "200.00", "currency": "EUR" }))]
pub struct MessageCountries {
    pub countries: Vec<CountryFigures>,
    /// What they cost, by the prices in the configuration.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String)]
    pub spent: Money,
    /// What 24 hours may cost; left out if there is no budget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
}

impl MessageCountries {
    async fn read(services: &Services, live: &LiveSettings) -> Result<Self, DbError> {
        let countries = services.codes.countries(live).await?;
        let spent = Money(countries.iter().map(|country| country.cost.0).sum());
        let budget = live.sms.budget.as_ref();
        let (budget, currency) =
            (budget.map(|it| it.amount.to_string()), budget.map(|it| it.currency.clone()));
        Ok(Self { countries, spent, budget, currency })
    }
}

/// What messages to each country came to
#[utoipa::path(
    get,
    path = "/api/v1/admin/messages/countries",
    operation_id = "listMessageCountries",
    tag = "admin",
    responses((status = 200, description = "All that were sent to within 24 hours.", body = MessageCountries)),
)]
pub async fn api_countries(_: Permitted, services: ServicesData) -> Result<HttpResponse, Problem> {
    let countries = MessageCountries::read(&services, &services.live.snapshot()).await?;
    Ok(HttpResponse::Ok().json(countries))
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "brakes": [{
    "prefix": "+861380013", "began_at": "2026-11-21T10:00:00Z", "ends_at": "2026-11-21T11:00:00Z",
    "sent": 20, "entered": 0
}] }))]
struct Brakes {
    brakes: Vec<HeldBrake>,
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
)]
pub async fn api_brakes(_: Permitted, services: ServicesData) -> Result<HttpResponse, Problem> {
    let brakes = services.codes.ledger().brakes().await?;
    Ok(HttpResponse::Ok().json(Brakes { brakes }))
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
    extensions(("x-problems" = json!([CLEARING, "not-found"])))
)]
pub async fn api_lift(
    permitted: Permitted,
    prefix: Path<String>,
    query: Query<Lifting>,
    body: Result<Bytes, Error>,
) -> Result<HttpResponse, Problem> {
    let (admin, reason) = (permitted.judge_again().await?, reason(&query.reason, body)?);
    no_content_if(lift_brake(&admin, &prefix, query.program.as_deref(), &reason).await?, Problem::NotFound)
}

/// The messages to a prefix, or to an e-mail address in any of its spellings. A masked one is looked for as it is.
fn filter_to(services: &Services, typed: &str) -> LedgerFilter {
    let typed: String = typed.trim().chars().take(LONGEST_TYPED).collect();
    let mailbox = Mailbox::parse(&typed).ok().filter(|_| !typed.contains(MASKED));
    let key =
        |mailbox: Mailbox| services.codes.recipient_key(&services.live.snapshot(), &Recipient::from(mailbox));
    match mailbox.map(key) {
        Some(key) => LedgerFilter { phone: Some(key), ..LedgerFilter::default() },
        None => LedgerFilter { prefix: Some(typed).filter(|it| !it.is_empty()), ..LedgerFilter::default() },
    }
}

/// Values that cannot be parsed do not filter.
fn filter(services: &Services, pairs: &[(String, String)]) -> LedgerFilter {
    LedgerFilter {
        state: value(pairs, "state").parse().ok(),
        channel: value(pairs, "channel").parse().ok(),
        ..filter_to(services, value(pairs, "prefix"))
    }
}

/// `GET /admin/messages`. `?to=` is the key of an address.
pub async fn show(request: AdminRequest, query: Query<FormPairs>) -> WebResult {
    let asked = filter(&request.services, &query);
    let phone = LedgerFilter::parse_key(value(&query, "to")).or(asked.phone);
    let asked = LedgerFilter { phone, ..asked };
    respond(&request, asked, LedgerCursor::parse(value(&query, "after")), None).await
}

/// `POST /admin/messages`: the filter. An address is in the URL by its keyed hash alone.
pub async fn find(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let (asked, typed) = (filter(&request.services, pairs), value(pairs, "prefix").trim());
    // The mask that the page has shown stands for the address that was typed before.
    let before = LedgerFilter::parse_key(value(pairs, "to")).filter(|_| typed.contains(MASKED));
    let asked = match before {
        Some(key) => LedgerFilter { phone: Some(key), prefix: None, ..asked },
        None => asked,
    };
    let is_no_address = typed.contains(['@', '＠', '﹫']) && !typed.contains(MASKED) && asked.phone.is_none();
    if posted.is_ours() && is_no_address {
        let wrong = FormProblem::Refused(request.visit.locale.t("error.email-invalid").into_owned());
        let kept = Some(([typed.to_owned(), String::new()], wrong));
        return respond(request, LedgerFilter { prefix: None, ..asked }, None, kept).await;
    }
    if posted.is_ours() {
        return Ok(request.visit.see_other(&asked.href(None), None));
    }
    let kept = Some(([String::new(), String::new()], FormProblem::Expired));
    respond(request, asked, None, kept).await
}

/// `POST /admin/brakes/lift`, with a reason and a confirmed password.
pub async fn lift(posted: AdminForm) -> WebResult {
    let AdminForm { request, pairs, .. } = &posted;
    let (prefix, program) = (value(pairs, "prefix"), value(pairs, "program"));
    let reason = match posted.reason() {
        Ok(reason) => reason,
        Err(problem) => {
            let kept = Some(([prefix, program].map(str::to_owned), problem));
            return respond(request, LedgerFilter::default(), None, kept).await;
        }
    };
    let act = Box::pin(async {
        let lifted = lift_brake(&request.admin, prefix, Some(program), &reason).await?;
        Ok(request.visit.see_other_about(HERE, lifted.then_some(Flash::BrakeLifted), prefix))
    });
    confirm::confirmed(&posted, act).await
}

async fn respond(
    request: &AdminRequest,
    asked: LedgerFilter,
    after: Option<LedgerCursor>,
    kept: Option<KeptBrake>,
) -> WebResult {
    let status = kept.as_ref().map_or(StatusCode::OK, |(_, problem)| problem.status());
    let ledger = request.services.codes.ledger();
    let found = ledger.page(&asked, after.as_ref(), A_PAGE).await?;
    let live = request.visit.settings(&request.services);
    let mut hours = Vec::new();
    for (channel, limit) in
        [(Channel::Sms, &live.limits.sms_phone), (Channel::Mail, &live.limits.mail_mailbox)]
    {
        let Some((rule, window)) = number_hour(limit) else { continue };
        let numbers = found.entries.iter().filter(|entry| entry.channel == channel).map(|it| &it.number);
        let sent = ledger.count_sent(numbers, ledger.now().await?.minus(window)).await?;
        hours.push(NumberHour { channel, sent, max: rule.max, window });
    }
    let mut layout = request.layout(asked.href(after));
    layout.mistaken = matches!(kept, Some((_, FormProblem::ReasonMissing | FormProblem::Refused(_))));
    let page = MessagesPage {
        layout,
        rows: found
            .entries
            .into_iter()
            .map(|entry| MessageRow::new(entry, &request.services.audit))
            .collect(),
        hours,
        brakes: ledger.brakes().await?,
        countries: MessageCountries::read(&request.services, &live).await?,
        older: found.next.map(|next| asked.href(Some(next))),
        is_first: after.is_none(),
        asked,
        kept,
    };
    Ok(request.visit.page(status, &page))
}

/// Among the rules that refuse a number or a mailbox, the one whose window is nearest to an hour. Those that ask for a
/// challenge forgive what was solved, which the ledger does not know.
fn number_hour(limit: &Limit) -> Option<(&Rule, Duration)> {
    let windows = limit.rules().iter().filter_map(|rule| match (&rule.span, rule.then) {
        (RuleSpan::Sliding(window), RuleAction::Block) => Some((rule, *window)),
        _ => None,
    });
    windows.min_by_key(|(_, window)| window.abs_diff(HOUR))
}

/// What the numbers or the mailboxes of a page may have in about an hour, and what each has had now.
pub struct NumberHour {
    pub channel: Channel,
    pub sent: HashMap<String, i64>,
    pub max: u32,
    pub window: Duration,
}

pub struct MessageRow {
    pub entry: LedgerEntry,
    /// The network that asked for it, with what happened from there.
    pub asker: Option<SubjectLink>,
}

impl MessageRow {
    pub fn new(entry: LedgerEntry, audit: &Audit) -> Self {
        let asker = entry.asked_from.as_ref().and_then(|mask| {
            let network =
                ClientAddress::at(mask.parse::<IpNet>().ok()?.network(), &TrustedProxies::default())
                    .network();
            let key = audit.subject(&EventSubject::Network(network.as_ref()));
            Some(SubjectLink::new(SubjectKind::Network, &MaskedSubject { key, mask: mask.clone() }))
        });
        Self { entry, asker }
    }
}

impl LedgerFilter {
    /// The address of the page that shows it.
    fn href(&self, after: Option<LedgerCursor>) -> String {
        let state = self.state.map(|state| state.into_str().to_owned());
        let (channel, to) =
            (self.channel.map(|it| it.into_str().to_owned()), self.phone.map(|it| hex(&it.0)));
        let after = after.map(|after| after.to_string());
        let prefix = self.prefix.clone();
        let filter =
            [("state", state), ("channel", channel), ("prefix", prefix), ("to", to), ("after", after)];
        list_href(HERE, filter)
    }
}

/// The prefix and program of the brake that was not lifted, or what was typed into the filter, and why.
pub type KeptBrake = ([String; 2], FormProblem);

#[derive(Template)]
#[template(path = "pages/messages.html")]
pub struct MessagesPage {
    pub layout: Layout,
    pub asked: LedgerFilter,
    pub rows: Vec<MessageRow>,
    /// What a number or a mailbox has used, of each channel of whose limit a rule refuses.
    pub hours: Vec<NumberHour>,
    pub brakes: Vec<HeldBrake>,
    pub countries: MessageCountries,
    pub older: Option<String>,
    pub is_first: bool,
    pub kept: Option<KeptBrake>,
}

impl MessagesPage {
    fn is_expired(&self) -> bool {
        matches!(self.kept, Some((_, FormProblem::Expired)))
    }

    fn lacks_reason(&self, brake: &HeldBrake) -> bool {
        self.kept.as_ref().is_some_and(|([prefix, program], problem)| {
            *problem == FormProblem::ReasonMissing
                && (prefix, program.as_str()) == (&brake.prefix, self.program(brake))
        })
    }

    fn cost(&self) -> Option<Cow<'static, str>> {
        let MessageCountries { spent, budget, currency, .. } = &self.countries;
        let (spent, code) = (spent.to_string(), self.layout.locale.code());
        let (budget, currency) = (budget.as_ref()?, currency.as_ref()?);
        let key = "messages.countries-budget";
        Some(t!(key, locale = code, spent = spent, budget = budget, currency = currency))
    }

    fn program<'a>(&self, brake: &'a HeldBrake) -> &'a str {
        brake.program.as_deref().unwrap_or_default()
    }

    fn counted(&self, brake: &HeldBrake) -> Cow<'static, str> {
        let locale = self.layout.locale.code();
        t!("messages.counted", locale = locale, entered = brake.entered, sent = brake.sent)
    }

    fn purpose<'a>(&self, row: &'a LedgerEntry) -> Cow<'a, str> {
        match &row.purpose {
            MessagePurpose::Own(purpose) => {
                self.layout.locale.named_word("messages", &format!("purpose-{}", purpose.into_str()))
            }
            purpose @ (MessagePurpose::Verification(_) | MessagePurpose::Relayed(_)) => purpose.stored(),
        }
    }

    fn tone(&self, row: &LedgerEntry) -> &'static str {
        match (row.state, row.report) {
            (MessageState::Refused | MessageState::Unknown | MessageState::Withheld, _)
            | (_, Some(ReportState::Failed)) => "warn",
            (MessageState::Pending | MessageState::Accepted, _) => "good",
        }
    }

    /// `3 of 5`
    fn used(&self, row: &LedgerEntry) -> Option<Cow<'static, str>> {
        let hour = self.hours.iter().find(|hour| hour.channel == row.channel)?;
        let sent = hour.sent.get(&row.number).copied().unwrap_or_default();
        Some(t!("messages.used", locale = self.layout.locale.code(), sent = sent, max = hour.max))
    }

    /// The window that is counted, if it is the same for numbers and mailboxes.
    fn window(&self) -> Option<String> {
        let window = self.hours.first()?.window;
        let is_one = self.hours.iter().all(|hour| hour.window == window);
        is_one.then(|| limit_text::exactly(window, self.layout.locale))
    }

    /// What the field of the filter shows: of an address only its mask.
    fn typed(&self) -> &str {
        if let Some(([typed, _], FormProblem::Refused(_))) = &self.kept {
            return typed;
        }
        let mask = self.rows.first().map_or(MASKED, |row| row.entry.block.as_str());
        self.asked.prefix.as_deref().or(self.asked.phone.map(|_| mask)).unwrap_or_default()
    }

    /// The key of the address that is looked for.
    fn key(&self) -> Option<String> {
        self.asked.phone.map(|key| hex(&key.0))
    }

    /// What is wrong with what was typed into the filter.
    fn wrong(&self) -> Option<&str> {
        match &self.kept {
            Some((_, FormProblem::Refused(wrong))) => Some(wrong),
            _ => None,
        }
    }

    fn channel(&self, channel: &Channel) -> Cow<'static, str> {
        self.layout.locale.named_word("messages", &format!("channel-{}", channel.into_str()))
    }

    /// What the gateway reported last; before that, what it answered.
    fn outcome(&self, row: &LedgerEntry) -> Cow<'static, str> {
        let reported = |report: ReportState| {
            self.layout.locale.named_word("messages", &format!("reported-{}", report.into_str()))
        };
        row.report.map_or_else(|| self.state(&row.state), reported)
    }

    fn state(&self, state: &MessageState) -> Cow<'static, str> {
        self.layout.locale.named_word("messages", &format!("state-{}", state.into_str()))
    }
}
