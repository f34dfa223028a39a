//! `[apps.oidc]`: an application as a client of OpenID Connect: its secret, the addresses to which codes are sent, and what
//! it is told.

use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use serde::{Serialize, Serializer};
use strum::IntoStaticStr;
use subtle::ConstantTimeEq;
use url::Url;
use utoipa::ToSchema;

use super::document::ValueNode;
use super::limits::is_custom_name;
use super::oidc::{ALGORITHMS, SigningAlgorithm};
use super::reader::{ParseResult, SectionReader};
use super::values::{SecretError, SecretRef, if_any, secret_ref, text, word, yes_or_no};
use super::webhooks;

// The comments of this type are part of the API's description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OidcClient {
    /// The name of the application, if left out.
    #[schema(required = false, min_length = 1, max_length = 64)]
    pub client_id: String,
    /// Where the secret is read from: `env:NAME`, `file:PATH` or, kept in the database, `stored`. Left out: a public client.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub secret: Option<ClientSecret>,
    /// Compared byte by byte; only the port of `http://127.0.0.1` and `http://[::1]` may be another.
    #[schema(value_type = Vec<String>, min_items = 1)]
    pub redirect_uris: Vec<RedirectUri>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, value_type = Vec<String>)]
    pub post_logout_redirect_uris: Vec<RedirectUri>,
    /// Is told when somebody signs out.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    #[schema(value_type = Option<String>)]
    pub backchannel_logout_uri: Option<Url>,
    /// It may be at an address that only this network reaches, and without TLS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub allow_private: bool,
    /// `optional`: for confidential clients that cannot.
    #[serde(skip_serializing_if = "Pkce::is_required")]
    #[schema(required = false)]
    pub pkce: Pkce,
    /// The algorithm of its tokens, if it takes no other than this one. Otherwise that of `[oidc]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "RS256")]
    pub signing: Option<SigningAlgorithm>,
    /// `once`: people are asked at their first sign-in.
    #[serde(skip_serializing_if = "Consent::is_none")]
    #[schema(required = false)]
    pub consent: Consent,
    /// Which address of a visitor it is told: that of the profile, or that which the owner has confirmed.
    #[serde(skip_serializing_if = "EmailSource::is_admin")]
    #[schema(required = false)]
    pub email: EmailSource,
    /// Which groups of a visitor it is told: names, `staff-*`, or `*` for all, which it is if left out.
    #[serde(skip_serializing_if = "are_all_groups")]
    #[schema(required = false, value_type = Vec<String>)]
    pub groups: Vec<GroupPattern>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, IntoStaticStr, ToSchema)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum Pkce {
    #[default]
    Required,
    Optional,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, IntoStaticStr, ToSchema)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum Consent {
    #[default]
    None,
    Once,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, IntoStaticStr, ToSchema)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum EmailSource {
    /// What administrators have set.
    #[default]
    Admin,
    /// What the owner has confirmed by a code, and may change.
    Verified,
}

impl EmailSource {
    pub const fn is_admin(&self) -> bool {
        matches!(self, Self::Admin)
    }
}

impl Pkce {
    pub const fn is_required(&self) -> bool {
        matches!(self, Self::Required)
    }
}

impl Consent {
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }
}

/// The word for a secret that is kept in the database.
const STORED: &str = "stored";

/// A secret and where it was read from, which alone is compared and shown.
#[derive(Clone)]
pub struct ClientSecret {
    /// Where it is read from, if it is not kept in the database.
    from: Option<SecretRef>,
    /// The secret; None if it could not be read here, or is kept there: nothing matches it.
    value: Option<SecretString>,
}

impl PartialEq for ClientSecret {
    fn eq(&self, other: &Self) -> bool {
        self.from == other.from
    }
}

impl Eq for ClientSecret {}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => from.fmt(f),
            None => f.write_str(STORED),
        }
    }
}

impl Serialize for ClientSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl ClientSecret {
    pub const fn value(&self) -> Option<&SecretString> {
        self.value.as_ref()
    }
}

impl OidcClient {
    /// The registered address by which one that a request names is admitted; the answer goes to the one it names. Nothing
    /// is decoded, normalised or completed.
    pub fn redirect(&self, asked: &str) -> Option<&RedirectUri> {
        self.redirect_uris.iter().find(|uri| uri.admits(asked))
    }

