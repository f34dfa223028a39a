//! `/api/v1/limits/{name}`: hits on custom limits, for programs with a token. No cookie counts here, and none
//! is set.

use std::cmp::Reverse;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Path;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::custom::CustomRequest;
use crate::web::http::api::quota;
use crate::web::http::client::SubjectBytes;
use crate::web::http::describe;
use crate::web::http::locale::millis;
use crate::web::http::{Problem, SecretField, UnreadBody};
use crate::web::programs::Program;
use gatehouse_limiter::middleware::ratelimit_fields::Standing;
use gatehouse_limiter::{
    HitDecision, HitId, Limit, LimitMode, LogPeek, Rule, RulePeek, RuleSpan, StoreError,
};

const LONGEST_SUBJECT: usize = 256;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Subject, example = json!({ "subject": "user 7" }))]
pub struct SubjectRequest {
    /// Whom to count: any text of 1 to 256 bytes.
    #[schema(value_type = String)]
    subject: SecretField,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "subject": "user 7", "hit": "5d1c2f0a9b3e" }))]
pub struct HitReturned {
    /// As in the reservation.
    #[schema(value_type = String)]
    subject: SecretField,
    /// The hit of the reservation.
    hit: String,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({ "hit": "5d1c2f0a9b3e", "remaining": 4, "reset_after_ms": 1000 }))]
struct Hit {
    /// To refund it with: 12 hexadecimal digits.
    hit: String,
    /// How many more hits the strictest rule admits now; null if none is enforced.
    #[schema(required)]
    remaining: Option<u32>,
    /// Until the whole quota of that rule is free again, without further hits; null if none is enforced.
    #[schema(required)]
    reset_after_ms: Option<u64>,
    /// Only of a limit in monitor mode: whether it would have refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "allowed": true, "count": 1, "remaining": 4, "retry_after_ms": 0,
    "rules": [{ "max": 5, "window_ms": 1000, "count": 1, "remaining": 4, "retry_after_ms": 0 }]
}))]
struct Peeked {
    /// Whether a hit would be admitted now.
    allowed: bool,
    /// How many hits the strictest rule counts.
    count: u32,
    /// What that rule has left; null if there is no rule.
    #[schema(required)]
    remaining: Option<u32>,
    /// Until a hit is admitted; 0 if it would be now.
    retry_after_ms: u64,
    /// Only of a limit in monitor mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
    rules: Vec<PeekedRule>,
}

#[derive(Serialize, ToSchema)]
struct PeekedRule {
    max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::calendar_units)]
    per: Option<&'static str>,
    count: u32,
    remaining: u32,
    retry_after_ms: u64,
}

/// What is counted of a subject, by a program that may use the limit.
struct LimitCall<'a> {
    limit: Limit,
    /// As it is called here: without `custom.`.
    name: &'a str,
    subject: &'a str,
    address: SubjectBytes,
}

/// Take a hit, or learn when there will be one
///
/// A refusal writes nothing, so trying again does not make the wait longer. While the window store is down, nothing is
/// admitted.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}/reserve",
    operation_id = "reserveHit",
    tag = "limits",
    params(("name" = String, Path, description = "A custom limit, without `custom.`.", example = "reply")),
    request_body = SubjectRequest,
    responses((
        status = 200,
        description = "Admitted.",
        body = Hit,
        headers(("RateLimitPolicy"), ("RateLimit"))
    )),
)]
pub async fn reserve(
    program: Program,
    name: Path<String>,
    body: UnreadBody<SubjectRequest>,
) -> Result<HttpResponse, Problem> {
    let limit = program.limit(&name)?;
    let body = body.read().await?;
    let call = LimitCall::new(&program, &name, limit, &body.subject)?;
    match program.services.custom.reserve(call.ask()).await.map_err(out)? {
        HitDecision::Admitted(admission) => {
            let room = admission.room;
            let watching = call.limit.mode() == LimitMode::Monitor;
            let body = Hit {
                hit: text_of(admission.id),
                remaining: room.map(|room| room.remaining),
                reset_after_ms: room.map(|room| millis(room.reset_after)),
                would_refuse: watching.then_some(admission.noted.is_some()),
            };
            let standing = room.map(|room| (room.rule, room.remaining, Some(room.more_after)));
            Ok(call.told(HttpResponse::Ok().json(body), standing))
        }
        HitDecision::Refused(refusal) => {
            let retry_after = refusal.retry_after;
            let problem = Problem::LimitFull { limit: name.clone(), retry_after };
            Ok(call.told(problem.respond(), Some((refusal.rule, 0, Some(retry_after)))))
        }
    }
}

