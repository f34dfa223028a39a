//! `/api/v1/relay`: identity providers have the codes sent that they make themselves.

use std::net::{IpAddr, SocketAddr};

use actix_web::http::header::RETRY_AFTER;
use actix_web::web::{Bytes, Path};
use actix_web::{Error, HttpRequest, HttpResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::codes::{RequestedMessage, SendOutcome};
use crate::config::LiveSettings;
use crate::message::{MessageCode, MessagePurpose};
use crate::sms::Phone;
use crate::web::http::describe::{self, NUMBER};
use crate::web::http::extract::parse_phone;
use crate::web::http::{
    ClientAddress, Problem, Requester, SecretField, Services, ServicesData, UnreadBody, no_content_if,
};
use crate::web::programs::Program;
use crate::web::programs::verifications::language;
use crate::webhooks::HookCall;

/// Supabase sends all that it knows of the user.
pub const LONGEST_HOOK: usize = 128 * 1024;

/// The body as the connector sends it. Anything else in it is passed over.
#[derive(Deserialize, ToSchema)]
#[schema(as = LogtoMessage, example = json!({ "to": "8613800138000", "payload": { "code": "012345" } }))]
struct LogtoBody {
    /// The number, with its country code.
    #[schema(value_type = String)]
    to: SecretField,
    payload: LogtoPayload,
    /// The address of the person who signs in, if Logto knows it.
    #[schema(value_type = Option<String>)]
    ip: Option<SecretField>,
}

#[derive(Deserialize, ToSchema)]
struct LogtoPayload {
    /// 4 to 10 letters and digits.
    #[schema(value_type = String)]
    code: Option<SecretField>,
    /// The language of the message: a tag as en or zh-CN.
    locale: Option<String>,
}

/// The body as Supabase Auth sends it. Anything else in it is passed over.
#[derive(Deserialize, ToSchema)]
#[schema(as = SupabaseHook, example = json!({ "user": { "phone": "8613800138000" }, "sms": { "otp": "012345" } }))]
struct SupabaseBody {
    user: SupabaseUser,
    sms: SupabaseSms,
    metadata: Option<SupabaseMetadata>,
}

#[derive(Deserialize, ToSchema)]
struct SupabaseUser {
    /// The number, with its country code.
    #[schema(value_type = Option<String>)]
    phone: Option<SecretField>,
}

#[derive(Deserialize, ToSchema)]
struct SupabaseSms {
    /// 4 to 10 letters and digits.
    #[schema(value_type = String)]
    otp: SecretField,
    /// The number to send to, if it is not yet the user's.
    #[schema(value_type = Option<String>)]
    phone: Option<SecretField>,
}

#[derive(Deserialize, ToSchema)]
struct SupabaseMetadata {
    #[schema(value_type = Option<String>)]
    ip_address: Option<SecretField>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Relayed, example = json!({ "id": "b19bb51d57b40116de95f7448daf9aef" }))]
struct RelayedBody {
    /// To tell the outcome of.
    id: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RelayOutcome, example = json!({ "outcome": "used" }))]
pub struct RelayOutcomeBody {
    /// Whether somebody has entered the code.
    #[schema(schema_with = outcomes)]
    outcome: String,
}

/// The plus signs of keyboards.
const PLUS: [char; 3] = ['+', '＋', '﹢'];

const USED: &str = "used";
const FAILED: &str = "failed";

fn outcomes() -> utoipa::openapi::schema::ObjectBuilder {
    describe::one_of([USED, FAILED])
}

struct RelayedCode<'a> {
    number: &'a str,
    code: Option<MessageCode>,
    /// The field of the code.
    field: &'static str,
    ip: Option<&'a str>,
    locale: Option<&'a str>,
}

