//! The authorization request (OpenID Connect Core 1.0, 3.1.2.1; RFC 7636): what a client asks the browser of somebody for.

use std::time::Duration;

use url::form_urlencoded;

use crate::clock::Micros;
use crate::config::{AppFactor, OidcClient, Pkce};

/// The parameters of a request, as a query or a form has them.
#[derive(Debug, Default)]
pub struct Parameters(Vec<(String, String)>);

/// An error of OAuth 2.0 (RFC 6749, 4.1.2.1 and 5.2), and what is wrong for the client's developer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OAuthError {
    pub code: &'static str,
    pub description: &'static str,
}

impl OAuthError {
    pub const fn new(code: &'static str, description: &'static str) -> Self {
        Self { code, description }
    }

    pub const fn invalid(description: &'static str) -> Self {
        Self::new("invalid_request", description)
    }
}

pub const TWICE: OAuthError = OAuthError::invalid("A parameter was sent twice; send each once.");
/// Some clients cannot, and others have to be told to.
pub const NO_PKCE: OAuthError = OAuthError::invalid(
    "code_challenge is missing: have the client use PKCE with S256, or, if it has a secret, set pkce to optional in its [apps.oidc].",
);
const UNFIT: OAuthError = OAuthError::invalid("A parameter has the character U+0000 in it; leave that out.");

impl Parameters {
    pub fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().collect())
    }

    /// Returns a parameter; None if it is missing or empty, which is the same (RFC 6749, 3.1).
    pub fn get(&self, name: &str) -> Result<Option<&str>, OAuthError> {
        let mut values = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(TWICE),
            // No database stores it as text, and nothing that a client may send has it.
            (Some(value), None) if value.contains('\0') => Err(UNFIT),
            (first, None) => Ok(first.filter(|value| !value.is_empty())),
        }
    }

    /// Writes the request again, without what `names` name, and with `more`.
    pub fn without(&self, names: &[&str], more: Option<(&str, &str)>) -> String {
        let others = self.0.iter().filter(|(known, _)| !names.contains(&known.as_str()));
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(others).extend_pairs(more);
        query.finish()
    }
}

/// What a grant tells of its account, in this order.
pub const SCOPES: [&str; 5] = ["openid", "profile", "email", "groups", "offline_access"];

