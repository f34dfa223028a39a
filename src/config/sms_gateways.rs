//! `[sms.http]`, `[sms.twilio]`, `[sms.aliyun]`: how each gateway is reached.

use std::path::PathBuf;

use url::Url;

use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ParseResult, SectionReader};
use super::template::{BodyKind, GatewayTemplate};
use super::values::{SecretRef, header, origin, path, secret, text, word};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GatewaySettings {
    /// Keeps messages on a page for developers: on loopback only.
    #[default]
    Outbox,
    /// No codes are sent, and pages and calls that need one do not exist.
    None,
    Twilio(TwilioSettings),
    Aliyun(AliyunSettings),
    Http(HttpGatewaySettings),
}

/// Any gateway that accepts a message in one HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGatewaySettings {
    pub method: HttpMethod,
    pub url: GatewayTemplate,
    /// A value that does not refer to a secret is a template, too.
    pub headers: Vec<(String, SecretRef)>,
    /// None if the method has no body.
    pub body: Option<GatewayTemplate>,
    /// Text that a success must contain; without it the outcome is unknown.
    pub accepted_if: Option<String>,
    /// Text in a success that means refused.
    pub refused_if: Option<String>,
    /// Certificate authorities (PEM) that are trusted in addition to the built-in ones.
    pub ca_file: Option<PathBuf>,
    /// The answer to a delivery report.
    pub report_answer: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Post,
    Put,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwilioSettings {
    pub url: Url,
    pub account_sid: String,
    pub auth_token: SecretRef,
    /// A number, or the id of a messaging service.
    pub from: String,
}

/// Alibaba Cloud SMS; its template must have the variable `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliyunSettings {
    pub url: Url,
    pub access_key_id: String,
    pub access_key_secret: SecretRef,
    pub sign_name: String,
    pub template_code: String,
}

const DEFAULT_BODY: &str = r#"{"to":"{phone}","text":"{text}"}"#;
const TWILIO: &str = "https://api.twilio.com";
const ALIYUN: &str = "https://dysmsapi.aliyuncs.com";

/// The selected gateway. Every gateway's section is checked, even if it is not selected.
pub(super) fn read(section: &mut SectionReader<'_>, key: &'static str) -> Option<GatewaySettings> {
    let place = section.place_of(key);
    let names = ["outbox", "none", "twilio", "aliyun", "http"].map(|name| (name, name));
    let name = section.value(key, "outbox", word(&names));
    let chosen = |candidate| place.clone().filter(|_| name == candidate);
    let http = section.section("http", |inner| HttpGatewaySettings::read(inner, chosen("http")));
    let twilio = section.section("twilio", |inner| TwilioSettings::read(inner, chosen("twilio")));
    let aliyun = section.section("aliyun", |inner| AliyunSettings::read(inner, chosen("aliyun")));
    match name {
        "http" => http.map(GatewaySettings::Http),
        "twilio" => twilio.map(GatewaySettings::Twilio),
        "aliyun" => aliyun.map(GatewaySettings::Aliyun),
        "none" => Some(GatewaySettings::None),
        _ => None,
    }
}

/// `chosen` is the place where the gateway is selected, and `None` if another one is: then keys may be
/// missing.
fn required<T>(
    section: &mut SectionReader<'_>,
    key: &'static str,
    chosen: Option<&ConfigLocation>,
    parse: impl FnOnce(ValueNode) -> ParseResult<T>,
) -> Option<T> {
    let place = chosen.map(|chosen| section.place().unwrap_or(chosen).clone());
    section.required(key, "is missing; the chosen sms.gateway requires it", place, parse)
}

