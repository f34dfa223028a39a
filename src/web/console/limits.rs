//! `/admin/limits` and `/api/v1/admin/limits`: the limits in force, with their decisions in the last hour and the latest
//! changes, and a save of others.

pub mod editor;
pub mod history;
pub mod preview;

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use gatehouse_limiter::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::VariantArray;
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use super::document::{
    DiffKind, DocumentSaved, LIMITS, Precondition, SentDraft, in_force_response, read_draft,
};
use super::figures::{DAY, HOUR, LimitUse, NearestRule};
use super::guard::{AdminRequest, Permitted};
use super::limit_text::{differences, grouped};
use crate::audit::MINUTE;
use crate::config::{
    BackendKind, LimitName, LimitUnit, Limits, LiveSection, named_limits, read_limits, span_text,
};
use crate::tuning::{CurrentLimits, Instance};
use crate::web::http::describe::{self, ChangeReason};
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{Flash, Layout, Moment, Problem, ServicesData, UnreadBody, WebError, WebResult};
use history::{ChangeRow, HistoryPart, changes, newest_of};

const LATEST: u32 = 3;

/// `GET /admin/limits`
pub async fn show(request: AdminRequest) -> WebResult {
    let AdminRequest { visit, services, .. } = &request;
    let (now, current) = (visit.now(), services.tuning.current());
    let hour = services.audit.log().totals(now.minus(HOUR), now.plus(MINUTE)).await?;
    // A window of a day looks back on it, too.
    let hits = services.audit.log().hits(now.minus(HOUR + DAY)).await?;
    let default = Limits::default();
    let row = |limit: &Limit| LimitRow {
        default: default.get(limit.name()) == Some(limit),
        overridden: current.overridden.limit(limit.name()),
        hour: LimitUse::of(limit.name(), &hour),
        nearest: NearestRule::of(limit, &hits, now.minus(HOUR)),
        limit: limit.clone(),
    };
    let page = LimitsPage {
        layout: request.layout("/admin/limits"),
        version: current.version.clone(),
        backend: current.backend.into_str(),
        rows: current.live.limits.iter().map(row).collect(),
        changes: changes(services, &current, (HistoryPart::Settings, None), LATEST).await?.0,
        saved: match visit.flash {
            Some(Flash::LimitsSaved | Flash::LimitsRestored) => saved(&request).await?,
            _ => Vec::new(),
        },
    };
    Ok(visit.page(StatusCode::OK, &page))
}

/// What the reader has just changed, limit by limit: its name, and the difference in words.
async fn saved(request: &AdminRequest) -> Result<Vec<(String, String)>, WebError> {
    let Some([before, after]) = newest_of(request).await? else { return Ok(Vec::new()) };
    let read = move |_: &_| [before, after].map(|change| read_limits(&change.document));
    // The save is told even if the details are not to be had.
    let Ok([Some(before), Some(after)]) = read_draft(&request.admin, read).await else {
        return Ok(Vec::new());
    };
    let gone = before.iter().filter(|limit| after.get(limit.name()).is_none());
    let told = after.iter().chain(gone).map(Limit::name).filter_map(|name| {
        let told = differences(before.get(name), after.get(name), request.visit.locale);
        (!told.is_empty()).then(|| (name.to_owned(), told.join(", ")))
    });
    Ok(told.collect())
}

pub struct LimitRow {
    pub limit: Limit,
    pub default: bool,
    pub overridden: bool,
    pub hour: LimitUse,
    pub nearest: Option<NearestRule>,
}

impl LimitRow {
    fn name(&self) -> &str {
        self.limit.name()
    }

    /// What became of all that reached the limit in the hour: locale keys and figures. What its rules counted comes first.
    fn parts(&self) -> Vec<(&'static str, u64)> {
        let LimitUse { counted, challenged, refused, noted } = self.hour;
        let counted = counted.filter(|_| !self.limit.rules().is_empty()).unwrap_or(0);
        let mut all = vec![
            ("limit-page.counted", counted),
            ("limit-page.challenged", challenged),
            ("limit-page.refused", refused),
            ("limit-page.noted", noted),
        ];
        all.retain(|(_, count)| *count > 0);
        all
    }

    /// The colour of what the limit did, if its bound was reached.
    fn reached(&self) -> Option<&'static str> {
        let LimitUse { challenged, refused, noted, .. } = self.hour;
        let acts = [(refused, "refused"), (challenged, "asked"), (noted, "wrong")];
        acts.into_iter().find(|(count, _)| *count > 0).map(|(_, tone)| tone)
    }

    /// How near it came, where it did nothing.
    fn nearest_bound(&self) -> Option<&NearestRule> {
        self.nearest.as_ref().filter(|_| self.reached().is_none())
    }

    /// The bar of the limit: how much of its bound was used, in percent, and a colour. None if nothing reached it.
    fn bar(&self) -> Option<(u64, &'static str)> {
        let near = self.nearest_bound().map(|nearest| (nearest.percent(), "ok"));
        self.reached().map(|tone| (100, tone)).or(near)
    }
}