/// The names of [`AppFactor`] as classes of authentication, the weakest first.
pub const CLASSES: [(&str, AppFactor); 3] =
    [("first", AppFactor::None), ("second", AppFactor::Second), ("passkey", AppFactor::Passkey)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prompt {
    /// Nothing may be shown.
    pub none: bool,
    /// The person who is signed in proves it again.
    pub login: bool,
    pub consent: bool,
    /// Somebody else may sign in.
    pub select_account: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct AuthorizationRequest {
    /// Known ones, in the order of [`SCOPES`].
    pub scope: String,
    pub nonce: Option<String>,
    /// The SHA-256 of the verifier in base64url; empty without one.
    pub challenge: String,
    pub prompt: Prompt,
    /// How old the sign-in may be.
    pub max_age: Option<Duration>,
    /// The earliest sign-in that is recent enough, of a request that led to the sign-in before.
    pub proved_since: Option<Micros>,
    /// What the client would like to have proved.
    pub class: AppFactor,
    pub login_hint: Option<String>,
    pub id_token_hint: Option<String>,
}

/// Ours: a request that has led to a sign-in leads there again only if none has followed.
pub const PROVED_SINCE: &str = "proved_since";

pub(super) const FORM_POST: &str = "form_post";
const LONGEST_NONCE: usize = 512;
/// What a client has to repeat, or store.
const LONGEST_STATE: usize = 2_048;

impl AuthorizationRequest {
    /// Reads the request of a client that is known, for one of its redirect URIs: what is wrong is told to it there.
    pub fn read(parameters: &Parameters, client: &OidcClient) -> Result<Self, OAuthError> {
        for (name, code) in [
            ("request", "request_not_supported"),
            ("request_uri", "request_uri_not_supported"),
            ("registration", "registration_not_supported"),
        ] {
            if parameters.get(name)?.is_some() {
                return Err(OAuthError::new(code, "Send each parameter in the query."));
            }
        }
        match parameters.get("response_type")? {
            Some("code") => {}
            None => return Err(OAuthError::invalid("response_type is missing; send code.")),
            Some(_) => {
                return Err(OAuthError::new("unsupported_response_type", "response_type has to be code."));
            }
        }
        if parameters.get("response_mode")?.is_some_and(|mode| !["query", FORM_POST].contains(&mode)) {
            return Err(OAuthError::invalid("response_mode has to be query or form_post; leave it out."));
        }
        if parameters.get("state")?.is_some_and(|state| state.len() > LONGEST_STATE) {
            return Err(OAuthError::invalid("state is longer than 2048 bytes."));
        }
        let nonce = parameters.get("nonce")?;
        if nonce.is_some_and(|nonce| nonce.len() > LONGEST_NONCE) {
            return Err(OAuthError::invalid("nonce is longer than 512 bytes."));
        }
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Self {
            scope: scope(parameters.get("scope")?)?,
            nonce: owned(nonce),
            challenge: challenge(parameters, client.pkce)?,
            prompt: prompt(parameters.get("prompt")?.unwrap_or_default())?,
            max_age: max_age(parameters.get("max_age")?)?,
            proved_since: parameters.get(PROVED_SINCE)?.and_then(|at| at.parse().ok()).map(Micros),
            class: class(parameters.get("acr_values")?.unwrap_or_default()),
            // One that can be no name is passed over, as any other such hint is.
            login_hint: match parameters.get("login_hint") {
                Err(error) if error == UNFIT => None,
                hint => owned(hint?),
            },
            id_token_hint: owned(parameters.get("id_token_hint")?),
        })
    }

    /// The earliest time of a proof of who is signed in that is recent enough.
    pub fn proof_since(&self, now: Micros) -> Option<Micros> {
        let by_age = self.max_age.map(|age| now.minus(age));
        // What a sign-in has answered is not asked for again.
        let asked = if self.prompt.login || by_age.is_some() { Some(by_age.unwrap_or(now)) } else { None };
        match (asked, self.proved_since) {
            (Some(asked), Some(since)) => Some(asked.min(since)),
            (asked, _) => asked,
        }
    }
}

/// Unknown scopes are passed over (OpenID Connect Core 1.0, 3.1.2.1).
fn scope(text: Option<&str>) -> Result<String, OAuthError> {
    let asked: Vec<&str> = text.unwrap_or_default().split(' ').collect();
    if !asked.contains(&"openid") {
        return Err(OAuthError::new("invalid_scope", "scope has to have openid in it."));
    }
    Ok(SCOPES.into_iter().filter(|scope| asked.contains(scope)).collect::<Vec<_>>().join(" "))
}

fn challenge(parameters: &Parameters, pkce: Pkce) -> Result<String, OAuthError> {
    let (challenge, method) = (parameters.get("code_challenge")?, parameters.get("code_challenge_method")?);
    let fits = |text: &str| {
        text.len() == 43 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    match (challenge, method) {
        (Some(challenge), Some("S256")) if fits(challenge) => Ok(challenge.to_owned()),
        (Some(_), Some("S256")) => {
            Err(OAuthError::invalid("code_challenge has to be 43 letters of base64url."))
        }
        (Some(_), _) => Err(OAuthError::invalid("code_challenge_method has to be S256.")),
        (None, Some(_)) => Err(OAuthError::invalid("code_challenge is missing.")),
        (None, None) if pkce == Pkce::Required => Err(NO_PKCE),
        (None, None) => Ok(String::new()),
    }
}

fn prompt(text: &str) -> Result<Prompt, OAuthError> {
    let mut prompt = Prompt::default();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match word {
            "none" => prompt.none = true,
            "login" => prompt.login = true,
            "consent" => prompt.consent = true,
            "select_account" => prompt.select_account = true,
            _ => {
                return Err(OAuthError::invalid(
                    "prompt has to be none, or of login, consent and select_account.",
                ));
            }
        }
    }
    let Prompt { none, login, consent, select_account } = prompt;
    match none && (login || consent || select_account) {
        true => Err(OAuthError::invalid("prompt none has to stand alone.")),
        false => Ok(prompt),
    }
}

fn max_age(text: Option<&str>) -> Result<Option<Duration>, OAuthError> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Some(Duration::from_secs(seconds.into()))),
        Err(_) => Err(OAuthError::invalid("max_age has to be a number of seconds.")),
    }
}

/// The first that is known, as the client prefers it.
fn class(text: &str) -> AppFactor {
    let known = |word: &str| CLASSES.into_iter().find(|(name, _)| *name == word);
    text.split(' ').find_map(known).map_or(AppFactor::None, |(_, factor)| factor)
}

/// A redirect URI with the answer in its query.
pub fn redirect_with(redirect_uri: &str, answer: &[(&str, &str)]) -> String {
    let joint = if redirect_uri.contains('?') { '&' } else { '?' };
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(answer).finish();
    format!("{redirect_uri}{joint}{query}")
}