    /// Finds an address for after a sign-out.
    pub fn post_logout_redirect(&self, asked: &str) -> Option<&RedirectUri> {
        self.post_logout_redirect_uris.iter().find(|uri| uri.admits(asked))
    }

    /// For administrators: the registered address that differs least from one that is not admitted, and the byte from
    /// which on it does, and by how many.
    pub fn nearest(&self, asked: &str) -> Option<(&RedirectUri, usize, usize)> {
        let compared = self.redirect_uris.iter().map(|uri| {
            let (own, asked) = (uri.0.as_bytes(), asked.as_bytes());
            let equal = |(one, other): &(&u8, &u8)| one == other;
            let begin = own.iter().zip(asked).take_while(equal).count();
            let end = own[begin..].iter().rev().zip(asked[begin..].iter().rev()).take_while(equal).count();
            (uri, begin, own.len().max(asked.len()) - begin - end)
        });
        compared.min_by_key(|(.., differ)| *differ)
    }

    pub const fn is_public(&self) -> bool {
        self.secret.is_none()
    }

    /// Another program on the same device can take what is sent to it (RFC 8252, 8.6), so people are always asked.
    pub fn is_native(&self) -> bool {
        self.is_public() && self.redirect_uris.iter().any(|uri| !uri.0.starts_with("https:"))
    }

    /// A redirect without TLS that no standard asks for: native apps listen at an address, and not at a name that other
    /// interfaces may have, too (RFC 8252, 8.3).
    pub fn has_odd_http(&self) -> bool {
        let odd = |uri: &RedirectUri| {
            uri.0.starts_with("http:") && !(self.is_public() && without_port(&uri.0).is_some())
        };
        self.redirect_uris.iter().any(odd)
    }

    /// The origins of its web addresses, from which its scripts may call.
    pub fn origins(&self) -> impl Iterator<Item = &str> {
        self.redirect_uris.iter().filter_map(|uri| {
            let rest = uri.0.strip_prefix("https://").or_else(|| uri.0.strip_prefix("http://"))?;
            let host = rest.find(['/', '?']).unwrap_or(rest.len());
            Some(&uri.0[..uri.0.len() - rest.len() + host])
        })
    }

    /// In constant time. Nothing is the secret of a public client, or of one whose secret could not be read.
    pub fn secret_matches(&self, given: &[u8]) -> bool {
        let value = self.secret.as_ref().and_then(ClientSecret::value);
        value.is_some_and(|value| value.expose_secret().as_bytes().ct_eq(given).into())
    }

    /// Whether its secrets are kept in the database.
    pub fn has_stored_secret(&self) -> bool {
        self.secret.as_ref().is_some_and(|secret| secret.from.is_none())
    }

    /// Whether this instance could not read the secret.
    pub fn lacks_secret(&self) -> bool {
        self.secret.as_ref().is_some_and(|secret| secret.from.is_some() && secret.value.is_none())
    }

    /// Whether it is told that a visitor is in this group.
    pub fn tells(&self, group: &str) -> bool {
        self.groups.iter().any(|pattern| pattern.covers(group))
    }
}

/// A group by its name, or all whose names begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPattern {
    name: String,
    begins: bool,
}

impl GroupPattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, begins) = match text.strip_suffix('*') {
            Some(name) => (name, true),
            None => (text, false),
        };
        if is_custom_name(name) || text == "*" {
            return Ok(Self { name: name.to_owned(), begins });
        }
        Err(format!(
            "{text:?} is not a group; write \"staff\", \"staff-*\" or \"*\", with 1 to 64 of a-z, 0-9 and -"
        ))
    }

    fn every() -> Self {
        Self { name: String::new(), begins: true }
    }

    fn covers(&self, group: &str) -> bool {
        if self.begins { group.starts_with(&self.name) } else { group == self.name }
    }
}

impl fmt::Display for GroupPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.begins { "*" } else { "" })
    }
}

impl Serialize for GroupPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn are_all_groups(groups: &[GroupPattern]) -> bool {
    groups == [GroupPattern::every()]
}

fn as_text<S: Serializer>(url: &Option<Url>, serializer: S) -> Result<S::Ok, S::Error> {
    url.as_ref().map(Url::as_str).serialize(serializer)
}

/// Longer ones do not pass every browser and proxy.
const LONGEST_URI: usize = 2_048;

