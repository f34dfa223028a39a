//! `/api/v1/admin/limits`: the limits in force, a save of others, and what was in force before.

use std::collections::BTreeMap;

use actix_web::http::header::{CACHE_CONTROL, ETAG, HeaderValue, IF_MATCH};
use actix_web::web::Query;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{Limits, rule_json};
use crate::throttle::{Limit, LimitMode};
use crate::tuning::{
    ChangeCursor, CurrentLimits, DraftError, Instance, LimitsChange, LimitsDraft, NotWritten, SaveError,
    SavedDraft,
};
use crate::web::console::guard::Admin;
use crate::web::console::guard::ConfirmedAdmin;
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::{DraftProblem, InputError, Problem};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::wait::Moment;

/// The longest reason, in characters: a sentence or two.
const LONGEST_REASON: usize = 500;
/// Of a version and of a change, in an event.
const LONGEST_NAME: usize = 32;
/// Changes on a page where nothing else is asked for, and at most.
const USUAL: u32 = 20;
const MOST: u32 = 100;

#[derive(Serialize)]
struct InForce {
    version: String,
    home: &'static str,
    /// Why the home does not answer; what is in force is what it said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    home_down: Option<String>,
    limits: Value,
    /// Where each limit comes from: `default`, `document` or `environment`.
    sources: BTreeMap<String, &'static str>,
    /// The same as text, with its comments.
    toml: String,
    instances: Vec<InstanceBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedBody>,
}

/// A newer document that is not in force.
#[derive(Serialize)]
struct RefusedBody {
    at: String,
    reason: String,
}

#[derive(Serialize)]
struct InstanceBody {
    host: String,
    started_at: String,
    seen_at: String,
    version: String,
    applied_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// The one that answers.
    this: bool,
}

impl From<Instance> for InstanceBody {
    fn from(instance: Instance) -> Self {
        let Instance { id: _, host, started_at, seen_at, version, applied_at, refused, this } = instance;
        let iso = |at| Moment(at).iso();
        let (started_at, seen_at, applied_at) = (iso(started_at), iso(seen_at), iso(applied_at));
        Self { host, started_at, seen_at, version, applied_at, refused, this }
    }
}

/// `GET /admin/limits`
pub async fn show(_: Admin, services: Shared) -> Result<HttpResponse, Problem> {
    let instances = services.tuning.instances().await?;
    let current = services.tuning.current();
    let sources = sources(&current);
    let CurrentLimits { version, backend: home, backend_down: home_down, live, toml, refused, .. } = current;
    let tag = tag(&version);
    let body = InForce {
        version,
        home: home.as_str(),
        home_down,
        limits: limits_json(&live.limits),
        sources,
        toml,
        instances: instances.into_iter().map(InstanceBody::from).collect(),
        refused: refused
            .map(|refused| RefusedBody { at: Moment(refused.at).iso(), reason: refused.error.to_string() }),
    };
    Ok(HttpResponse::Ok().insert_header((ETAG, tag)).insert_header((CACHE_CONTROL, "no-cache")).json(body))
}

/// As a draft is sent: the owner's own under `custom`.
fn limits_json(limits: &Limits) -> Value {
    let mut all = serde_json::Map::new();
    let mut custom = serde_json::Map::new();
    for limit in limits.iter() {
        match limit.name().strip_prefix("custom.") {
            Some(own) => custom.insert(own.to_owned(), limit_json(limit)),
            None => all.insert(limit.name().to_owned(), limit_json(limit)),
        };
    }
    all.insert("custom".to_owned(), custom.into());
    all.into()
}

fn limit_json(limit: &Limit) -> Value {
    let mode = match limit.mode() {
        LimitMode::Enforce => "enforce",
        LimitMode::Monitor => "monitor",
    };
    json!({ "mode": mode, "rules": limit.rules().iter().map(rule_json).collect::<Vec<_>>() })
}

fn sources(current: &CurrentLimits) -> BTreeMap<String, &'static str> {
    let source = |name: &str| match name {
        _ if current.is_overridden(name) => "environment",
        _ if current.set.iter().any(|set| set == name) => "document",
        _ => "default",
    };
    current.live.limits.iter().map(|limit| (limit.name().to_owned(), source(limit.name()))).collect()
}

/// What is to be in force. One of `limits` and `toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    limits: Option<Value>,
    toml: Option<String>,
    reason: String,
}

#[derive(Serialize)]
struct SavedBody {
    version: String,
    /// Whether any limit is another than before.
    changed: bool,
}

