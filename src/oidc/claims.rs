//! What a client is told of somebody: the claims of an ID token and of userinfo (OpenID Connect Core 1.0, 2 and 5.4).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::CLASSES;
use crate::accounts::{AccountId, Factor, GrantHolder, Session};
use crate::clock::Micros;
use crate::config::{AppFactor, OidcClient};

/// How long a client has to look at an ID token.
const ID_TOKEN_LASTS: Duration = Duration::from_secs(600);

/// What a session has proved, and when last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// The class, and then the methods of RFC 8176.
    pub methods: String,
    pub at: Micros,
}

impl Authentication {
    pub fn of(session: &Session) -> Self {
        let factor = session.factor.map(|(factor, _)| factor);
        // Of a session that has proved a factor besides, the first may have been a passkey.
        let first = match (session.verified_at > Micros(0), factor) {
            (true, _) => "pwd ",
            (false, None) => "sms ",
            (false, Some(_)) => "",
        };
        let (class, second) = match factor {
            None => (AppFactor::None, ""),
            Some(Factor::Totp | Factor::Recovery) => (AppFactor::Second, "otp mfa"),
            Some(Factor::Passkey) => (AppFactor::Passkey, "pop user mfa"),
        };
        let class = CLASSES.into_iter().find(|(_, known)| *known == class).map_or("", |(name, _)| name);
        let methods = format!("{class} {first}{second}").trim_end().to_owned();
        let of_factor = session.factor.map_or(Micros(0), |(_, at)| at);
        Self { methods, at: session.created_at.max(session.verified_at).max(of_factor) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claims<'a> {
    pub sub: AccountId,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_username: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email_verified: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<&'a str>>,
}

impl<'a> Claims<'a> {
    pub fn of(holder: &'a GrantHolder, client: &OidcClient) -> Self {
        let asked = |scope: &str| holder.scope.split(' ').any(|one| one == scope);
        let (visitor, profile) = (&holder.visitor, &holder.visitor.profile);
        let email = profile.email_text().filter(|_| asked("email"));
        let groups = || visitor.groups.names().filter(|group| client.tells(group)).collect();
        Self {
            sub: visitor.account,
            preferred_username: asked("profile").then(|| visitor.login.as_str()),
            name: profile.name_text().filter(|_| asked("profile")),
            email,
            email_verified: email.map(|_| profile.email_verified),
            groups: asked("groups").then(groups),
        }
    }
}

/// Times are in seconds.
#[derive(Debug, Serialize)]
pub struct IdToken<'a> {
    iss: &'a str,
    aud: &'a str,
    exp: i64,
    iat: i64,
    auth_time: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<&'a str>,
    acr: &'a str,
    amr: Vec<&'a str>,
    sid: String,
    #[serde(flatten)]
    claims: Claims<'a>,
}

impl<'a> IdToken<'a> {
    pub fn of(
        holder: &'a GrantHolder,
        client: &OidcClient,
        (issuer, nonce): (&'a str, Option<&'a str>),
        now: Micros,
    ) -> Self {
        let mut methods = holder.methods.split(' ');
        Self {
            iss: issuer,
            aud: &holder.client,
            exp: now.plus(ID_TOKEN_LASTS).seconds(),
            iat: now.seconds(),
            auth_time: holder.auth_time.seconds(),
            nonce,
            acr: methods.next().unwrap_or_default(),
            amr: methods.collect(),
            sid: holder.visitor.session.to_string(),
            claims: Claims::of(holder, client),
        }
    }
}

/// What is read of an ID token that comes back.
#[derive(Debug, Deserialize)]
pub struct IdTokenHint {
    /// A token that tells of a sign-out has none.
    #[serde(rename = "auth_time")]
    _auth_time: i64,
    pub sub: String,
    pub aud: String,
    pub sid: String,
}
