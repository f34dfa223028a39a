//! `/api/v1/admin/events`: what was tried and how it ended, for administrators.

use std::net::IpAddr;
use std::str::FromStr;

use actix_web::HttpResponse;
use actix_web::web::Query;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::VariantArray;
use utoipa::openapi::schema::ArrayBuilder;
use utoipa::{IntoParams, ToSchema};

use crate::accounts::{Realm, Username};
use crate::audit::{
    Action, EventCursor, EventEntry, EventFilter, EventSubject, KEY, Outcome, SubjectKind, words_of,
};
use crate::clock::Micros;
use crate::sms::Phone;
use crate::web::console::guard::Permitted;
use crate::web::console::subject_link::parse_hash;
use crate::web::console::{read_cursor, read_filter, read_page_size};
use crate::web::http::{ClientAddress, Problem, Services, ServicesData, TrustedProxies};

/// A filter that is not known would be one that is not applied.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// One, or several separated by commas.
    #[param(schema_with = action_list, style = Form, explode = false)]
    action: Option<String>,
    /// One, or several separated by commas.
    #[param(schema_with = outcome_list, style = Form, explode = false)]
    outcome: Option<String>,
    /// Attempts at the login of one other program, by its name in the scope of the token.
    #[param(min_length = 1, max_length = 64)]
    realm: Option<String>,
    /// The limit that refused it, or would have.
    limited_by: Option<String>,
    /// A user name, or the key of an event's account.
    account: Option<String>,
    /// An IP address, or the key of an event's address.
    address: Option<String>,
    /// A mobile number, or the key of an event's number.
    phone: Option<String>,
    /// The `x-request-id` of the request.
    request: Option<String>,
    /// Events that began then or later.
    #[param(format = DateTime)]
    since: Option<String>,
    /// Events that began before.
    #[param(format = DateTime)]
    until: Option<String>,
    /// Only what a limit in monitor mode would have refused, or only the rest.
    #[param(value_type = Option<bool>)]
    noted: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200, default = 50)]
    limit: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "events": [{
    "at": "2026-11-21T10:00:00Z", "until": "2026-11-21T10:00:09Z", "count": 812, "action": "sign-in",
    "outcome": "throttled", "limit": "login-account", "rule": 1, "noted": false, "solved": false,
    "account": { "key": "key:0f1e2d3c4b5a6978", "mask": "al…" },
    "address": { "key": "key:8c7b6a5948372615", "mask": "203.0.113.0/24" }
}] }))]
struct SecurityEvents {
    events: Vec<EventEntry>,
    /// For `after`; left out on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

fn action_list() -> ArrayBuilder {
    ArrayBuilder::new().items(words_of::<Action>())
}

fn outcome_list() -> ArrayBuilder {
    ArrayBuilder::new().items(words_of::<Outcome>())
}

/// What was tried and how it ended, newest first
///
/// Refusals that came after one hit are counted in one event.
#[utoipa::path(
    get,
    path = "/api/v1/admin/events",
    operation_id = "listEvents",
    tag = "admin",
    params(EventParams),
    responses((status = 200, description = "A page of them.", body = SecurityEvents)),
    extensions(("x-problems" = json!(["invalid-input"])))
)]
pub async fn list(
    _: Permitted,
    wanted: Query<EventParams>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let filter = filter(&services, &wanted).await?;
    let after = read_cursor(wanted.after.as_deref(), "after", EventCursor::parse)?;
    let limit = read_page_size(wanted.limit.as_deref())?;
    services.audit.flush().await;
    let page = services.audit.log().page(&filter, after, limit).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    Ok(HttpResponse::Ok().json(SecurityEvents { events: page.entries, next }))
}

async fn filter(services: &Services, wanted: &EventParams) -> Result<EventFilter, Problem> {
    const WHEN: &str = "Use a time such as 2026-03-01T12:00:00Z.";
    let time = |text: &str| text.parse::<Timestamp>().ok().map(|time| Micros(time.as_microsecond()));
    let truth = |text: &str| text.parse().ok();
    let address = read_filter(
        wanted.address.as_deref(),
        "address",
        "Use an IP address, or the key of an event's address.",
        |text| key(text).or_else(|| address(services, text)),
    )?;
    let phone = read_filter(
        wanted.phone.as_deref(),
        "phone",
        "Use a mobile number, or the key of an event's number.",
        |text| key(text).or_else(|| phone(services, text)),
    )?;
    let account = account(services, wanted.account.as_deref()).await?;
    let subjects =
        [(SubjectKind::Account, account), (SubjectKind::Address, address), (SubjectKind::Phone, phone)];
    Ok(EventFilter {
        actions: read_all(wanted.action.as_deref(), "action")?,
        outcomes: read_all(wanted.outcome.as_deref(), "outcome")?,
        realm: read_filter(wanted.realm.as_deref(), "realm", "Use 1 to 64 of a-z, 0-9 and -.", |text| {
            Realm::parse(text).map(|realm| realm.as_str().to_owned())
        })?,
        limit: wanted.limited_by.clone().filter(|name| !name.is_empty()),
        subjects: subjects.into_iter().filter_map(|(kind, key)| Some((kind, key?))).collect(),
        request: wanted.request.clone().filter(|id| !id.is_empty()),
        since: read_filter(wanted.since.as_deref(), "since", WHEN, time)?,
        until: read_filter(wanted.until.as_deref(), "until", WHEN, time)?,
        noted: read_filter(wanted.noted.as_deref(), "noted", "Use true or false.", truth)?,
        ..EventFilter::default()
    })
}

/// An account is known by its id, and a name that none has by itself.
async fn account(services: &Services, text: Option<&str>) -> Result<Option<i64>, Problem> {
    const HELP: &str = "Use a username, or the key of an event's account.";
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.starts_with(KEY) {
        return key(text).map(Some).ok_or_else(|| Problem::wrong("account", HELP));
    }
    let login = Username::parse(text).map_err(|_| Problem::wrong("account", HELP))?;
    let found = services.accounts.find(&login).await?;
    let subject = found.as_ref().map_or(EventSubject::Login(login.as_str()), |account| account.recorded());
    Ok(Some(services.audit.subject(&subject)))
}

fn address(services: &Services, text: &str) -> Option<i64> {
    let ip: IpAddr = text.trim().parse().ok()?;
    let client = ClientAddress::at(ip, &TrustedProxies::default());
    Some(services.audit.subject(&EventSubject::Address(client.subject().as_ref())))
}

fn phone(services: &Services, text: &str) -> Option<i64> {
    let phone = Phone::parse(text, &services.live.snapshot().sms.default_region).ok()?;
    Some(services.audit.subject(&EventSubject::Phone(phone.as_str())))
}

fn key(text: &str) -> Option<i64> {
    parse_hash(text.strip_prefix(KEY)?)
}

/// The words between commas, each of which must be one.
fn read_all<T>(text: Option<&str>, field: &'static str) -> Result<Vec<T>, Problem>
where
    T: VariantArray + FromStr + Copy + Into<&'static str>,
{
    let help = || {
        let known: Vec<&str> = T::VARIANTS.iter().map(|word| (*word).into()).collect();
        let (last, others) = known.split_last().expect("there are words");
        format!("Use {} or {last}.", others.join(", "))
    };
    let words = text.filter(|text| !text.is_empty()).into_iter().flat_map(|text| text.split(','));
    words.map(|word| word.trim().parse().map_err(|_| Problem::wrong(field, help()))).collect()
}
