//! `POST /oauth/token`, `/oauth/revoke` and `/oauth/introspect`: what clients' servers call.

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use super::{WrongCall, about, admits, answered, authenticated, bad, not_now, refused, tell_address};
use crate::accounts::{Account, AccountId, GrantRefusal, IssuedTokens};
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::config::{App, LimitName, LiveSettings, OidcClient};
use crate::oidc::{Claims, IdToken, OAuthError, Parameters};
use crate::web::http::{Requester, Services, ServicesData, WebError, WebResult};

/// The fields of a form.
fn form(request: &HttpRequest, body: &Bytes) -> Result<Parameters, WebError> {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    match kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded"))
    {
        true => Ok(Parameters::parse(body)),
        false => {
            let error = OAuthError::invalid("Send the fields of a form: application/x-www-form-urlencoded.");
            Err(bad(error).into())
        }
    }
}

pub async fn issue(sender: Requester, body: Bytes, services: ServicesData) -> HttpResponse {
    answered(&sender, &services, async |live| answer(&sender, &body, &services, live).await).await
}

async fn answer(sender: &Requester, body: &Bytes, services: &Services, live: &LiveSettings) -> WebResult {
    let parameters = form(sender.request(), body)?;
    let (app, client) = authenticated(services, live, sender.request(), &parameters).await?;
    // A code is used up by its first use: nothing is begun that cannot be signed.
    if !services.token_keys.is_ready(services.token_keys.algorithm_of(client)) {
        return Ok(not_now());
    }
    let (now, id) = (services.audit.now(), client.client_id.as_str());
    let admits = |holder: &_| admits(app, holder, now);
    let (what, issued) = match grant(&parameters) {
        Ok(GrantType::Code { code, redirect_uri, verifier }) => {
            ("code", services.grants.exchange(code, (id, redirect_uri), verifier, admits).await?)
        }
        Ok(GrantType::Refresh(token)) => ("refresh-token", services.grants.refresh(token, id, admits).await?),
        Err(error) => return Ok(bad(error)),
    };
    match issued {
        Ok(mut issued) => {
            tell_address(services, client, &mut issued.holder).await?;
            if issued.is_late_repeat {
                let why = issued.noted.map(|refusal| EventRule::noted(REPEAT, &refusal));
                let account = issued.holder.visitor.account;
                tell_reuse(sender, services, app, (account, Outcome::Ok, why)).await?;
            }
            Ok(tokens(services, client, &issued))
        }
        Err(refusal) => denied(sender, services, app, (what, refusal)).await,
    }
}

const REPEAT: &str = LimitName::OidcRepeat.as_str();

enum GrantType<'a> {
    Code { code: &'a str, redirect_uri: &'a str, verifier: Option<&'a str> },
    Refresh(&'a str),
}

const USED: OAuthError = OAuthError::new(
    "invalid_grant",
    "It is unknown, expired, used or revoked, or was not given to this client for this redirect_uri and code_verifier.",
);

fn grant(parameters: &Parameters) -> Result<GrantType<'_>, OAuthError> {
    match parameters.get("grant_type")? {
        Some("authorization_code") => {
            let code = parameters.get("code")?.ok_or(OAuthError::invalid("code is missing."))?;
            let redirect_uri = parameters.get("redirect_uri")?;
            let redirect_uri = redirect_uri.ok_or(OAuthError::invalid("redirect_uri is missing."))?;
            let verifier = parameters.get("code_verifier")?;
            Ok(GrantType::Code { code, redirect_uri, verifier })
        }
        Some("refresh_token") => {
            let token = parameters.get("refresh_token")?;
            Ok(GrantType::Refresh(token.ok_or(OAuthError::invalid("refresh_token is missing."))?))
        }
        None => Err(OAuthError::invalid("grant_type is missing.")),
        Some(_) => Err(OAuthError::new(
            "unsupported_grant_type",
            "grant_type has to be authorization_code or refresh_token.",
        )),
    }
}

fn tokens(services: &Services, client: &OidcClient, issued: &IssuedTokens) -> HttpResponse {
    let now = services.audit.now();
    let IssuedTokens { holder, access, refresh, nonce, .. } = issued;
    let access = access.expose();
    let id_token = IdToken::of(holder, client, (&services.public_url, nonce.as_deref()), &access, now);
    let algorithm = services.token_keys.algorithm_of(client);
    let Ok(id_token) = services.token_keys.sign(algorithm, &id_token, "JWT") else { return not_now() };
    HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(json!({
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": services.grants.access_lasts().as_secs(),
        "refresh_token": refresh.as_str(),
        "scope": holder.scope,
        "id_token": id_token,
    }))
}

