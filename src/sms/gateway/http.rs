//! Any gateway that accepts a message in one HTTP request: Kannel, Jasmin, or a company's own.

use std::collections::HashMap;
use std::fmt::Write as _;

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use url::form_urlencoded;

use super::{
    CheckFuture, CheckResult, CheckedPart, DeliveryReport, DeliveryResult, GatewayAnswer, GatewayCheck,
    GatewayClient, OpenError, OutOfService, RefusedFor, ReportAcknowledgement, ReportCall, ReportError,
    ReportState, ReportTokens, ReportedMessage, SendFuture, SmsGateway, SmsMessage, refused, unknown, word,
};
use crate::config::{
    self, BodyKind, GatewayTemplate, HttpMethod, Placeholder, SecretError, SecretRef, TemplatePiece,
};

#[cfg(test)]
mod tests;

const NAME: &str = "http";

pub(super) struct HttpGateway {
    client: GatewayClient,
    tokens: ReportTokens,
    method: reqwest::Method,
    url: ReadyTemplate,
    /// The scheme, host and port of the address; None if they have a placeholder.
    origin: Option<reqwest::Url>,
    headers: Vec<(HeaderName, HeaderTemplate)>,
    body: Option<ReadyTemplate>,
    accepted_if: Option<String>,
    refused_if: Option<String>,
    report_answer: Option<String>,
}

enum HeaderTemplate {
    Fixed(HeaderValue),
    Filled(ReadyTemplate),
}

impl HttpGateway {
    pub fn open(
        settings: &config::HttpGatewaySettings,
        client: GatewayClient,
        tokens: ReportTokens,
    ) -> Result<Self, OpenError> {
        let mut headers = Vec::new();
        for (name, value) in &settings.headers {
            headers.push(header(name, value)?);
        }
        let content_type = headers.iter().find_map(|(name, value)| match value {
            HeaderTemplate::Fixed(value) if name == CONTENT_TYPE => {
                value.to_str().ok().map(BodyKind::of_type)
            }
            _ => None,
        });
        let kind =
            |body: &GatewayTemplate| content_type.unwrap_or_else(|| BodyKind::of_shape(&body.sample("0")));
        if let (None, Some(body)) = (content_type, &settings.body) {
            let value = HeaderValue::from_static(kind(body).content_type());
            headers.push((CONTENT_TYPE, HeaderTemplate::Fixed(value)));
        }
        let body = settings.body.as_ref().map(|body| body.open(kind(body).escape())).transpose();
        Ok(Self {
            client,
            tokens,
            method: match settings.method {
                HttpMethod::Get => reqwest::Method::GET,
                HttpMethod::Post => reqwest::Method::POST,
                HttpMethod::Put => reqwest::Method::PUT,
            },
            origin: reqwest::Url::parse(&settings.url.sample("0")).ok().and_then(|url| url.join("/").ok()),
            url: settings.url.open(Escape::Url).map_err(OpenError::secret("sms.http.url"))?,
            headers,
            body: body.map_err(OpenError::secret("sms.http.body"))?,
            accepted_if: settings.accepted_if.clone(),
            refused_if: settings.refused_if.clone(),
            report_answer: settings.report_answer.clone(),
        })
    }

    async fn ask(&self, message: SmsMessage<'_>) -> DeliveryResult {
        let (report_token, report_url) = (self.tokens.of(message.id), self.tokens.url(NAME, message.id));
        let values = TemplateValues {
            message: &message,
            report_token: &report_token,
            report_url: report_url.as_str(),
        };
        let Ok(url) = reqwest::Url::parse(&self.url.fill(&values)) else {
            return refused("cannot be called: the filled-in URL is not valid");
        };
        let mut headers = HeaderMap::new();
        for (name, header) in &self.headers {
            let value = match header {
                HeaderTemplate::Fixed(value) => Ok(value.clone()),
                HeaderTemplate::Filled(template) => HeaderValue::from_str(&template.fill(&values))
                    .or_else(|_| HeaderValue::from_bytes(template.fill(&values).as_bytes())),
            };
            let Ok(value) = value else {
                return refused("cannot be called: a filled-in header is not valid");
            };
            headers.append(name, value);
        }
        let body = self.body.as_ref().map(|body| body.fill(&values));
        let request = |client: &Client| {
            let request = client.request(self.method.clone(), url.clone()).headers(headers.clone());
            match &body {
                Some(body) => request.body(body.clone()),
                None => request,
            }
        };
        self.client.call(request, |answer| self.evaluate(answer)).await
    }

