//! `/api/v1/admin/subjects/{limit}/{subject}`: what a limit has of somebody, and letting them in again.

use actix_web::web::{Bytes, Data, Path, Query};
use actix_web::{Error, HttpRequest, HttpResponse};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::config::LiveSettings;
use crate::login::Account;
use crate::lookup::{LimitStatus, LookupActor, LookupKind, LookupSubject, RuleStatus};
use crate::throttle::{LimitMode, Rule};
use crate::web::console::guard::Admin;
use crate::web::console::guard::ConfirmedAdmin;
use crate::web::console::lookup::subject::read_as;
use crate::web::kit::client::ClientAddress;
use crate::web::kit::problem::{InputError, Problem};
use crate::web::kit::services::Shared;
use crate::web::kit::visit::Edge;
use crate::web::machine::limits::span;

/// Characters of a reason.
const LONGEST_REASON: usize = 500;

#[derive(Serialize)]
struct Log {
    limit: String,
    /// The store's time.
    at: String,
    /// Attempts in flight.
    holds: u32,
    /// Newest first; also what no rule counts any more.
    hits: Vec<String>,
    /// Counted and reported, never enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    monitored: bool,
    /// Counted by every instance for itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    of_this_instance: bool,
    rules: Vec<RuleBody>,
    /// Of a name or a number: the account that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountBody>,
}

#[derive(Serialize)]
struct RuleBody {
    max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per: Option<&'static str>,
    then: &'static str,
    count: u32,
    /// Where it is full: when the next place frees.
    #[serde(skip_serializing_if = "Option::is_none")]
    frees_at: Option<String>,
}

#[derive(Serialize)]
struct AccountBody {
    id: String,
    login: String,
    /// Wrong passwords in a row from strangers.
    password_failures: i64,
    /// It had too many of them, and opens nothing to strangers since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    password_disabled_since: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Clearing {
    reason: String,
}

/// `GET /admin/subjects/{limit}/{subject}`
pub async fn show(_: Admin, path: Path<(String, String)>, services: Shared) -> Result<HttpResponse, Problem> {
    let live = services.live.snapshot();
    let (limit, subject) = parse(&path, &live)?;
    let standing = services.lookup.standing(&live, limit, &subject).await;
    let standing = standing?.ok_or(Problem::UnknownLimit)?;
    let account = services.lookup.account(&subject).await?;
    Ok(HttpResponse::Ok().json(told(standing, account)))
}

/// `DELETE /admin/subjects/{limit}/{subject}`. 204 also where the log is empty.
pub async fn clear(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    request: HttpRequest,
    path: Path<(String, String)>,
    query: Query<Clearing>,
    body: Result<Bytes, Error>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let live = services.live.snapshot();
    let (limit, subject) = parse(&path, &live)?;
    let reason = reason(&query, &body.map_err(|_| Problem::PayloadTooLarge)?)?;
    let (actor, address) = (admin.id(), ClientAddress::of(&request, &edge.trusted).subject());
    let by = LookupActor {
        actor: &actor,
        account: &admin.who.account,
        address: address.as_ref(),
        reason: &reason,
    };
    let cleared = services.lookup.clear(&live, limit, &subject, by).await;
    match cleared? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::UnknownLimit),
    }
}

/// `DELETE /admin/disabled-passwords/{login}`
pub async fn enable_password(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    request: HttpRequest,
    path: Path<String>,
    query: Query<Clearing>,
    body: Result<Bytes, Error>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let subject = read_as(LookupKind::Login, &path, &services.live.snapshot()).ok_or(Problem::NotFound)?;
    let reason = reason(&query, &body.map_err(|_| Problem::PayloadTooLarge)?)?;
    let (actor, address) = (admin.id(), ClientAddress::of(&request, &edge.trusted).subject());
    let by = LookupActor {
        actor: &actor,
        account: &admin.who.account,
        address: address.as_ref(),
        reason: &reason,
    };
    match services.lookup.enable_password(&subject, by).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::NotFound),
    }
}

/// The limit that there is, and a subject that it can count.
fn parse<'a>(path: &'a (String, String), live: &LiveSettings) -> Result<(&'a str, LookupSubject), Problem> {
    let (limit, text) = path;
    let kind =
        LookupKind::of(limit).filter(|_| live.limits.get(limit).is_some()).ok_or(Problem::UnknownLimit)?;
    let subject = read_as(kind, text, live).ok_or(Problem::UnknownSubject)?;
    Ok((limit, subject))
}

/// In the body or in the query.
fn reason(query: &Clearing, body: &[u8]) -> Result<String, Problem> {
    let sent: Clearing = match body {
        [] => Clearing { reason: query.reason.clone() },
        body => serde_json::from_slice(body).map_err(|_| Problem::MalformedJson)?,
    };
    let reason = sent.reason.trim();
    if reason.chars().count() <= LONGEST_REASON && !reason.chars().any(char::is_control) {
        return Ok(reason.to_owned());
    }
    let message = "Use at most 500 characters on one line.";
    Err(Problem::InvalidInput {
        errors: vec![InputError { field: "reason".into(), message: message.into() }],
    })
}

fn told(standing: LimitStatus, account: Option<Account>) -> Log {
    let LimitStatus { limit, of_this_instance, at, holds, hits, rules } = standing;
    Log {
        limit: limit.name().to_owned(),
        at: moment(at),
        holds,
        hits: hits.into_iter().map(moment).collect(),
        monitored: limit.mode() == LimitMode::Monitor,
        of_this_instance,
        rules: limit.rules().iter().zip(rules).map(rule_body).collect(),
        account: account.map(|account| AccountBody {
            id: account.id.to_string(),
            login: account.login.as_str().to_owned(),
            password_failures: account.password_failures,
            password_disabled_since: account.password_disabled_at.map(moment),
        }),
    }
}

fn rule_body((rule, standing): (&Rule, RuleStatus)) -> RuleBody {
    let (window_ms, per) = span(rule);
    RuleBody {
        max: rule.max,
        window_ms,
        per,
        then: rule.then.as_str(),
        count: standing.count,
        frees_at: standing.frees_at.map(moment),
    }
}

/// To the microsecond, as logs count.
fn moment(at: Micros) -> String {
    let at = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