struct Group<'a> {
    key: &'static str,
    rows: Vec<&'a LimitRow>,
}

fn group_of(limit: &str) -> &'static str {
    match LimitName::parse(limit).map(LimitName::unit) {
        Some(
            LimitUnit::SignIn
            | LimitUnit::Factor
            | LimitUnit::ClientCall
            | LimitUnit::Repeat
            | LimitUnit::Name
            | LimitUnit::Registration,
        ) => "limit-page.sign-in",
        Some(LimitUnit::Attempt) => "limit-page.guard",
        Some(LimitUnit::Mail) => "limit-page.mail",
        Some(LimitUnit::Guess) if limit == LimitName::MailGuess.as_str() => "limit-page.mail",
        Some(LimitUnit::Message | LimitUnit::Guess) => "limit-page.sms",
        Some(LimitUnit::Image) => "limit-page.captcha",
        None => "limit-page.own",
    }
}

#[derive(Template)]
#[template(path = "pages/admin/limits.html")]
pub struct LimitsPage {
    pub layout: Layout,
    pub version: String,
    pub backend: &'static str,
    pub rows: Vec<LimitRow>,
    pub changes: Vec<ChangeRow>,
    pub saved: Vec<(String, String)>,
}

impl LimitsPage {
    /// The built-in limits in five groups, and the owner's own.
    fn groups(&self) -> [Group<'_>; 6] {
        let of = |key: &str| self.rows.iter().filter(|row| group_of(row.name()) == key).collect();
        [
            "limit-page.sign-in",
            "limit-page.guard",
            "limit-page.sms",
            "limit-page.mail",
            "limit-page.captcha",
            "limit-page.own",
        ]
        .map(|key| Group { key, rows: of(key) })
    }

    fn has_own(&self) -> bool {
        self.rows.iter().any(|row| group_of(row.name()) == "limit-page.own")
    }
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "version": "5d1f0c2a9b3e",
    "backend": "file",
    "limits": { "sms-phone": LimitSettings::example(), "custom": {} },
    "sources": { "sms-phone": "document" },
    "toml": "[limits.sms-phone]\nrules = [{ max = 1, window = \"1m\" }]\n",
    "instances": [{
        "host": "web-1:8080", "started_at": "2026-11-21T10:00:00Z", "seen_at": "2026-11-21T10:00:05Z",
        "version": "5d1f0c2a9b3e", "applied_at": "2026-11-21T10:00:00Z", "this": true
    }]
}))]
struct LimitsInForce {
    /// The version, as in ETag.
    version: String,
    /// What keeps the limits.
    #[schema(schema_with = backends)]
    backend: &'static str,
    /// Why that does not answer; its last answer is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    backend_down: Option<String>,
    #[schema(value_type = LimitsDocument)]
    limits: Value,
    /// Where each limit comes from, by its full name.
    #[schema(value_type = BTreeMap<String, LimitSource>)]
    sources: BTreeMap<String, &'static str>,
    /// `[limits]` of the document, with its comments.
    toml: String,
    instances: Vec<Instance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusedDocument>,
}

/// A newer document that is not in force.
#[derive(Serialize, ToSchema)]
struct RefusedDocument {
    #[schema(format = DateTime)]
    at: String,
    reason: String,
}

/// The limits in force, and on which instances
#[utoipa::path(
    get,
    path = "/api/v1/admin/limits",
    operation_id = "showLimits",
    tag = "admin",
    responses((
        status = 200,
        description = "What is in force on the instance that answers.",
        body = LimitsInForce,
        headers(("Version"))
    )),
)]
pub async fn api_show(_: Permitted, services: ServicesData) -> Result<HttpResponse, Problem> {
    let instances = services.tuning.instances().await?;
    let current = services.tuning.current();
    let (sources, toml) = (sources(&current), LiveSection::Limits.text_in(&current.document));
    let CurrentLimits { version, backend, backend_down, live, refused, .. } = current;
    let body = LimitsInForce {
        version: version.clone(),
        backend: backend.into_str(),
        backend_down,
        limits: limits_json(&live.limits),
        sources,
        toml,
        instances,
        refused: refused.map(|refused| RefusedDocument {
            at: Moment(refused.at).iso(),
            reason: refused.error.to_string(),
        }),
    };
    Ok(in_force_response(&version, body))
}