/// An address to which a browser is sent back, in the only spelling that is admitted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct RedirectUri(String);

impl RedirectUri {
    pub fn parse(text: &str) -> Result<Self, String> {
        let wanted = "write it as \"https://app.example/callback\"";
        let wrong = |reason: &str| Err(format!("{text:?} {reason}"));
        if text.is_empty() || text.len() > LONGEST_URI {
            return Err(format!("is not an address of 1 to {LONGEST_URI} characters; {wanted}"));
        }
        if text.contains('*') {
            return wrong(
                "has a wildcard; list each address by itself, because they are compared byte by byte",
            );
        }
        if text.contains('#') {
            return wrong("has a fragment, to which no answer can be sent (RFC 6749, 3.1.2); leave it out");
        }
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte);
        if !text.bytes().all(plain) {
            return wrong(
                "has spaces, backslashes or other characters that have more than one reading; escape them",
            );
        }
        let Ok(url) = Url::parse(text) else { return Err(format!("{text:?} is not an address; {wanted}")) };
        if !url.username().is_empty() || url.password().is_some() {
            return wrong("contains a user name or password; leave it out");
        }
        let host = url.host_str().unwrap_or_default();
        if text.contains("..") || host.ends_with('.') {
            return wrong("has .. or a dot at the end of its host; write where it leads");
        }
        match url.scheme() {
            "https" => {}
            "http" if host == "localhost" || without_port(text).is_some() => {}
            "http" => {
                return wrong(
                    "is http, which only a program on the visitor's own machine may use: 127.0.0.1, [::1] or localhost; use https",
                );
            }
            // "app.example:8443/cb" only looks like one.
            scheme if scheme.contains('.') && text[scheme.len()..].starts_with(":/") => {}
            _ => {
                return wrong(
                    "has a scheme that browsers act on; use https, or for an app a scheme with a dot: \"com.example.app:/callback\"",
                );
            }
        }
        // A parser that follows browsers must have nothing to mend.
        let written = url.as_str();
        let bare = url.path() == "/" && url.query().is_none() && written.strip_suffix('/') == Some(text);
        if written == text || bare {
            return Ok(Self(text.to_owned()));
        }
        Err(format!("{text:?} is written {written:?} by browsers; write that"))
    }

    fn read(node: ValueNode) -> ParseResult<Self> {
        Self::parse(&node.text()?)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether apps answer to it by a scheme of their own, which any other app can take, too.
    pub fn is_private_scheme(&self) -> bool {
        !self.0.starts_with("https:") && !self.0.starts_with("http:")
    }

    fn admits(&self, asked: &str) -> bool {
        let own = without_port(&self.0);
        self.0 == asked || (own.is_some() && own == without_port(asked))
    }
}

/// The two parts of a loopback address around its port, which the system chooses anew each time (RFC 8252, 7.3). None for
/// other addresses, also for names: they may be resolved elsewhere.
fn without_port(uri: &str) -> Option<(&str, &str)> {
    let host = ["http://127.0.0.1", "http://[::1]"].into_iter().find(|host| uri.starts_with(host))?;
    let rest = &uri[host.len()..];
    let rest = match rest.strip_prefix(':') {
        None => rest,
        Some(from_port) => {
            let digits = from_port.bytes().take_while(u8::is_ascii_digit).count();
            let (port, rest) = from_port.split_at(digits);
            port.parse::<u16>().ok().filter(|_| !port.starts_with('0'))?;
            rest
        }
    };
    (rest.is_empty() || rest.starts_with(['/', '?'])).then_some((host, rest))
}

/// Entries of a list.
pub(super) const MOST: usize = 200;
const LONGEST_ID: usize = 64;
/// Less can be guessed; more does not fit into a header everywhere.
const SECRET_LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