async fn denied(
    sender: &Requester,
    services: &Services,
    app: &App,
    (what, refusal): (&'static str, GrantRefusal),
) -> WebResult {
    let (account, why) = match refusal {
        GrantRefusal::Unknown => return Ok(about(WrongCall { what, code: USED.code }, bad(USED))),
        GrantRefusal::Invalid => return Ok(bad(USED)),
        GrantRefusal::NotAdmitted => {
            return Ok(bad(OAuthError::new(
                "invalid_grant",
                "The account may not use this client any more, or has to prove more: send it to the authorization endpoint.",
            )));
        }
        GrantRefusal::Copied(account, refusal) => (account, refusal),
    };
    let why = why.map(|refusal| EventRule::refused(REPEAT, &refusal));
    tell_reuse(sender, services, app, (account, Outcome::Refused, why)).await?;
    Ok(bad(USED))
}

/// Records that a token came again: from a copy, or long after it was answered first.
async fn tell_reuse(
    sender: &Requester,
    services: &Services,
    app: &App,
    (account, outcome, why): (AccountId, Outcome, Option<EventRule<'_>>),
) -> Result<(), WebError> {
    let account = services.accounts.by_id(account).await?;
    let address = sender.client.subject();
    services.audit.record(AuditEvent {
        name: Some(&app.name),
        why,
        account: account.as_ref().map(Account::recorded),
        address: Some(EventSubject::Address(address.as_ref())),
        ..AuditEvent::new(services.audit.now(), Action::TokenReuse, outcome)
    });
    Ok(())
}

/// RFC 7009. The whole grant ends: its other tokens, too.
pub async fn revoke(sender: Requester, body: Bytes, services: ServicesData) -> HttpResponse {
    answered(&sender, &services, async |live| {
        let (client, token) = asked(&services, sender.request(), &body, live).await?;
        services.grants.revoke(&token, &client.client_id).await?;
        // RFC 7009 asks for no body, and some clients read one.
        let answer = HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(json!({}));
        Ok(mark_unknown(&services, &token, answer))
    })
    .await
}

/// One that was never given out counts.
pub(super) fn mark_unknown(services: &Services, token: &str, answer: HttpResponse) -> HttpResponse {
    if services.grants.gave_out(token) {
        return answer;
    }
    about(WrongCall { what: "access-token", code: "invalid_token" }, answer)
}

/// RFC 7662, of access tokens that the client itself was given.
pub async fn introspect(sender: Requester, body: Bytes, services: ServicesData) -> HttpResponse {
    let request = sender.request();
    answered(&sender, &services, async |live| introspected(request, &body, &services, live).await).await
}

async fn introspected(
    request: &HttpRequest,
    body: &Bytes,
    services: &Services,
    live: &LiveSettings,
) -> WebResult {
    let (client, token) = asked(services, request, body, live).await?;
    if client.is_public() {
        let error = OAuthError::new("invalid_client", "A client without a secret may not ask.");
        return Ok(refused(StatusCode::UNAUTHORIZED, error));
    }
    let found = services.grants.holder(&token).await?;
    let mut told = json!({ "active": false });
    if let Some((mut holder, expires_at)) = found
        && holder.client == client.client_id
        && live
            .apps
            .client(&client.client_id)
            .is_some_and(|(app, _)| admits(app, &holder, services.audit.now()))
    {
        tell_address(services, client, &mut holder).await?;
        told = json!(Claims::of(&holder, client));
        for (name, value) in [
            ("active", json!(true)),
            ("scope", json!(holder.scope)),
            ("client_id", json!(holder.client)),
            ("username", json!(holder.visitor.login.as_str())),
            ("token_type", json!("Bearer")),
            ("exp", json!(expires_at.seconds())),
            ("iss", json!(services.public_url)),
            ("aud", json!(holder.client)),
        ] {
            told[name] = value;
        }
    }
    let answer = HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(told);
    Ok(mark_unknown(services, &token, answer))
}

/// The client that asks, and the token that it asks about.
async fn asked<'a>(
    services: &Services,
    request: &HttpRequest,
    body: &Bytes,
    live: &'a LiveSettings,
) -> Result<(&'a OidcClient, String), WebError> {
    let parameters = form(request, body)?;
    let (_, client) = authenticated(services, live, request, &parameters).await?;
    match parameters.get("token") {
        Ok(Some(token)) => Ok((client, token.to_owned())),
        Ok(None) => Err(bad(OAuthError::invalid("token is missing.")).into()),
        Err(error) => Err(bad(error).into()),
    }
}
