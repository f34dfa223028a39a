//! What a client is told of somebody: the claims of an ID token and of userinfo (OpenID Connect Core 1.0, 2 and 5.4).

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::request::CLASSES;
use crate::accounts::{AccountId, GrantHolder, Session};
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

const BY_PASSKEY: [&str; 2] = ["pop", "user"];
const BY_CODE: &str = "otp";
const BY_BOTH: &str = "mfa";

impl Authentication {
    pub fn of(session: &Session) -> Self {
        let proved = session.proved;
        let first = match (session.verified_at > Micros(0), proved.newest()) {
            (true, _) => Some("pwd"),
            // In a session that has proved a factor besides, the first may have been a passkey.
            (false, None) => (!proved.begun_by_passkey()).then_some("sms"),
            (false, Some(_)) => None,
        };
        let mut methods: Vec<&str> = first.into_iter().collect();
        if proved.passkey.is_some() {
            methods.extend(BY_PASSKEY);
        }
        methods.extend(proved.code.map(|_| BY_CODE));
        methods.extend(proved.newest().map(|_| BY_BOTH));
        let of_factor = proved.newest().unwrap_or(Micros(0));
        Self { methods: classed(&methods), at: session.created_at.max(session.verified_at).max(of_factor) }
    }

    /// What a grant tells: what was proved when it was given, as far as that is still there.
    fn of_grant(holder: &GrantHolder) -> Self {
        let proved = holder.visitor.proved;
        let stays = |method: &&str| match *method {
            BY_CODE => proved.code.is_some(),
            method if BY_PASSKEY.contains(&method) => proved.passkey.is_some(),
            BY_BOTH => proved.newest().is_some(),
            _ => true,
        };
        let methods: Vec<&str> = holder.methods.split(' ').skip(1).filter(stays).collect();
        Self { methods: classed(&methods), at: holder.auth_time.min(holder.visitor.proved_at) }
    }
}

/// The class of methods, and then they.
fn classed(methods: &[&str]) -> String {
    let class = match methods {
        methods if methods.contains(&BY_PASSKEY[0]) => AppFactor::Passkey,
        methods if methods.contains(&BY_CODE) => AppFactor::Second,
        _ => AppFactor::None,
    };
    let class = CLASSES.into_iter().find(|(_, known)| *known == class).map_or("", |(name, _)| name);
    [&[class], methods].concat().join(" ")
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
    acr: String,
    amr: Vec<String>,
    sid: String,
    at_hash: String,
    #[serde(flatten)]
    claims: Claims<'a>,
}

impl<'a> IdToken<'a> {
    /// `access` is the access token beside which it is issued.
    pub fn of(
        holder: &'a GrantHolder,
        client: &OidcClient,
        (issuer, nonce): (&'a str, Option<&'a str>),
        access: &str,
        now: Micros,
    ) -> Self {
        let authentication = Authentication::of_grant(holder);
        let mut methods = authentication.methods.split(' ').map(str::to_owned);
        Self {
            iss: issuer,
            aud: &holder.client,
            exp: now.plus(ID_TOKEN_LASTS).seconds(),
            iat: now.seconds(),
            auth_time: authentication.at.seconds(),
            nonce,
            acr: methods.next().unwrap_or_default(),
            amr: methods.collect(),
            sid: holder.visitor.session.to_string(),
            at_hash: half_hash(access),
            claims: Claims::of(holder, client),
        }
    }
}

/// OpenID Connect Core, 3.1.3.6: the left half of the hash that the algorithm of the signature has, which is SHA-256 for each
/// that signs here.
fn half_hash(token: &str) -> String {
    let hash = Sha256::digest(token.as_bytes());
    URL_SAFE_NO_PAD.encode(&hash[..hash.len() / 2])
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