/// `PUT /admin/limits`
pub async fn save(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    request: HttpRequest,
    wanted: UnreadBody<Wanted, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let seen = seen(&request, &services.tuning.current().version)?;
    let reason = reason(&wanted.reason)?;
    let draft = match (&wanted.limits, &wanted.toml) {
        (Some(limits), None) => LimitsDraft::Json(limits),
        (None, Some(toml)) => LimitsDraft::Toml(toml),
        (Some(_), Some(_)) => return Err(wrong("toml", "Send either toml or limits, not both.")),
        (None, None) => return Err(wrong("limits", "Missing; send limits or toml.")),
    };
    let saved = services.tuning.save(draft, &seen, admin.by(&admin.id()), reason).await;
    let detail = json!({ "reason": reason, "from": seen });
    told(&services, &admin, "limits.save", detail, &saved);
    answer(saved)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Back {
    change: String,
    reason: String,
}

/// `POST /admin/limits/rollback`
pub async fn rollback(
    ConfirmedAdmin(admin): ConfirmedAdmin,
    request: HttpRequest,
    back: UnreadBody<Back>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let back = back.read().await?;
    let seen = seen(&request, &services.tuning.current().version)?;
    let reason = reason(&back.reason)?;
    let saved = services.tuning.rollback(&back.change, &seen, admin.by(&admin.id()), reason).await;
    let detail = json!({ "reason": reason, "from": seen, "change": back.change });
    told(&services, &admin, "limits.rollback", detail, &saved);
    answer(saved)
}

/// Records what somebody did, or would have done.
pub fn told(
    services: &Services,
    admin: &Admin,
    act: &str,
    mut detail: Value,
    saved: &Result<SavedDraft, SaveError>,
) {
    // Sent by the caller, and as long as they like: none of ours is longer than this.
    for name in ["from", "change"] {
        if let Some(text) = detail.get(name).and_then(Value::as_str).filter(|text| text.len() > LONGEST_NAME)
        {
            detail[name] = text.chars().take(LONGEST_NAME).chain(['…']).collect::<String>().into();
        }
    }
    let refused = match saved {
        Ok(saved) => {
            detail["to"] = saved.version.clone().into();
            return admin.did(services, act, &detail);
        }
        Err(SaveError::NotWritten(NotWritten::Stale { .. })) => "stale",
        Err(SaveError::NotWritten(NotWritten::Invalid(_)) | SaveError::NoSuchChange) => "invalid",
        Err(SaveError::NotWritten(NotWritten::Backend(_))) => "home",
        Err(SaveError::Db(_)) => "database",
    };
    detail["why"] = refused.into();
    admin.failed(services, act, &detail);
}

fn answer(saved: Result<SavedDraft, SaveError>) -> Result<HttpResponse, Problem> {
    match saved {
        Ok(SavedDraft { version, changed, toml: _ }) => {
            let tag = tag(&version);
            Ok(HttpResponse::Ok().insert_header((ETAG, tag)).json(SavedBody { version, changed }))
        }
        Err(SaveError::NotWritten(NotWritten::Stale { version, diff })) => {
            Err(Problem::PreconditionFailed { version, diff })
        }
        Err(SaveError::NotWritten(NotWritten::Invalid(errors))) => {
            let told = |DraftError { field, message, line }| DraftProblem { field, message, line };
            Err(Problem::InvalidDraft { errors: errors.into_iter().map(told).collect() })
        }
        Err(SaveError::NotWritten(NotWritten::Backend(reason))) => Err(Problem::NotSaved { reason }),
        Err(SaveError::NoSuchChange) => Err(wrong("change", "Not in the history; use an id from there.")),
        Err(SaveError::Db(error)) => Err(error.into()),
    }
}

/// The version that the caller has seen (RFC 9110, 13.1.1). `*` names none.
fn seen(request: &HttpRequest, current: &str) -> Result<String, Problem> {
    let fields = request.headers().get_all(IF_MATCH).filter_map(|value| value.to_str().ok());
    let tags: Vec<&str> = fields
        .flat_map(|field| field.split(','))
        .filter_map(|tag| tag.trim().strip_prefix('"')?.strip_suffix('"'))
        .collect();
    let known = tags.iter().find(|tag| **tag == current).or_else(|| tags.first());
    known.map(|tag| (*tag).to_owned()).ok_or(Problem::PreconditionRequired)
}

fn reason(text: &str) -> Result<&str, Problem> {
    let text = text.trim();
    let fits = !text.is_empty()
        && text.chars().count() <= LONGEST_REASON
        && !text.chars().any(|letter| letter.is_control() && letter != '\n');
    if fits { Ok(text) } else { Err(wrong("reason", "Give a reason of 1 to 500 characters.")) }
}

fn tag(version: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("hexadecimal digits")
}

fn wrong(field: &'static str, message: &'static str) -> Problem {
    Problem::InvalidInput { errors: vec![InputError { field: field.into(), message: message.into() }] }
}

#[derive(Deserialize)]
pub struct Page {
    before: Option<String>,
    limit: Option<u32>,
}

#[derive(Serialize)]
struct Changes {
    changes: Vec<ChangeBody>,
    /// For `before` of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct ChangeBody {
    id: String,
    at: String,
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    /// None where the document was edited by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    login: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    toml: String,
}

impl From<LimitsChange> for ChangeBody {
    fn from(change: LimitsChange) -> Self {
        let LimitsChange { id, at, version, previous, actor, login, reason, document } = change;
        Self { id, at: Moment(at).iso(), version, previous, actor, login, reason, toml: document }
    }
}

/// `GET /admin/limits/history`, newest first.
pub async fn history(_: Admin, page: Query<Page>, services: Shared) -> Result<HttpResponse, Problem> {
    let before = match page.before.as_deref() {
        None | Some("") => None,
        Some(text) => Some(
            ChangeCursor::parse(text)
                .ok_or_else(|| wrong("before", "Use the value of next from the previous page."))?,
        ),
    };
    let limit = page.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(wrong("limit", "Use 1 to 100."));
    }
    // One more than wanted says whether there is a next page.
    let found = services.tuning.history(before, limit + 1).await;
    let mut changes = found?;
    let more = changes.len() > limit as usize;
    changes.truncate(limit as usize);
    let next = changes.last().filter(|_| more).map(|last| last.cursor().to_string());
    Ok(HttpResponse::Ok()
        .json(Changes { changes: changes.into_iter().map(ChangeBody::from).collect(), next }))
}