/// Its application's name is the default of its own.
pub(super) fn read(section: &mut SectionReader<'_>, name: Option<&str>) -> Option<OidcClient> {
    let wanted = "1 to 64 visible ASCII characters without a space and :";
    let given = section.optional("client_id", |node| {
        let text = node.text()?;
        if is_id(&text) { Ok(text) } else { Err(format!("{text:?} is not an id; write {wanted}")) }
    });
    let named = name.filter(|name| is_id(name)).map(str::to_owned);
    if !section.has("client_id") && named.is_none() && name.is_some() {
        section.refuse_key("client_id", format!("is missing, and the name is none; write {wanted}"));
    }
    let secret = section.optional("secret", secret_source).map(|from| client_secret(section, from));
    let mut uris = |key| section.list(key, MOST, RedirectUri::read).unwrap_or_default();
    let (redirect_uris, post_logout_redirect_uris) =
        (uris("redirect_uris"), uris("post_logout_redirect_uris"));
    if redirect_uris.is_empty() && !section.failed() {
        let missing = "is missing; name the addresses to which the application gets its answers";
        section.refuse_key("redirect_uris", missing);
    }
    for (key, uris) in
        [("redirect_uris", &redirect_uris), ("post_logout_redirect_uris", &post_logout_redirect_uris)]
    {
        if let (true, Some(uri)) = (secret.is_some(), uris.iter().find(|uri| uri.is_private_scheme())) {
            let reason = format!(
                "{:?} has a scheme of an app, which cannot keep a secret; leave secret out, or use https",
                uri.0
            );
            section.refuse_key(key, reason);
        }
    }
    let backchannel_logout_uri = section.optional("backchannel_logout_uri", if_any(logout_uri)).flatten();
    let allow_private = section.value("allow_private", false, yes_or_no);
    if let (Some(url), false) = (&backchannel_logout_uri, allow_private) {
        webhooks::refuse_private(section, "backchannel_logout_uri", url);
    }
    let pkce = [Pkce::Required, Pkce::Optional].map(|pkce| (pkce.into_str(), pkce));
    let pkce = section.value("pkce", Pkce::Required, word(&pkce));
    if pkce == Pkce::Optional && secret.is_none() && !section.has("secret") {
        let reason = "is \"optional\", but without a secret nothing else protects the codes; write \"required\", or give the client a secret";
        section.refuse_key("pkce", reason);
    }
    let signing = section.optional("signing", word(&ALGORITHMS));
    let consent = [Consent::None, Consent::Once].map(|consent| (consent.into_str(), consent));
    let consent = section.value("consent", Consent::None, word(&consent));
    let email = [EmailSource::Admin, EmailSource::Verified].map(|email| (email.into_str(), email));
    let email = section.value("email", EmailSource::Admin, word(&email));
    let groups = section.list("groups", MOST, |node| GroupPattern::parse(&node.text()?));
    Some(OidcClient {
        client_id: given.or(named)?,
        secret,
        redirect_uris,
        post_logout_redirect_uris,
        backchannel_logout_uri,
        allow_private,
        pkce,
        signing,
        consent,
        email,
        groups: groups.unwrap_or_else(|| vec![GroupPattern::every()]),
    })
}

/// In Basic authentication a colon ends the id (RFC 7617, 2).
fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':')
}

/// Read with the document. One that cannot be read keeps no document from being in force, where it may stand beside
/// answers to an attack: it is warned of, and drafts are refused because of it.
fn client_secret(section: &SectionReader<'_>, from: Option<SecretRef>) -> ClientSecret {
    let Some(from) = from else { return ClientSecret { from, value: None } };
    let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let fits = |text: &str| SECRET_LENGTHS.contains(&text.len()) && printable(text);
    let value = match from.read() {
        Ok(value) if fits(value.expose_secret()) => Some(value),
        read => {
            // An author of drafts learns nothing else about files and variables of the server.
            let reason = match (&from, read) {
                (SecretRef::Variable(name), Err(SecretError::Variable { .. })) => {
                    format!(
                        "names the environment variable {name}, which is not set; set it and restart the server"
                    )
                }
                _ => format!(
                    "{from:?} is not one line of {} to {} printable ASCII characters",
                    SECRET_LENGTHS.start(),
                    SECRET_LENGTHS.end()
                ),
            };
            section.warn_key("secret", reason);
            None
        }
    };
    ClientSecret { from: Some(from), value }
}

fn secret_source(node: ValueNode) -> ParseResult<Option<SecretRef>> {
    match text(node)? {
        text if text == STORED => Ok(None),
        text => secret_ref(text).map(Some),
    }
}

fn logout_uri(node: ValueNode) -> ParseResult<Url> {
    let url = webhooks::address(node)?;
    match url.fragment() {
        Some(_) => Err("has a fragment, which is not sent; leave it out".to_owned()),
        None => Ok(url),
    }
}