/// Send a code of Logto's
///
/// For its HTTP SMS connector. The same body within ten minutes is one message. Refusals never say when to come back.
#[utoipa::path(
    post,
    path = "/api/v1/relay/logto/{name}",
    operation_id = "relayLogto",
    tag = "relay",
    params(("name" = String, Path, description = "As in the token's scope.")),
    request_body = LogtoBody,
    responses((status = 200, description = "Sent, or perhaps sent.", body = RelayedBody)),
    extensions(
        ("x-never-says-when" = json!(true)),
        ("x-problems" = json!([NUMBER, "denied"]))
    )
)]
pub async fn logto(
    program: Result<Program, Problem>,
    name: Path<String>,
    body: Result<Bytes, Error>,
) -> HttpResponse {
    let relayed = async {
        let program = program?;
        if program.relay()?.as_str() != *name {
            return Err(Problem::InsufficientScope);
        }
        let Program { sender, services, .. } = &program;
        let body = body.map_err(|_| Problem::PayloadTooLarge)?;
        let said: LogtoBody = read(&body)?;
        let code = said.payload.code.as_ref().and_then(|code| MessageCode::relayed(code.expose()));
        let said = RelayedCode {
            number: said.to.expose(),
            code,
            field: "code",
            ip: said.ip.as_ref().map(SecretField::expose),
            locale: said.payload.locale.as_deref(),
        };
        forward(services, sender, &name, &body, said).await
    };
    never_saying_when(relayed.await)
}

/// Send a code of Supabase's
///
/// For its Send SMS hook, signed as Standard Webhooks are with a secret of `[relay.NAME]`. The same body within ten
/// minutes is one message, whatever its webhook-id. Answered within four seconds. Refusals never say when to come back:
/// Supabase would do so at once.
#[utoipa::path(
    post,
    path = "/api/v1/relay/supabase/{name}",
    operation_id = "relaySupabase",
    tag = "relay",
    params(
        ("name" = String, Path, description = "As in the configuration."),
        ("webhook-id" = Option<String>, Header),
        ("webhook-timestamp" = Option<String>, Header, description = "Seconds since 1970, at most five minutes from now."),
        ("webhook-signature" = Option<String>, Header, description = "v1 and an HMAC-SHA256; one or several.")
    ),
    request_body = SupabaseBody,
    responses((status = 200, description = "Sent, or perhaps sent.", body = RelayedBody)),
    extensions(
        ("x-never-says-when" = json!(true)),
        ("x-problems" = json!([NUMBER, "invalid-signature", "denied", "throttled", "unavailable"]))
    )
)]
pub async fn supabase(
    sender: Requester,
    name: Path<String>,
    body: Result<Bytes, Error>,
    services: ServicesData,
) -> HttpResponse {
    let relayed = async {
        let body = body.map_err(|_| Problem::PayloadTooLarge)?;
        let [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .map(|name| lines(sender.request(), name));
        let call = HookCall { id: &id, timestamp: &timestamp, signatures: &signatures, body: &body };
        // A relay that is not configured is answered like one whose secret is another.
        if !services.hooks.admits(&name, &call, sender.now()) {
            return Err(Problem::InvalidSignature);
        }
        let said: SupabaseBody = read(&body)?;
        let phone = |phone: &Option<SecretField>| {
            phone.as_ref().map(|phone| phone.expose().to_owned()).filter(|phone| !phone.is_empty())
        };
        let number = phone(&said.sms.phone).or_else(|| phone(&said.user.phone)).unwrap_or_default();
        let ip = said.metadata.as_ref().and_then(|metadata| metadata.ip_address.as_ref());
        let said = RelayedCode {
            number: &number,
            code: MessageCode::relayed(said.sms.otp.expose()),
            field: "otp",
            ip: ip.map(SecretField::expose),
            locale: None,
        };
        forward(&services, &sender, &name, &body, said).await
    };
    never_saying_when(relayed.await)
}

/// Say whether a relayed code was entered
///
/// So that the brake on a prefix can judge by it. Telling it again changes nothing. An id is 32 hexadecimal digits, so
/// that no other call of the relay has such a path.
#[utoipa::path(
    post,
    path = "/api/v1/relay/{id}/outcome",
    operation_id = "tellRelayOutcome",
    tag = "relay",
    params(("id" = String, Path, description = "As it was given.", pattern = "^[0-9a-f]{32}$")),
    request_body = RelayOutcomeBody,
    responses((status = 204, description = "Noted.")),
    extensions(("x-problems" = json!(["not-found"])))
)]
pub async fn outcome(
    program: Program,
    id: Path<String>,
    body: UnreadBody<RelayOutcomeBody>,
) -> Result<HttpResponse, Problem> {
    let relay = program.relay()?;
    let body = body.read().await?;
    let used = match body.outcome.as_str() {
        USED => true,
        FAILED => false,
        _ => return Err(Problem::wrong("outcome", "Send used or failed.")),
    };
    let relay = MessagePurpose::relayed(relay.as_str()).ok_or(Problem::NotFound)?;
    no_content_if(program.services.codes.relay_outcome(&relay, &id, used).await?, Problem::NotFound)
}