impl HttpGatewaySettings {
    fn read(section: &mut SectionReader<'_>, chosen: Option<ConfigLocation>) -> Option<Self> {
        let methods = [("GET", HttpMethod::Get), ("POST", HttpMethod::Post), ("PUT", HttpMethod::Put)];
        let method = section.value("method", HttpMethod::Post, word(&methods));
        let headers = section.section("headers", |inner| inner.pairs(header_template));
        let kind = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = kind.map(|(_, value)| value);
        let body_of = |node| body(method, kind, node);
        let body = match method {
            HttpMethod::Get => section.optional("body", body_of),
            _ => section.optional("body", body_of).or_else(|| GatewayTemplate::parse(DEFAULT_BODY).ok()),
        };
        let accepted_if = section.optional("accepted_if", text);
        let refused_if = section.optional("refused_if", text);
        let ca_file = section.optional("ca_file", path);
        let report_answer = section.optional("report_answer", text);
        let url = required(section, "url", chosen.as_ref(), url_template)?;
        Some(Self { method, url, headers, body, accepted_if, refused_if, ca_file, report_answer })
    }
}

impl TwilioSettings {
    fn read(section: &mut SectionReader<'_>, chosen: Option<ConfigLocation>) -> Option<Self> {
        let chosen = chosen.as_ref();
        let url = section.optional("url", service).or_else(|| Url::parse(TWILIO).ok());
        let account_sid = required(section, "account_sid", chosen, text);
        let auth_token = required(section, "auth_token", chosen, secret);
        let from = required(section, "from", chosen, text);
        Some(Self { url: url?, account_sid: account_sid?, auth_token: auth_token?, from: from? })
    }
}

impl AliyunSettings {
    fn read(section: &mut SectionReader<'_>, chosen: Option<ConfigLocation>) -> Option<Self> {
        let chosen = chosen.as_ref();
        let url = section.optional("url", service).or_else(|| Url::parse(ALIYUN).ok());
        let access_key_id = required(section, "access_key_id", chosen, text);
        let access_key_secret = required(section, "access_key_secret", chosen, secret);
        let sign_name = required(section, "sign_name", chosen, text);
        let template_code = required(section, "template_code", chosen, text);
        Some(Self {
            url: url?,
            access_key_id: access_key_id?,
            access_key_secret: access_key_secret?,
            sign_name: sign_name?,
            template_code: template_code?,
        })
    }
}

fn header_template(name: &str, node: ValueNode) -> ParseResult<SecretRef> {
    let value = header(name, node)?;
    if let SecretRef::Literal(text) = &value {
        GatewayTemplate::parse(text)?;
    }
    Ok(value)
}

/// The address of a provider's service. Secrets are sent there, so the connection must be encrypted.
fn service(node: ValueNode) -> ParseResult<Url> {
    let wanted = "is not the address of a service; write only scheme and host: \"https://api.example\"";
    let url = origin(node).map_err(|_| wanted.to_owned())?;
    let here = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "http" if !here => Err("is http, but secrets are sent there; use https".to_owned()),
        _ => Ok(url),
    }
}

fn template(node: ValueNode) -> ParseResult<GatewayTemplate> {
    GatewayTemplate::parse(&node.text()?)
}

/// `content_type` is the header of the body.
fn body(
    method: HttpMethod,
    content_type: Option<&SecretRef>,
    node: ValueNode,
) -> ParseResult<GatewayTemplate> {
    if method == HttpMethod::Get {
        return Err("is set, but GET has no body; put the data into url, or use POST".to_owned());
    }
    let template = template(node)?;
    // Placeholders stand for text inside quotation marks and for numbers outside.
    let sample = template.sample("0");
    let kind = match content_type {
        Some(SecretRef::Literal(value)) => BodyKind::of_type(value),
        Some(_) => BodyKind::Other,
        None => BodyKind::of_shape(&sample),
    };
    match serde_json::from_str::<serde_json::Value>(&sample) {
        Err(wrong) if kind == BodyKind::Json => {
            Err(format!("is not valid JSON when it is filled in: {wrong}"))
        }
        _ => Ok(template),
    }
}

fn url_template(node: ValueNode) -> ParseResult<GatewayTemplate> {
    let text = node.text()?;
    let template = GatewayTemplate::parse(&text)?;
    let url = Url::parse(&template.sample("0")).map_err(|wrong| format!("is not a URL: {wrong}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; it must be http or https", url.scheme()));
    }
    let authority = text.split("://").nth(1).and_then(|rest| rest.split(['/', '?', '#']).next());
    if authority.is_some_and(|host| host.contains('{')) {
        return Err("has a placeholder in its host; use placeholders only after the host".to_owned());
    }
    Ok(template)
}
