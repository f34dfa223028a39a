//! `/api/v1/attempts`: another program's login asks before it looks at a password, and says how it ended.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Path;
use gatehouse_limiter::window::HOLD_LIFE;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::accounts::RealmLogin;
use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::denied::{Denied, DeniedRule};
use crate::login::{
    AttemptOutcome, AttemptSettled, ClientCapabilities, GuardedAttempt, GuardedDevice, SettleError,
};
use crate::web::http::api::limited;
use crate::web::http::describe;
use crate::web::http::locale::whole_seconds;
use crate::web::http::{
    CaptchaBody, CaptchaSolution, ChallengeContext, ClientAddress, InputError, Problem, SecretField,
    TrustedProxies, UnreadBody,
};
use crate::web::programs::{Program, parse_client, redeem};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Attempt, example = json!({ "login": "ada@example.com", "address": "203.0.113.7" }))]
pub struct AttemptBody {
    /// The name that somebody typed, in your program's canonical form if it has one: 1 to 256 bytes. Upper and lower
    /// case are one.
    #[schema(value_type = String, min_length = 1, max_length = 256)]
    login: SecretField,
    /// The address of the client that your program serves.
    #[schema(value_type = String)]
    address: SecretField,
    /// What the settling of a success gave you for this client.
    #[schema(value_type = Option<String>)]
    device: Option<SecretField>,
    /// What stands for the password: a keyed hash of login and password under a key of your own, 1 to 64 bytes. The same
    /// wrong one again from the same client is then no new guess. Left out: every failure is one.
    #[schema(value_type = Option<String>, min_length = 1, max_length = 64)]
    guess: Option<SecretField>,
    captcha: Option<CaptchaSolution>,
}

/// Bytes of a guess: two hashes of 32 bytes, or one in hexadecimal.
const LONGEST_GUESS: usize = 64;

/// Whether to look at the password.
#[derive(Serialize, ToSchema)]
#[serde(tag = "decision", rename_all = "lowercase")]
#[schema(example = json!({ "decision": "wait", "limit": "guard-account", "retry_after": 1200 }))]
enum Decision {
    /// Look at the password, and say how it ended.
    Go {
        /// To settle it with.
        attempt: String,
        /// Seconds after which it counts as a failure.
        settle_within: u64,
    },
    /// Show the challenge, and ask again with its answer.
    Challenge {
        captcha: CaptchaBody,
        /// Seconds after which no challenge is needed, if nothing fails meanwhile.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// Refuse it, whatever comes with it.
    Wait {
        limit: String,
        /// Seconds.
        retry_after: u64,
    },
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AttemptEnd, example = json!({ "outcome": "success" }))]
pub struct OutcomeBody {
    /// `abandoned`: the password was not looked at.
    #[schema(schema_with = outcomes)]
    outcome: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = AttemptSettled, example = json!({ "device": "AAAA" }))]
struct SettledBody {
    /// After a success: keep it in the client's browser, and send it with the next attempt. It opens nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Forgiveness, example = json!({ "login": "ada@example.com" }))]
pub struct ForgiveBody {
    #[schema(value_type = String, min_length = 1, max_length = 256)]
    login: SecretField,
}

fn outcomes() -> utoipa::openapi::schema::ObjectBuilder {
    describe::one_of(TOLD.map(|outcome| outcome.into_str()))
}

/// What a program may say.
const TOLD: [AttemptOutcome; 3] =
    [AttemptOutcome::Failure, AttemptOutcome::Success, AttemptOutcome::Abandoned];

/// Ask before a password is looked at
///
/// The attempt is counted at the name, or at the device that is known there, and at the client's address and network,
/// each in the realm of the token. While others at the same name are in flight and hold what is left, it waits for them,
/// at most five seconds, and is then asked for a challenge. A challenge that was answered wrongly, late or twice is
/// answered by another.
#[utoipa::path(
    post,
    path = "/api/v1/attempts",
    operation_id = "askAttempt",
    tag = "guard",
    request_body = AttemptBody,
    responses((
        status = 200,
        description = "What to do.",
        body = Decision,
        headers(("RateLimitPolicy"), ("RateLimit"))
    )),
    extensions(("x-problems" = json!(["denied"])))
)]
pub async fn ask(program: Program, body: UnreadBody<AttemptBody>) -> Result<HttpResponse, Problem> {
    let realm = program.guard()?;
    let body = body.read().await?;
    let (login, client) = parse(&body, &program.sender.edge.trusted)?;
    let Program { sender, services, .. } = &program;
    let live = sender.live_for(services, client);
    let asker = ChallengeContext { form: CaptchaForm::Attempt, client, browser: None, realm: Some(realm) };
    let Some(solved) = redeem(asker, services, &live, body.captcha.as_ref()).await? else {
        let captcha = asker.challenge(services, &live).await;
        return Ok(told(&Decision::Challenge { captcha, retry_after: None }, &live, None));
    };
    let attempt = GuardedAttempt {
        realm,
        login: &login,
        origin: &client.origin(),
        device: body
            .device
            .as_ref()
            .map_or(GuardedDevice::Stranger, |device| GuardedDevice::Sent(device.expose())),
        guess: body.guess.as_ref().map_or(&[][..], |guess| guess.expose().as_bytes()),
        solved,
        denied: live.access.is_denied(client, sender.now()),
        means: ClientCapabilities::BROWSER,
    };
    let outcome = services.attempts.ask(&live, attempt).await;
    let full = outcome.as_ref().err().and_then(Denied::full);
    let decision = match &outcome {
        Ok(attempt) => Decision::Go { attempt: attempt.clone(), settle_within: HOLD_LIFE.as_secs() },
        Err(Denied::Challenged { retry_after, .. }) => Decision::Challenge {
            captcha: asker.challenge(services, &live).await,
            retry_after: Some(whole_seconds(*retry_after)),
        },
        Err(Denied::Throttled { limit, retry_after, .. }) => {
            Decision::Wait { limit: limit.clone().into_owned(), retry_after: whole_seconds(*retry_after) }
        }
        Err(Denied::Busy { retry_after } | Denied::Unavailable { retry_after }) => {
            return Err(Problem::Unavailable { retry_after: *retry_after });
        }
        Err(Denied::AddressDenied) => return Err(Problem::Denied),
    };
    Ok(told(&decision, &live, full))
}

