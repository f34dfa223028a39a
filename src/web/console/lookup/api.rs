//! `/api/v1/admin/subjects/{limit}/{subject}`: what a limit has of somebody, and letting them in again.

use actix_web::web::{Bytes, Path, Query};
use actix_web::{Error, HttpResponse};
use gatehouse_limiter::{LimitMode, Rule};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::accounts::Account;
use crate::clock::{Micros, as_time_if};
use crate::config::LiveSettings;
use crate::lookup::{LimitStatus, LookupSubject, RuleStatus, ScopeKind, ValueKind, kind_of};
use crate::unseen::is_unseen;
use crate::web::console::LONGEST_REASON;
use crate::web::console::guard::Permitted;
use crate::web::console::lookup::actor;
use crate::web::console::lookup::subject::read_as;
use crate::web::http::describe;
use crate::web::http::{Problem, ServicesData, no_content_if};
use crate::web::programs::limits::span;

/// What a path names, in the description of the API.
const SUBJECT: &str = "A name, a name@device, a number, an address, a prefix, `everyone`, or any text, as the limit \
    counts it; for `mail-mailbox` and `mail-guess` an e-mail address in any spelling; for `guard-…`, `guard:REALM:` and a name, a name@device or an address there; for `verify-token` and \
    `relay-token`, `verify:NAME` and `relay:NAME`; for `program-…` either of them, `:` and an address, a prefix or a \
    number; for `sms-guess` and `sms-phone` in a program, `verify:NAME:` and a number. \
    Percent-encoded.";
/// What a call with an optional body may answer before anything else.
pub const CLEARING: [&str; 4] = ["malformed-json", "request-timeout", "payload-too-large", "invalid-input"];

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "limit": "login-account", "at": "2026-11-21T10:00:00.000000Z", "holds": 0,
    "hits": ["2026-11-21T09:59:41.205113Z"],
    "rules": [{ "max": 3, "window_ms": 60000, "then": "captcha", "count": 1 }],
    "account": { "id": "0123456789abcdef0123456789abcdef", "login": "alice", "password_failures": 1 }
}))]
struct SubjectLog {
    limit: String,
    /// The store's time.
    #[schema(format = DateTime)]
    at: String,
    /// Attempts in flight.
    holds: u32,
    /// Newest first, at most 1000; also hits that no rule counts any more.
    #[schema(format = DateTime)]
    hits: Vec<String>,
    /// Present if the limit is in monitor mode.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    monitored: bool,
    /// Present if every instance counts for itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    of_this_instance: bool,
    rules: Vec<LogRule>,
    /// The account of a name, a number or an e-mail address: the account that has it. An address is an account's once its
    /// owner has confirmed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<AccountNamed>,
    /// Until when nothing is sent to the mailbox; present if it has refused mail twice.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_time_if")]
    #[schema(value_type = Option<String>, format = DateTime)]
    mail_refused_until: Option<Micros>,
}

#[derive(Serialize, ToSchema)]
struct LogRule {
    max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::calendar_units)]
    per: Option<&'static str>,
    #[schema(schema_with = describe::consequences)]
    then: &'static str,
    /// Hits that it counts now.
    count: u32,
    /// If it is full: when its next hit frees.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    frees_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct AccountNamed {
    id: String,
    login: String,
    /// Wrong passwords in a row from strangers; those from known devices are counted apart.
    #[schema(minimum = 0)]
    password_failures: i64,
    /// Present if the password is disabled, after too many of them: it signs in only from browsers that were signed in
    /// before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    password_disabled_since: Option<String>,
}

#[derive(Deserialize, Default, IntoParams, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[schema(example = json!({ "reason": "Called, and is who they say." }))]
pub struct Clearing {
    /// For the record.
    #[param(max_length = 500)]
    #[schema(max_length = 500)]
    reason: String,
}

