//! `/wforce/`: weakforced's dialect, in which a mail server asks before it looks at a password, and reports how it
//! ended. Dovecot speaks it by itself (`src/auth/auth-policy.c`).
//!
//! Unless `auth_policy_reject_on_fail` is set, Dovecot takes every answer but 200 for a yes. So everything that a client
//! of the mail server can cause, such as a name that is none, is answered by 200 and −1.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use url::form_urlencoded;

use crate::accounts::{Realm, RealmLogin};
use crate::config::LiveSettings;
use crate::login::{AttemptOutcome, PolicyAttempt};
use crate::web::http::problem::log_failure;
use crate::web::http::{ClientAddress, Locale, Problem, Requester, SecretField, Services, UnreadBody};
use crate::web::programs::Program;

/// Bytes of a body. A name that comes by SASL has at most 8 KiB (Dovecot's `LOGIN_MAX_AUTH_BUF_SIZE`), and JSON may
/// need six characters for a byte.
const LONGEST: usize = 64 * 1024;

/// What Dovecot sends by default, of which an attempt is made. Other fields are passed over.
#[derive(Deserialize)]
pub struct PolicyFields {
    login: SecretField,
    /// The client's address. Empty where the mail server asks for itself.
    remote: Option<SecretField>,
    pwhash: Option<SecretField>,
    /// The session; None with other services that ask Dovecot, such as Postfix.
    session_id: Option<SecretField>,
    success: Option<bool>,
    policy_reject: Option<bool>,
}

#[derive(Serialize)]
struct PolicyAnswer {
    /// 0, or −1 to refuse it.
    status: i8,
    /// Dovecot shows it to the user.
    msg: String,
    r_attrs: NoAttributes,
}

#[derive(Serialize)]
struct NoAttributes {}

enum PolicyCommand {
    Allow,
    Report,
    /// What monitors of weakforced ask.
    Ping,
}

/// What weakforced answers to everything but a question.
#[derive(Serialize)]
struct Acknowledgement {
    status: &'static str,
}

pub async fn take(
    mail_server: Result<Program, Problem>,
    body: UnreadBody<PolicyFields, LONGEST>,
) -> HttpResponse {
    // A mail server reads no pages.
    let answer = async { answer(&mail_server?, body).await };
    answer.await.unwrap_or_else(|problem| problem.respond())
}

async fn answer(
    mail_server: &Program,
    body: UnreadBody<PolicyFields, LONGEST>,
) -> Result<HttpResponse, Problem> {
    let Program { sender, services, .. } = mail_server;
    let realm = mail_server.guard()?;
    let (command, locale) = parse_query(sender.request().query_string());
    let fields = body.read().await.ok();
    let asked = fields.as_ref().and_then(|fields| parse(fields, realm, services, sender));
    match (command.ok_or_else(unknown_command)?, asked) {
        (PolicyCommand::Allow, Some((live, attempt))) => match services.policy.allow(&live, &attempt).await {
            Ok(true) => Ok(accept()),
            Ok(false) => Ok(refuse(locale, "mail.refused")),
            Err(error) => {
                log_failure(&error);
                Ok(refuse(locale, "mail.out"))
            }
        },
        (PolicyCommand::Allow, None) => Ok(refuse(locale, "mail.refused")),
        (PolicyCommand::Report, asked) => {
            let report = fields.as_ref().and_then(outcome);
            if let (Some((live, attempt)), Some(report)) = (asked, report)
                && let Err(error) = services.policy.report(&live, attempt, report).await
            {
                // The slot lapses, which counts as a failure.
                log_failure(&error);
            }
            Ok(acknowledge())
        }
        (PolicyCommand::Ping, _) => Ok(acknowledge()),
    }
}

/// What a report says; None if it says nothing.
fn outcome(fields: &PolicyFields) -> Option<AttemptOutcome> {
    match (fields.policy_reject, fields.success?) {
        (Some(true), _) => Some(AttemptOutcome::Abandoned),
        (_, true) => Some(AttemptOutcome::Success),
        (_, false) => Some(AttemptOutcome::Failure),
    }
}

/// Reads an attempt; None if the name is none.
fn parse(
    fields: &PolicyFields,
    realm: &Realm,
    services: &Services,
    mail_server: &Requester,
) -> Option<(Arc<LiveSettings>, PolicyAttempt)> {
    let text = |field: &Option<SecretField>| field.as_ref().map(|field| field.expose().to_owned());
    let remote = fields.remote.as_ref().and_then(|remote| remote.expose().parse::<IpAddr>().ok());
    let client = remote.map(|remote| ClientAddress::at(remote, &mail_server.edge.trusted));
    let live = match client {
        Some(client) => mail_server.live_for(services, client),
        None => mail_server.settings(services),
    };
    let denied = client.is_some_and(|client| live.access.is_denied(client, mail_server.now()));
    let attempt = PolicyAttempt {
        realm: realm.clone(),
        login: RealmLogin::parse(fields.login.expose()).ok()?,
        origin: client.map(ClientAddress::origin),
        session: text(&fields.session_id).unwrap_or_default(),
        password: text(&fields.pwhash).unwrap_or_default(),
        denied,
    };
    Some((live, attempt))
}

/// The command, and the language of messages (`?lang=zh-CN&`): mail clients do not say theirs.
fn parse_query(query: &str) -> (Option<PolicyCommand>, Locale) {
    let (mut command, mut locale) = (None, Locale::default());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match (&*name, &*value) {
            ("command", "allow") => command = Some(PolicyCommand::Allow),
            ("command", "report") => command = Some(PolicyCommand::Report),
            ("command", "ping") => command = Some(PolicyCommand::Ping),
            ("lang", code) => locale = Locale::named(code).unwrap_or(locale),
            _ => {}
        }
    }
    (command, locale)
}

fn unknown_command() -> Problem {
    Problem::wrong("command", "Send allow, report or ping.")
}

fn acknowledge() -> HttpResponse {
    HttpResponse::Ok().json(Acknowledgement { status: "ok" })
}

fn accept() -> HttpResponse {
    respond(0, String::new())
}

fn refuse(locale: Locale, why: &'static str) -> HttpResponse {
    respond(-1, locale.t(why).into_owned())
}

fn respond(status: i8, msg: String) -> HttpResponse {
    HttpResponse::Ok().json(PolicyAnswer { status, msg, r_attrs: NoAttributes {} })
}