/// All lines of a header as one list (RFC 9110, 5.3), so that no line of several is believed alone.
fn lines(request: &HttpRequest, name: &str) -> String {
    let lines = request.headers().get_all(name).map(|line| line.to_str().unwrap_or_default());
    lines.collect::<Vec<_>>().join(",")
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            Problem::wrong("body", "A field is missing, or has another type.")
        }
        _ => Problem::MalformedJson,
    })
}

async fn forward(
    services: &Services,
    sender: &Requester,
    name: &str,
    body: &[u8],
    said: RelayedCode<'_>,
) -> Result<HttpResponse, Problem> {
    let relay = MessagePurpose::relayed(name).ok_or(Problem::NotFound)?;
    let client = said.ip.and_then(stated).map(|ip| ClientAddress::at(ip, &sender.edge.trusted));
    let live = match client {
        Some(client) => sender.live_for(services, client),
        None => sender.settings(services),
    };
    if let Some(client) = client.filter(|client| live.access.is_denied(*client, sender.now())) {
        services.codes.record_denied(&relay, [client.subject().as_ref(), client.network().as_ref()]);
        return Err(Problem::Denied);
    }
    let wrong = || Problem::wrong(said.field, "It must be 4 to 10 of 0-9, A-Z and a-z.");
    let code = said.code.as_ref().ok_or_else(wrong)?;
    let phone = stored_number(&live, said.number)?;
    // What cannot be a language is none that we have.
    let (locale, language) = language(said.locale).unwrap_or_default();
    let message = RequestedMessage {
        code: Some(code.clone()),
        origin: client.map(ClientAddress::origin),
        once: Some(blake3::hash(body).to_hex().to_string()),
        language: language.map(str::to_owned),
        ..RequestedMessage::new(phone, relay, locale.code())
    };
    match services.codes.relay(&live, message).await? {
        SendOutcome::Sent(sent) => {
            let id = sent.id.ok_or(Problem::Internal)?.to_string();
            Ok(HttpResponse::Ok().json(RelayedBody { id }))
        }
        SendOutcome::NotSent => Err(Problem::NotSent),
        // The person who waits for the code sees pages of the provider, which show no challenge of ours.
        SendOutcome::Denied(denied) => Err(Problem::not_compared(&denied)),
    }
}

/// With its country code, and perhaps without the plus before it: never one of our own region, however it is written.
fn stored_number(live: &LiveSettings, text: &str) -> Result<Phone, Problem> {
    if text.contains(PLUS) {
        return Ok(parse_phone(live, text)?);
    }
    let bare = text.trim();
    Ok(parse_phone(live, &format!("+{}", bare.strip_prefix("00").unwrap_or(bare)))?)
}

/// An address, perhaps with a port. What is none is passed over: the provider's user has not written it.
fn stated(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// Supabase tries again at once if an answer says when to try again.
fn never_saying_when(relayed: Result<HttpResponse, Problem>) -> HttpResponse {
    let mut response = relayed.unwrap_or_else(|problem| problem.respond());
    response.headers_mut().remove(RETRY_AFTER);
    response
}