/// What a limit counts of a subject, and until when
#[utoipa::path(
    get,
    path = "/api/v1/admin/subjects/{limit}/{subject}",
    operation_id = "readSubject",
    tag = "admin",
    params(
        (
            "limit" = String,
            Path,
            description = "Its full name: `login-account`, `custom.reply`.",
            example = "login-account"
        ),
        ("subject" = String, Path, description = SUBJECT, example = "alice")
    ),
    responses((status = 200, description = "Its log.", body = SubjectLog)),
    extensions(("x-problems" = json!(["unknown-limit", "unknown-subject"])))
)]
pub async fn show(
    _: Permitted,
    path: Path<(String, String)>,
    services: ServicesData,
) -> Result<HttpResponse, Problem> {
    let live = services.live.snapshot();
    let (limit, subject) = parse(&path, &live)?;
    let status = services.lookup.standing(&live, limit, &subject).await?.ok_or(Problem::UnknownLimit)?;
    let account = services.lookup.account(&subject).await?;
    let mailbox = if subject.mailbox().is_some() { services.lookup.mailbox(&subject).await? } else { None };
    let mail_refused_until = match mailbox {
        Some(mailbox) => services.codes.mail_refused_until(&mailbox).await?,
        None => None,
    };
    Ok(HttpResponse::Ok().json(SubjectLog { mail_refused_until, ..log(status, account) }))
}

/// Forget what a limit counts of a subject
///
/// In the store and, for messages to a number or a mailbox, in the ledger. Also 204 if there was nothing. The reason may be
/// sent in the query instead.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/subjects/{limit}/{subject}",
    operation_id = "clearSubject",
    tag = "admin",
    params(
        (
            "limit" = String,
            Path,
            description = "Its full name: `login-account`, `custom.reply`.",
            example = "login-account"
        ),
        ("subject" = String, Path, description = SUBJECT, example = "alice"),
        Clearing
    ),
    request_body = Option<Clearing>,
    responses((status = 204, description = "The limit counts nothing of it.")),
    extensions(("x-problems" = json!([CLEARING, "unknown-limit", "unknown-subject"])))
)]
pub async fn clear(
    permitted: Permitted,
    path: Path<(String, String)>,
    query: Query<Clearing>,
    body: Result<Bytes, Error>,
) -> Result<HttpResponse, Problem> {
    let admin = permitted.judge_again().await?;
    let (live, lookup) = (admin.services.live.snapshot(), &admin.services.lookup);
    let (limit, subject) = parse(&path, &live)?;
    let reason = reason(&query.reason, body)?;
    admin.may_touch(lookup.account(&subject).await?.as_ref(), "subject.clear")?;
    no_content_if(lookup.clear(&live, limit, &subject, actor(&admin, reason)).await?, Problem::UnknownLimit)
}

/// Re-enable a disabled password
///
/// Wrong passwords are counted from zero. The reason may be sent in the query instead. 404 if no account has this name, or
/// if its password is not disabled.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/disabled-passwords/{login}",
    operation_id = "enablePassword",
    tag = "admin",
    params(
        ("login" = String, Path, description = "The name of the account, percent-encoded.", example = "alice"),
        Clearing
    ),
    request_body = Option<Clearing>,
    responses((status = 204, description = "The password signs in again.")),
    extensions(("x-problems" = json!([CLEARING, "not-found"])))
)]
pub async fn enable_password(
    permitted: Permitted,
    path: Path<String>,
    query: Query<Clearing>,
    body: Result<Bytes, Error>,
) -> Result<HttpResponse, Problem> {
    let admin = permitted.judge_again().await?;
    let (live, lookup) = (admin.services.live.snapshot(), &admin.services.lookup);
    let subject = read_as((ScopeKind::Pages, ValueKind::Login), &path, &live).ok_or(Problem::NotFound)?;
    let reason = reason(&query.reason, body)?;
    admin.may_touch(lookup.account(&subject).await?.as_ref(), "password.enable")?;
    no_content_if(lookup.enable_password(&subject, actor(&admin, reason)).await?, Problem::NotFound)
}

