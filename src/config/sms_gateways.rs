//! `[sms.http]`, `[sms.twilio]`, `[sms.aliyun]`: what each gateway needs to be reached.

use url::Url;

use super::document::Node;
use super::error::Place;
use super::reader::{Parsed, Section};
use super::values::{SecretRef, secret, text, word};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gateway {
    /// Keeps messages on a page for developers: on loopback only.
    #[default]
    Outbox,
    Twilio(Twilio),
    Aliyun(Aliyun),
    Http(HttpGateway),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GatewayName {
    Outbox,
    Twilio,
    Aliyun,
    Http,
}

impl GatewayName {
    pub const WORDS: [(&'static str, Self); 4] =
        [("outbox", Self::Outbox), ("twilio", Self::Twilio), ("aliyun", Self::Aliyun), ("http", Self::Http)];
}

/// Any gateway that takes a message in one HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGateway {
    pub method: HttpMethod,
    /// A template, as `body` is.
    pub url: String,
    pub headers: Vec<(String, SecretRef)>,
    /// `{phone}`, `{text}`, `{code}` and `{id}` are filled in, escaped for where they stand.
    pub body: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Post,
    Put,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twilio {
    pub account_sid: String,
    pub auth_token: SecretRef,
    /// A number, or the id of a messaging service.
    pub from: String,
}

/// Alibaba Cloud SMS; its template must have the variable `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aliyun {
    pub access_key_id: String,
    pub access_key_secret: SecretRef,
    pub sign_name: String,
    pub template_code: String,
}

const DEFAULT_BODY: &str = r#"{"to":"{phone}","text":"{text}"}"#;
const PLACEHOLDERS: [&str; 4] = ["phone", "text", "code", "id"];

/// `chosen` is where the gateway is chosen, and `None` where another one is: then keys may be missing.
fn required<T>(
    section: &mut Section<'_>,
    key: &'static str,
    chosen: Option<&Place>,
    parse: impl FnOnce(Node) -> Parsed<T>,
) -> Option<T> {
    let place = chosen.map(|chosen| section.place().unwrap_or(chosen).clone());
    section.required(key, "is missing, and the chosen sms.gateway needs it", place, parse)
}

impl HttpGateway {
    pub(super) fn read(section: &mut Section<'_>, chosen: Option<Place>) -> Option<Self> {
        let methods = [("GET", HttpMethod::Get), ("POST", HttpMethod::Post), ("PUT", HttpMethod::Put)];
        let method = section.value("method", HttpMethod::Post, word(&methods));
        let headers = section.section("headers", |inner| inner.pairs(header));
        let body = section.value("body", DEFAULT_BODY.to_owned(), template);
        let url = required(section, "url", chosen.as_ref(), url_template)?;
        Some(Self { method, url, headers, body })
    }
}

impl Twilio {
    pub(super) fn read(section: &mut Section<'_>, chosen: Option<Place>) -> Option<Self> {
        let chosen = chosen.as_ref();
        let account_sid = required(section, "account_sid", chosen, text);
        let auth_token = required(section, "auth_token", chosen, secret);
        let from = required(section, "from", chosen, text);
        Some(Self { account_sid: account_sid?, auth_token: auth_token?, from: from? })
    }
}

impl Aliyun {
    pub(super) fn read(section: &mut Section<'_>, chosen: Option<Place>) -> Option<Self> {
        let chosen = chosen.as_ref();
        let access_key_id = required(section, "access_key_id", chosen, text);
        let access_key_secret = required(section, "access_key_secret", chosen, secret);
        let sign_name = required(section, "sign_name", chosen, text);
        let template_code = required(section, "template_code", chosen, text);
        Some(Self {
            access_key_id: access_key_id?,
            access_key_secret: access_key_secret?,
            sign_name: sign_name?,
            template_code: template_code?,
        })
    }
}

fn header(name: &str, node: Node) -> Parsed<SecretRef> {
    // RFC 9110, section 5.6.2: a field's name is a token.
    let token = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("is no name of an HTTP header".to_owned());
    }
    let value = node.text()?;
    if value.chars().any(char::is_control) {
        return Err("holds a control character, which no HTTP header may".to_owned());
    }
    SecretRef::parse(value)
}

/// Text with placeholders. Braces around anything but a small word are the text's own, as in JSON.
fn template(node: Node) -> Parsed<String> {
    let text = node.text()?;
    for rest in text.split('{').skip(1) {
        let name = rest.split('}').next().unwrap_or_default();
        let word =
            rest.len() > name.len() && !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
        if word && !PLACEHOLDERS.contains(&name) {
            return Err(format!(
                "{{{name}}} is no placeholder; there are {{phone}}, {{text}}, {{code}} and {{id}}"
            ));
        }
    }
    Ok(text)
}

fn url_template(node: Node) -> Parsed<String> {
    let text = template(node)?;
    let filled = PLACEHOLDERS.iter().fold(text.clone(), |url, name| url.replace(&format!("{{{name}}}"), "0"));
    let url = Url::parse(&filled).map_err(|wrong| format!("is no URL: {wrong}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; it must be http or https", url.scheme()));
    }
    let authority = text.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|host| host.contains('{')) {
        return Err("has a placeholder in its host; placeholders go behind it".to_owned());
    }
    Ok(text)
}