    /// Only that it answers at all, at the root of its address and without a secret.
    async fn examine(&self) -> Vec<GatewayCheck> {
        let Some(origin) = &self.origin else { return Vec::new() };
        let checks = match self.client.answer(|client| client.head(origin.clone())).await {
            Ok(_) => CheckedPart::Connection.passed("answers"),
            Err(DeliveryResult::Unknown { .. }) => CheckedPart::Connection.passed("takes connections"),
            Err(wrong) => CheckedPart::Connection.unanswered(CheckResult::from(wrong)),
        };
        let rest = [CheckedPart::Credentials, CheckedPart::Balance];
        let rest = rest.map(|part| part.not_asked("no call is known for it"));
        [checks].into_iter().chain(rest).collect()
    }

    fn evaluate(&self, answer: &GatewayAnswer) -> DeliveryResult {
        let said = String::from_utf8_lossy(&answer.body);
        // Kannel and Jasmin answer 403 to a wrong password; Jasmin also to a number on a route that costs more than is left,
        // and to messages that come too fast.
        let is_of_key =
            || ["Authorization failed for sendsms", "Authentication"].iter().any(|it| said.contains(it));
        let whose = match answer.status.as_u16() {
            401 => RefusedFor::Everybody(OutOfService::Credentials),
            403 if is_of_key() => RefusedFor::Everybody(OutOfService::Credentials),
            _ => RefusedFor::ThisMessage,
        };
        if let Some(delivery) = answer.unless_success(None, whose) {
            return delivery;
        }
        let says = |wanted: &Option<String>| wanted.as_ref().map(|wanted| said.contains(wanted.as_str()));
        let status = answer.status.as_u16();
        if says(&self.refused_if) == Some(true) {
            return refused(&format!("answered {status} and its answer matches sms.http.refused_if"));
        }
        if says(&self.accepted_if) == Some(false) {
            return unknown(&format!("answered {status} but its answer does not match sms.http.accepted_if"));
        }
        DeliveryResult::Accepted { reference: None }
    }
}

impl SmsGateway for HttpGateway {
    fn name(&self) -> &'static str {
        NAME
    }

    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(self.ask(message))
    }

    fn check(&self) -> CheckFuture<'_> {
        Box::pin(self.examine())
    }

    /// `id`, `token` and `status`, each from the query or, if it is not there, from a body that is a form or
    /// a JSON object: Kannel puts all of them into the query, Jasmin posts its own fields.
    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        let query = form_fields(call.query.as_bytes());
        let body = body_fields(call);
        let field = |name: &str| query.get(name).or_else(|| body.get(name)).map(String::as_str);
        let (Some(id), Some(token)) = (field("id"), field("token")) else {
            return Err(ReportError::NotAuthentic);
        };
        let id = self.tokens.verify(id, token).ok_or(ReportError::NotAuthentic)?;
        let said = field("status").or_else(|| field("message_status"));
        let said = said.ok_or_else(|| ReportError::Unreadable("it has no status".to_owned()))?;
        let state =
            state_of(said).ok_or_else(|| ReportError::Unreadable("its status is unknown".to_owned()))?;
        Ok(vec![DeliveryReport { message: ReportedMessage::Id(id), state, detail: word(said) }])
    }

    fn acknowledgement(&self) -> Option<ReportAcknowledgement<'_>> {
        let body = self.report_answer.as_deref()?;
        Some(ReportAcknowledgement { content_type: "text/plain; charset=utf-8", body })
    }
}

fn header(name: &str, value: &SecretRef) -> Result<(HeaderName, HeaderTemplate), OpenError> {
    let field = || format!("sms.http.headers.{name}");
    let setting =
        |reason: &str| OpenError::Setting { field: "sms.http.headers".to_owned(), reason: reason.to_owned() };
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| setting("contains an invalid name"))?;
    if let SecretRef::Literal(text) = value {
        let template = GatewayTemplate::parse(text).map_err(|wrong| setting(&wrong))?;
        // A value without placeholders is final and tells the content type of the body.
        if template.sample("") != *text {
            let ready = template.open(Escape::Line).map_err(OpenError::secret(field()))?;
            return Ok((header, HeaderTemplate::Filled(ready)));
        }
    }
    let secret = value.read().map_err(OpenError::secret(field()))?;
    let mut value = HeaderValue::from_bytes(secret.expose_secret().as_bytes())
        .map_err(|_| setting("contains an invalid value"))?;
    // Hides it from the client's debug logs.
    value.set_sensitive(header != CONTENT_TYPE);
    Ok((header, HeaderTemplate::Fixed(value)))
}

/// Kannel's numbers, the SMPP words that Jasmin and others pass on, and plain words.
fn state_of(said: &str) -> Option<ReportState> {
    Some(match said.to_ascii_lowercase().as_str() {
        "1" | "delivered" | "delivrd" | "success" | "ok" => ReportState::Delivered,
        "2" | "16" | "failed" | "failure" | "undelivered" | "undeliv" | "undeliverable" | "expired"
        | "rejectd" | "rejected" | "deleted" | "error" => ReportState::Failed,
        "4" | "8" | "32" | "pending" | "sent" | "queued" | "buffered" | "accepted" | "acceptd"
        | "enroute" | "submitted" | "unknown" | "esme_rok" => ReportState::Pending,
        // Jasmin reports how the operator accepted a message with SMPP's error names.
        other if other.starts_with("esme_r") => ReportState::Failed,
        _ => return None,
    })
}