/// Send mail again to a mailbox that has refused it
///
/// After two refusals for good nothing is sent there for 30 days. The reason may be sent in the query instead. 404 if the
/// mailbox has not refused mail.
#[utoipa::path(
    delete,
    path = "/api/v1/admin/refused-mailboxes/{email}",
    operation_id = "allowMail",
    tag = "admin",
    params(
        (
            "email" = String,
            Path,
            description = "The address, percent-encoded: in any spelling if an account has it.",
            example = "ada@example.org"
        ),
        Clearing
    ),
    request_body = Option<Clearing>,
    responses((status = 204, description = "Mail is sent there again.")),
    extensions(("x-problems" = json!([CLEARING, "not-found"])))
)]
pub async fn allow_mail(
    permitted: Permitted,
    path: Path<String>,
    query: Query<Clearing>,
    body: Result<Bytes, Error>,
) -> Result<HttpResponse, Problem> {
    let admin = permitted.judge_again().await?;
    let (live, lookup) = (admin.services.live.snapshot(), &admin.services.lookup);
    let subject = read_as((ScopeKind::Pages, ValueKind::Mailbox), &path, &live).ok_or(Problem::NotFound)?;
    let (mailbox, reason) = (lookup.mailbox(&subject).await?, reason(&query.reason, body)?);
    admin.may_touch(lookup.account(&subject).await?.as_ref(), "mailbox.allow")?;
    let mailbox = mailbox.ok_or(Problem::NotFound)?;
    no_content_if(lookup.allow_mail(&mailbox, actor(&admin, reason)).await?, Problem::NotFound)
}

/// The limit that there is, and a subject that it can count.
fn parse<'a>(path: &'a (String, String), live: &LiveSettings) -> Result<(&'a str, LookupSubject), Problem> {
    let (limit, text) = path;
    let kind = kind_of(limit).filter(|_| live.limits.get(limit).is_some()).ok_or(Problem::UnknownLimit)?;
    let subject = read_as(kind, text, live).filter(|subject| subject.is_counted_by(limit));
    Ok((limit, subject.ok_or(Problem::UnknownSubject)?))
}

/// In the body or in the query.
pub fn reason(query: &str, body: Result<Bytes, Error>) -> Result<String, Problem> {
    let body = body.map_err(|_| Problem::PayloadTooLarge)?;
    let sent: Clearing = match &body[..] {
        [] => Clearing { reason: query.to_owned() },
        body => serde_json::from_slice(body).map_err(|_| Problem::MalformedJson)?,
    };
    let reason = sent.reason.trim();
    if reason.chars().count() <= LONGEST_REASON && !reason.contains(is_unseen) {
        return Ok(reason.to_owned());
    }
    Err(Problem::wrong("reason", format!("Use at most {LONGEST_REASON} characters on one line.")))
}

fn log(status: LimitStatus, account: Option<Account>) -> SubjectLog {
    let LimitStatus { limit, of_this_instance, at, holds, hits, rules } = status;
    let rule = |(rule, status): (&Rule, RuleStatus)| {
        let (window_ms, per) = span(rule);
        let frees_at = status.frees_at.map(moment);
        LogRule { max: rule.max, window_ms, per, then: rule.then.as_str(), count: status.count, frees_at }
    };
    SubjectLog {
        limit: limit.name().to_owned(),
        at: moment(at),
        holds,
        hits: hits.into_iter().map(moment).collect(),
        monitored: limit.mode() == LimitMode::Monitor,
        of_this_instance,
        rules: limit.rules().iter().zip(rules).map(rule).collect(),
        account: account.map(|account| AccountNamed {
            id: account.id.to_string(),
            login: account.login.as_str().to_owned(),
            password_failures: account.password_failures,
            password_disabled_since: account.password_disabled_at.map(moment),
        }),
        mail_refused_until: None,
    }
}

/// To the microsecond, as logs count.
fn moment(at: Micros) -> String {
    let at = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}