/// Writes limits as a draft is sent: the owner's own under `custom`.
fn limits_json(limits: &Limits) -> Value {
    let (mut all, mut custom) = (serde_json::Map::new(), serde_json::Map::new());
    for limit in limits.iter() {
        let settings = json!(LimitSettings::from(limit));
        match limit.name().strip_prefix("custom.") {
            Some(own) => custom.insert(own.to_owned(), settings),
            None => all.insert(limit.name().to_owned(), settings),
        };
    }
    all.insert("custom".to_owned(), custom.into());
    all.into()
}

fn sources(current: &CurrentLimits) -> BTreeMap<String, &'static str> {
    let set = named_limits(&current.document);
    let source = |name: &str| match name {
        _ if current.overridden.limit(name) => "environment",
        _ if set.iter().any(|set| set == name) => "document",
        _ => "default",
    };
    current.live.limits.iter().map(|limit| (limit.name().to_owned(), source(limit.name()))).collect()
}

/// One of `limits` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "limits": { "sms-phone": LimitSettings::example() }, "reason": "An attack on numbers of one operator."
}))]
pub struct LimitsRequest {
    #[schema(value_type = Option<LimitsDocument>)]
    limits: Option<Value>,
    /// Instead of limits: `[limits.NAME]` tables, with comments.
    toml: Option<String>,
    #[schema(value_type = ChangeReason)]
    reason: String,
}

/// Replace the limits
///
/// They replace all that were set: what is left out returns to its default. Comments and order of the document are kept.
/// A limit that is set by an environment variable of the server cannot be changed.
#[utoipa::path(
    put,
    path = "/api/v1/admin/limits",
    operation_id = "saveLimits",
    tag = "admin",
    params(Precondition),
    request_body = LimitsRequest,
    responses(DocumentSaved),
    extensions(("x-problems" = json!(["precondition-required", "precondition-failed", "not-saved"])))
)]
pub async fn api_save(
    permitted: Permitted,
    request: HttpRequest,
    wanted: UnreadBody<LimitsRequest, DOCUMENT_LIMIT>,
) -> Result<HttpResponse, Problem> {
    let (admin, LimitsRequest { limits: json, toml, reason }) = permitted.read(wanted).await?;
    SentDraft { part: &LIMITS, json, toml }.save(&admin, &request, &reason).await
}

/// By name; the owner's own under `custom`. What is left out is at its default.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
pub struct LimitsDocument {
    #[schema(required = false)]
    pub custom: BTreeMap<String, LimitSettings>,
    #[serde(flatten)]
    pub others: BTreeMap<String, LimitSettings>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitSettings {
    /// `enforce` if left out.
    #[schema(schema_with = describe::modes, required = false)]
    mode: &'static str,
    #[schema(max_items = 8)]
    rules: Vec<RuleSettings>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Rule)]
pub struct RuleSettings {
    #[schema(minimum = 1, maximum = 1_000_000)]
    max: u32,
    /// Sliding: 100ms to 366d.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<String>,
    /// Instead of window: follows the calendar.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::calendar_units)]
    per: Option<&'static str>,
    /// The IANA name of the time zone of `per`; UTC if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    /// `block` if left out.
    #[schema(schema_with = describe::consequences, required = false)]
    then: &'static str,
}

impl From<&Limit> for LimitSettings {
    fn from(limit: &Limit) -> Self {
        let mode = match limit.mode() {
            LimitMode::Enforce => "enforce",
            LimitMode::Monitor => "monitor",
        };
        Self { mode, rules: limit.rules().iter().map(RuleSettings::from).collect() }
    }
}

impl From<&Rule> for RuleSettings {
    fn from(rule: &Rule) -> Self {
        let (window, per, timezone) = match &rule.span {
            RuleSpan::Sliding(window) => (Some(span_text(*window)), None, None),
            RuleSpan::Calendar { unit, zone } => {
                (None, Some(unit.as_str()), Some(zone.iana_name().unwrap_or("UTC").to_owned()))
            }
        };
        Self { max: rule.max, window, per, timezone, then: rule.then.as_str() }
    }
}

impl LimitSettings {
    pub fn example() -> Self {
        let rule = Rule::sliding(1, MINUTE, RuleAction::Block);
        Self { mode: "enforce", rules: vec![RuleSettings::from(&rule)] }
    }
}

/// What may keep the limits.
pub fn backends() -> ObjectBuilder {
    describe::one_of(BackendKind::VARIANTS.iter().map(|kind| kind.into_str()))
}

/// Where a limit comes from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitSource {
    Default,
    Document,
    Environment,
}