/// What a limit counts of a subject
///
/// It takes no hit.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}/peek",
    operation_id = "peekLimit",
    tag = "limits",
    params(("name" = String, Path, description = "A custom limit, without `custom.`.", example = "reply")),
    request_body = SubjectRequest,
    responses((
        status = 200,
        description = "What each rule counts.",
        body = Peeked,
        headers(("RateLimitPolicy"), ("RateLimit"))
    )),
)]
pub async fn peek(
    program: Program,
    name: Path<String>,
    body: UnreadBody<SubjectRequest>,
) -> Result<HttpResponse, Problem> {
    let limit = program.limit(&name)?;
    let body = body.read().await?;
    let call = LimitCall::new(&program, &name, limit, &body.subject)?;
    let peek = program.services.custom.peek(call.ask()).await.map_err(out)?;
    let body = peeked(&call.limit, &peek);
    let standing = binding(&body.rules).filter(|_| body.would_refuse.is_none()).map(|(rule, state)| {
        let wait = Duration::from_millis(state.retry_after_ms);
        (rule, state.remaining, Some(wait).filter(|wait| !wait.is_zero()))
    });
    Ok(call.told(HttpResponse::Ok().json(body), standing))
}

/// Give a hit back
///
/// It can be repeated. A hit of another subject stays.
#[utoipa::path(
    post,
    path = "/api/v1/limits/{name}/refund",
    operation_id = "refundHit",
    tag = "limits",
    params(("name" = String, Path, description = "A custom limit, without `custom.`.", example = "reply")),
    request_body = HitReturned,
    responses((status = 204, description = "The hit does not count, or no longer.")),
)]
pub async fn refund(
    program: Program,
    name: Path<String>,
    body: UnreadBody<HitReturned>,
) -> Result<HttpResponse, Problem> {
    let limit = program.limit(&name)?;
    let body = body.read().await?;
    let call = LimitCall::new(&program, &name, limit, &body.subject)?;
    let hit = parse_hit(&body.hit)
        .ok_or_else(|| Problem::wrong("hit", "Send the hit of the reservation: 12 hexadecimal digits."))?;
    program.services.custom.refund(call.ask(), hit).await.map_err(out)?;
    Ok(HttpResponse::NoContent().finish())
}

impl<'a> LimitCall<'a> {
    fn new(
        program: &Program,
        name: &'a str,
        limit: Limit,
        subject: &'a SecretField,
    ) -> Result<Self, Problem> {
        let subject = subject.expose();
        if !(1..=LONGEST_SUBJECT).contains(&subject.len()) {
            return Err(Problem::wrong("subject", "Send 1 to 256 bytes of text."));
        }
        Ok(Self { limit, name, subject, address: program.sender.client.subject() })
    }

    fn ask(&self) -> CustomRequest<'_> {
        CustomRequest { limit: &self.limit, subject: self.subject, address: self.address.as_ref() }
    }

    /// With the `RateLimit` fields: how many are left, and until when.
    fn told(&self, response: HttpResponse, standing: Option<(usize, u32, Option<Duration>)>) -> HttpResponse {
        let name = self.name;
        let standing =
            standing.map(|(rule, remaining, more_after)| Standing { name, rule, remaining, more_after });
        quota(response, [(self.name, &self.limit)], standing)
    }
}

fn peeked(limit: &Limit, peek: &LogPeek) -> Peeked {
    let rules: Vec<PeekedRule> = limit.rules().iter().zip(&peek.rules).map(rule_body).collect();
    let (count, remaining) =
        binding(&rules).map_or((0, None), |(_, rule)| (rule.count, Some(rule.remaining)));
    let wait = rules.iter().map(|rule| rule.retry_after_ms).max().unwrap_or(0);
    let watching = limit.mode() == LimitMode::Monitor;
    let full = remaining == Some(0);
    Peeked {
        allowed: watching || !full,
        count,
        remaining,
        retry_after_ms: if watching { 0 } else { wait },
        would_refuse: watching.then_some(full),
        rules,
    }
}

/// The rule that decides on the next hit, with its place: what is left of it, and of several that are full the one that is
/// full for longest.
fn binding(rules: &[PeekedRule]) -> Option<(usize, &PeekedRule)> {
    rules.iter().enumerate().min_by_key(|(_, rule)| (rule.remaining, Reverse(rule.retry_after_ms)))
}

fn rule_body((rule, state): (&Rule, &RulePeek)) -> PeekedRule {
    let (window_ms, per) = span(rule);
    PeekedRule {
        max: rule.max,
        window_ms,
        per,
        count: state.count,
        remaining: rule.max - state.count.min(rule.max),
        retry_after_ms: millis(state.retry_after),
    }
}

pub fn span(rule: &Rule) -> (Option<u64>, Option<&'static str>) {
    match &rule.span {
        RuleSpan::Sliding(window) => (Some(millis(*window)), None),
        RuleSpan::Calendar { unit, .. } => (None, Some(unit.as_str())),
    }
}

fn text_of(HitId(bytes): HitId) -> String {
    HEXLOWER.encode(&bytes)
}

fn parse_hit(text: &str) -> Option<HitId> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok().map(HitId)
}

/// Nothing is admitted while the store is out.
fn out(_: StoreError) -> Problem {
    Problem::Unavailable { retry_after: Duration::from_secs(1) }
}