/// With the `RateLimit` fields, as a password at our own sign-in has them: a device's limit is told only if it decided,
/// and while there is room nobody is told how much.
fn told(decision: &Decision, live: &LiveSettings, full: Option<DeniedRule<'_>>) -> HttpResponse {
    let limits = &live.limits;
    let own = match full {
        Some(full) if full.limit == limits.guard_device.name() => &limits.guard_device,
        _ => &limits.guard_account,
    };
    let response = HttpResponse::Ok().json(decision);
    limited(response, &[own, &limits.guard_address, &limits.guard_network], full)
}

/// Say how an attempt ended
///
/// A failure counts, a success forgives the challenges that failures at the name had caused, and an attempt that was
/// abandoned counts nowhere. The same can be told again.
#[utoipa::path(
    post,
    path = "/api/v1/attempts/{attempt}",
    operation_id = "settleAttempt",
    tag = "guard",
    params(("attempt" = String, Path, description = "As it was given.")),
    request_body = OutcomeBody,
    responses((status = 200, description = "It is settled.", body = SettledBody)),
    extensions(("x-problems" = json!(["not-found", "told-otherwise", "lapsed"])))
)]
pub async fn settle(
    program: Program,
    attempt: Path<String>,
    body: UnreadBody<OutcomeBody>,
) -> Result<HttpResponse, Problem> {
    let realm = program.guard()?;
    let body = body.read().await?;
    let outcome = body.outcome.parse::<AttemptOutcome>().ok().filter(|outcome| TOLD.contains(outcome));
    let outcome = outcome.ok_or_else(|| Problem::wrong("outcome", "Send failure, success or abandoned."))?;
    let services = &program.services;
    let live = program.sender.settings(services);
    match services.attempts.settle(&live, realm, &attempt, outcome).await.map_err(out)? {
        AttemptSettled::Told { device } => Ok(HttpResponse::Ok().json(SettledBody { device })),
        AttemptSettled::ToldOtherwise => Err(Problem::ToldOtherwise),
        AttemptSettled::Lapsed => Err(Problem::Lapsed),
        AttemptSettled::Unknown => Err(Problem::NotFound),
    }
}

/// Forget the failures at a name
///
/// For who has shown in another way that the account is theirs: after a new password. Addresses and networks keep
/// theirs.
#[utoipa::path(
    post,
    path = "/api/v1/attempts/forgive",
    operation_id = "forgiveAttempts",
    tag = "guard",
    request_body = ForgiveBody,
    responses((status = 204, description = "Nothing counts at the name.")),
)]
pub async fn forgive(program: Program, body: UnreadBody<ForgiveBody>) -> Result<HttpResponse, Problem> {
    let realm = program.guard()?;
    let body = body.read().await?;
    let wrong = |error| Problem::wrong("login", format!("The login {error}."));
    let login = RealmLogin::parse(body.login.expose()).map_err(wrong)?;
    let services = &program.services;
    let live = program.sender.settings(services);
    let forgiven = services.attempts.forgive(&live, realm, &login).await;
    forgiven.map_err(|error| out(error.into()))?;
    Ok(HttpResponse::NoContent().finish())
}

fn parse(body: &AttemptBody, trusted: &TrustedProxies) -> Result<(RealmLogin, ClientAddress), Problem> {
    let mut errors = Vec::new();
    let mut wrong = |field: &'static str, message: String| errors.push(InputError::new(field, message));
    let login = RealmLogin::parse(body.login.expose());
    let login = login.map_err(|error| wrong("login", format!("The login {error}."))).ok();
    let client = parse_client(&body.address, trusted);
    let client = client.map_err(|message| wrong("address", message.to_owned())).ok();
    if body.guess.as_ref().is_some_and(|guess| !(1..=LONGEST_GUESS).contains(&guess.expose().len())) {
        wrong(
            "guess",
            format!("The guess must have 1 to {LONGEST_GUESS} bytes; send a keyed hash, or leave it out."),
        );
    }
    if !errors.is_empty() {
        return Err(Problem::InvalidInput { errors });
    }
    login.zip(client).ok_or(Problem::InvalidInput { errors })
}

/// Nothing is told while what it takes is out.
fn out(error: SettleError) -> Problem {
    match error {
        SettleError::Db(error) => error.into(),
        SettleError::Store(_) => Problem::Unavailable { retry_after: Duration::from_secs(1) },
    }
}