fn form_fields(form: &[u8]) -> HashMap<String, String> {
    let mut fields = HashMap::new();
    for (name, value) in form_urlencoded::parse(form) {
        fields.entry(name.into_owned()).or_insert_with(|| value.into_owned());
    }
    fields
}

fn body_fields(call: &ReportCall<'_>) -> HashMap<String, String> {
    let content_type = (call.header)("content-type").unwrap_or_default();
    match BodyKind::of_type(&content_type) {
        BodyKind::Form => form_fields(call.body),
        BodyKind::Json => {
            let object: HashMap<String, serde_json::Value> =
                serde_json::from_slice(call.body).unwrap_or_default();
            let text = |value: serde_json::Value| match value {
                serde_json::Value::String(text) => Some(text),
                serde_json::Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
            object.into_iter().filter_map(|(name, value)| Some((name, text(value)?))).collect()
        }
        BodyKind::Xml | BodyKind::Other => HashMap::new(),
    }
}

/// A template whose secrets have been read.
pub(super) struct ReadyTemplate {
    pieces: Vec<TemplatePiece>,
    escape: Escape,
}

pub(super) struct TemplateValues<'a> {
    pub message: &'a SmsMessage<'a>,
    pub report_token: &'a str,
    pub report_url: &'a str,
}

impl GatewayTemplate {
    pub(super) fn open(&self, escape: Escape) -> Result<ReadyTemplate, SecretError> {
        let read = |piece: &TemplatePiece| match piece {
            TemplatePiece::Secret(secret) => {
                let mut literal = String::new();
                escape.push(&mut literal, secret.read()?.expose_secret());
                Ok(TemplatePiece::Literal(literal))
            }
            other => Ok(other.clone()),
        };
        Ok(ReadyTemplate { pieces: self.pieces().iter().map(read).collect::<Result<_, _>>()?, escape })
    }
}

impl ReadyTemplate {
    pub fn fill(&self, values: &TemplateValues<'_>) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Literal(text) => out.push_str(text),
                TemplatePiece::Place(place) => self.escape.push(&mut out, &values.of(*place)),
                // `GatewayTemplate::open` left none.
                TemplatePiece::Secret(_) => {}
            }
        }
        out
    }
}

impl TemplateValues<'_> {
    fn of(&self, place: Placeholder) -> String {
        let message = self.message;
        match place {
            Placeholder::Phone => message.phone.as_str().to_owned(),
            Placeholder::PhoneDigits => message.phone.digits().to_owned(),
            Placeholder::Text => message.text.to_owned(),
            Placeholder::TextUtf16Hex => {
                message.text.encode_utf16().map(|unit| format!("{unit:04x}")).collect()
            }
            Placeholder::Code => message.code.expose().to_owned(),
            Placeholder::Id => message.id.to_string(),
            Placeholder::ReportToken => self.report_token.to_owned(),
            Placeholder::ReportUrl => self.report_url.to_owned(),
        }
    }
}

/// Keeps a value from changing the structure around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// Percent-encoded, except RFC 3986's unreserved characters.
    Url,
    Form,
    Json,
    Xml,
    /// Into a header: one line.
    Line,
    Nothing,
}

impl Escape {
    pub fn push(self, out: &mut String, value: &str) {
        match self {
            Self::Url => percent_encode(out, value),
            Self::Form => out.extend(form_urlencoded::byte_serialize(value.as_bytes())),
            Self::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
            Self::Xml => value.chars().for_each(|letter| push_xml(out, letter)),
            Self::Line => {
                out.extend(value.chars().map(|letter| if letter.is_control() { ' ' } else { letter }))
            }
            Self::Nothing => out.push_str(value),
        }
    }
}

/// RFC 3986, section 2.3: characters that need no encoding.
pub(super) fn percent_encode(out: &mut String, value: &str) {
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

fn push_xml(out: &mut String, letter: char) {
    match letter {
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '&' => out.push_str("&amp;"),
        '"' => out.push_str("&quot;"),
        '\'' => out.push_str("&apos;"),
        // XML 1.0 cannot express these.
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
        _ => out.push(letter),
    }
}

impl BodyKind {
    pub(super) const fn escape(self) -> Escape {
        match self {
            Self::Json => Escape::Json,
            Self::Form => Escape::Form,
            Self::Xml => Escape::Xml,
            Self::Other => Escape::Nothing,
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Form => "application/x-www-form-urlencoded",
            Self::Xml => "application/xml; charset=utf-8",
            Self::Other => "text/plain; charset=utf-8",
        }
    }
}
