//! `[sms]`: the gateway and how it is reached (fixed until a restart), and to whom and for how long codes are sent
//! (live).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rlibphonenumber::{PHONE_NUMBER_UTIL, Region};
use strum::{EnumString, VariantNames};
use url::Url;

use super::access::number_prefix;
use super::document::ValueNode;
use super::error::ConfigLocation;
use super::money::{DailyBudget, Money, daily_budget, price};
use super::reader::{ListOf, MOST_ENTRIES, ParseResult, SectionReader, WithinSection, section, subsection};
use super::values::{
    DAY, HOUR, MINUTE, SECOND, SecretRef, duration, header, if_any, integer, is_this_machine, origin, path,
    secret, share, text, word, yes_or_no,
};

section! {
    SmsSettings in "sms" {
        /// In the order in which they are used: `gateways`, or `gateway` for one.
        gateways: Vec<ListedGateway> = vec![ListedGateway::default()], WithinSection(read);
        /// How long a gateway may take for one message; the client waits as long.
        timeout: Duration = SECOND * 5, duration(SECOND..=SECOND * 10);
    }
}

section! {
    SmsTunables in "sms" {
        /// For numbers written without a country code (ISO 3166-1, two letters).
        default_region: String = "CN".to_owned(), country;
        /// Countries to which codes are sent, and `"001"` for global networks; empty: all countries.
        countries: Vec<String> = Vec::new(), ListOf(country_or_global);
        /// How long a code is valid; NIST SP 800-63B-4 allows ten minutes at most.
        code_ttl: Duration = MINUTE * 5, duration(SECOND..=MINUTE * 10);
        /// How long the ledger keeps a message: at least the longest window of the brake, and at least as
        /// long as any limit on messages looks back, which is checked where both are known.
        retention: Duration = DAY * 90, duration(DAY * 7..=DAY * 3660);
        /// No code goes to a number that begins so without a solved challenge.
        challenge_prefixes: Vec<String> = Vec::new(), ListOf(number_prefix);
        country: BTreeMap<String, CountrySettings> = BTreeMap::new(), WithinSection(by_country);
        /// What a message costs to a country that has no price of its own.
        price: Money = Money::default(), price;
        /// What messages may cost within 24 hours, by those prices.
        budget: Option<DailyBudget> = None, if_any(daily_budget);
        /// Whether messages are refused above it. Otherwise it is only told.
        budget_blocks: bool = false, yes_or_no;
        brake: Brake = Brake::default(), WithinSection(subsection);
    }
}

/// `[sms.country.XX]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CountrySettings {
    pub mode: CountryMode,
    pub price: Option<Money>,
}

impl SmsTunables {
    /// What a message to a country costs.
    pub fn price_to(&self, country: &str) -> Money {
        // Empty where it was not kept: then no price is known.
        let other = if country.is_empty() { Money::default() } else { self.price };
        self.country.get(country).and_then(|settings| settings.price).unwrap_or(other)
    }

    pub fn mode_of(&self, country: Option<&str>) -> CountryMode {
        country.and_then(|code| self.country.get(code)).map(|settings| settings.mode).unwrap_or_default()
    }

    pub(super) fn has_prices(&self) -> bool {
        let mut prices = self.country.values().filter_map(|settings| settings.price).chain([self.price]);
        prices.any(|price| !price.is_zero())
    }
}

/// What becomes of requests for codes to numbers of a country, the least strict first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CountryMode {
    /// Codes that do not come back from there are counted and shown, and ask nobody for a challenge.
    Monitor,
    #[default]
    Allow,
    /// Each needs a solved challenge.
    Challenge,
    /// Refused, like a country that is not one of `countries`.
    Block,
}

fn by_country(
    section: &mut SectionReader<'_>,
    key: &'static str,
) -> Option<BTreeMap<String, CountrySettings>> {
    const MODES: [(&str, CountryMode); 4] = [
        ("allow", CountryMode::Allow),
        ("monitor", CountryMode::Monitor),
        ("challenge", CountryMode::Challenge),
        ("block", CountryMode::Block),
    ];
    let code = |code: &str| {
        if code == GLOBAL_NETWORKS || is_country(code) { Ok(()) } else { Err(not_a_country(code)) }
    };
    let read = |_: &str, inner: &mut SectionReader<'_>| CountrySettings {
        mode: inner.value("mode", CountryMode::default(), word(&MODES)),
        price: inner.optional("price", price),
    };
    Some(section.section(key, |inner| inner.entries(MOST_ENTRIES, code, read).into_iter().collect()))
}

section! {
    /// The brake on a dialling prefix whose codes nobody enters.
    Brake in "sms.brake" {
        enabled: bool = true, yes_or_no;
        window: Duration = HOUR, duration(MINUTE..=DAY * 7);
        /// Fewer messages to a block (10,000 neighbouring numbers) do not trip it; from half as many on, asks need a
        /// solved challenge.
        min_sent: u32 = 20, integer(1..=1_000_000);
        /// From so many to an operator's range (a million numbers) on, asks need a solved challenge.
        min_sent_range: u32 = 100, integer(1..=1_000_000);
        /// Fewer with a solved challenge to a range do not trip it.
        min_solved_range: u32 = 500, integer(1..=1_000_000);
        min_entered: f64 = 0.1, share;
        lifts_after: Duration = HOUR, duration(MINUTE..=DAY * 30);
        /// A prefix that was under a brake within this time is watched more closely: a next brake is put on by fewer
        /// messages, and lasts 4 times as long, then 24 times.
        again_within: Duration = DAY * 7, duration(MINUTE..=DAY * 30);
        /// Messages with a solved challenge that put the next brake on a range, or on those that were never proven.
        min_sent_again: u32 = 50, integer(1..=1_000_000);
        /// From so many codes of a country that do not come back within a day, and from half as many as came back from it
        /// then or on the best of 14 days, asks need a solved challenge.
        min_sent_country: u32 = 100, integer(1..=1_000_000);
    }
}

/// Networks of no country, such as those of satellites (+870, +881), as the numbering plans name them.
pub const GLOBAL_NETWORKS: &str = "001";

fn country(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    if is_country(&text) { Ok(text) } else { Err(not_a_country(&text)) }
}

fn country_or_global(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    if text == GLOBAL_NETWORKS || is_country(&text) { Ok(text) } else { Err(not_a_country(&text)) }
}

fn not_a_country(text: &str) -> String {
    format!("{text:?} is not a country code; write two capital letters (ISO 3166-1), such as \"CN\"")
}

/// Whether the numbering plans know the country, by its two capital letters.
fn is_country(code: &str) -> bool {
    code.bytes().all(|letter| letter.is_ascii_uppercase())
        && Region::from_code(code)
            .is_ok_and(|region| PHONE_NUMBER_UTIL.get_country_code_for_region(region).is_some())
}

impl SmsSettings {
    /// Whether any codes are sent.
    pub fn sends(&self) -> bool {
        self.gateways.iter().any(|listed| listed.gateway != GatewaySettings::None)
    }

    /// Whether a gateway sends to that country.
    pub(super) fn serves(&self, country: &str) -> bool {
        let serves = |listed: &ListedGateway| {
            listed.countries.is_empty() || listed.countries.iter().any(|it| it == country)
        };
        self.gateways.is_empty() || self.gateways.iter().any(serves)
    }

    /// Whether messages are shown to developers.
    pub fn shows(&self) -> bool {
        self.gateways.iter().any(|listed| listed.gateway == GatewaySettings::Outbox)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedGateway {
    pub gateway: GatewaySettings,
    /// To which numbers it sends, by country and `"001"`; empty: to all.
    pub countries: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GatewaySettings {
    /// Keeps messages on a page for developers: on loopback only.
    #[default]
    Outbox,
    /// No codes are sent, and pages and calls that need one do not exist.
    None,
    Twilio(TwilioSettings),
    Aliyun(AliyunSettings),
    Tencent(TencentSettings),
    Http(HttpGatewaySettings),
}

/// Any gateway that accepts a message in one HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpGatewaySettings {
    pub method: HttpMethod,
    pub url: GatewayTemplate,
    /// A value that does not refer to a secret is a template, too.
    pub headers: Vec<(String, SecretRef)>,
    /// The body; None if the method has none.
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

/// Tencent Cloud SMS; its template must have one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TencentSettings {
    pub url: Url,
    pub secret_id: String,
    pub secret_key: SecretRef,
    pub sdk_app_id: String,
    pub sign_name: String,
    pub template_id: u64,
    pub region: String,
}

const DEFAULT_BODY: &str = r#"{"to":"{phone}","text":"{text}"}"#;
const TWILIO: &str = "https://api.twilio.com";
const ALIYUN: &str = "https://dysmsapi.aliyuncs.com";
const TENCENT: &str = "https://sms.tencentcloudapi.com";
const TENCENT_REGION: &str = "ap-guangzhou";

/// Every name that `gateway` and `gateways` take.
const NAMES: [&str; 6] = ["outbox", "none", "twilio", "aliyun", "tencent", "http"];

/// The listed gateways. Every gateway's section is checked, even if it is not listed.
pub(super) fn read(section: &mut SectionReader<'_>, _: &'static str) -> Option<Vec<ListedGateway>> {
    let names = read_names(section);
    let place = section.place_of(if section.has("gateways") { "gateways" } else { "gateway" });
    let chosen = |name: &str| place.clone().filter(|_| names.contains(&name));
    let mut provider = |name: &'static str, read: ReadProvider| {
        let gateway = section.section(name, |inner| {
            let gateway = read(inner, chosen(name));
            let countries = inner.list("countries", MOST_ENTRIES, country_or_global).unwrap_or_default();
            Some(ListedGateway { gateway: gateway?, countries })
        });
        (name, gateway)
    };
    let providers = [
        provider("http", |inner, chosen| HttpGatewaySettings::read(inner, chosen).map(GatewaySettings::Http)),
        provider("twilio", |inner, chosen| TwilioSettings::read(inner, chosen).map(GatewaySettings::Twilio)),
        provider("aliyun", |inner, chosen| AliyunSettings::read(inner, chosen).map(GatewaySettings::Aliyun)),
        provider("tencent", |inner, chosen| {
            TencentSettings::read(inner, chosen).map(GatewaySettings::Tencent)
        }),
    ];
    let listed = names.iter().map(|name| match *name {
        "outbox" => Some(ListedGateway::default()),
        "none" => Some(ListedGateway { gateway: GatewaySettings::None, countries: Vec::new() }),
        name => providers.iter().find(|(known, _)| *known == name)?.1.clone(),
    });
    listed.collect()
}

type ReadProvider = fn(&mut SectionReader<'_>, Option<ConfigLocation>) -> Option<GatewaySettings>;

/// `gateways` in their order, or the one of `gateway`.
fn read_names(section: &mut SectionReader<'_>) -> Vec<&'static str> {
    let words = NAMES.map(|name| (name, name));
    let one = word(&words);
    let single = section.optional("gateway", &one);
    let mut seen = Vec::new();
    let listed = section.list("gateways", NAMES.len(), |node| {
        let name = one(node)?;
        if seen.contains(&name) {
            return Err(format!("{name:?} is listed twice"));
        }
        seen.push(name);
        Ok(name)
    });
    let Some(listed) = listed else { return vec![single.unwrap_or("outbox")] };
    let alone = listed.iter().find(|name| matches!(**name, "outbox" | "none"));
    if section.has("gateway") {
        section.refuse_key("gateways", "is set, and so is sms.gateway; keep one of them");
    } else if let (Some(name), 2..) = (alone, listed.len()) {
        let reason = format!("has {name:?} beside others; leave it out, or write gateway = {name:?} alone");
        section.refuse_key("gateways", reason);
    } else if listed.is_empty() && !section.failed() {
        section.refuse_key("gateways", "is empty; list at least one, or write gateway = \"none\"");
    }
    listed
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
    section.required_at(place, key, "is missing; the chosen sms.gateway requires it", parse)
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

impl TencentSettings {
    fn read(section: &mut SectionReader<'_>, chosen: Option<ConfigLocation>) -> Option<Self> {
        let chosen = chosen.as_ref();
        let url = section.optional("url", service).or_else(|| Url::parse(TENCENT).ok());
        let secret_id = required(section, "secret_id", chosen, text);
        let secret_key = required(section, "secret_key", chosen, secret);
        let sdk_app_id = required(section, "sdk_app_id", chosen, text);
        let sign_name = required(section, "sign_name", chosen, text);
        let template_id = required(section, "template_id", chosen, template_id);
        let region = section.value("region", TENCENT_REGION.to_owned(), region);
        Some(Self {
            url: url?,
            secret_id: secret_id?,
            secret_key: secret_key?,
            sdk_app_id: sdk_app_id?,
            sign_name: sign_name?,
            template_id: template_id?,
            region,
        })
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

fn template_id(node: ValueNode) -> ParseResult<u64> {
    let text = node.text()?;
    text.parse()
        .map_err(|_| format!("{text:?} is not the id of a template, which is a number such as \"1110\""))
}

/// A region goes into a header.
fn region(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let is_part = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    if !text.is_empty() && text.bytes().all(is_part) {
        return Ok(text);
    }
    Err(format!("{text:?} is not a region; write it as \"{TENCENT_REGION}\""))
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
    match url.scheme() {
        "http" if !is_this_machine(&url) => Err("is http, but secrets are sent there; use https".to_owned()),
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Placeholder {
    Phone,
    PhoneDigits,
    Text,
    /// For gateways that take Unicode only as hexadecimal UTF-16 (big-endian).
    TextUtf16Hex,
    Code,
    Id,
    ReportToken,
    ReportUrl,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    /// A text as it is; its author has escaped it.
    Literal(String),
    Place(Placeholder),
    Secret(SecretRef),
}

/// A template, as written. Its Debug form shows no literal text, which may contain a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewayTemplate(Vec<TemplatePiece>);

impl GatewayTemplate {
    /// Braces around anything other than a name are literal, as in JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            let name = rest[1..].split_once('}').map(|(name, _)| name).filter(|name| is_name(name));
            let Some(name) = name else {
                literal.push('{');
                rest = &rest[1..];
                continue;
            };
            pieces.push(TemplatePiece::Literal(std::mem::take(&mut literal)));
            pieces.push(piece(name)?);
            rest = &rest[name.len() + 2..];
        }
        literal.push_str(rest);
        pieces.push(TemplatePiece::Literal(literal));
        Ok(Self(pieces))
    }

    /// With every placeholder replaced by the same text, to check the form of the rest.
    pub(crate) fn sample(&self, value: &str) -> String {
        let shown = |piece: &TemplatePiece| match piece {
            TemplatePiece::Literal(text) => text.clone(),
            TemplatePiece::Place(_) | TemplatePiece::Secret(_) => value.to_owned(),
        };
        self.0.iter().map(shown).collect()
    }

    pub(crate) fn pieces(&self) -> &[TemplatePiece] {
        &self.0
    }
}

impl std::fmt::Debug for GatewayTemplate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.0.iter().filter(|piece| !matches!(piece, TemplatePiece::Literal(_)));
        out.debug_list().entries(places).finish()
    }
}

/// The format of a body, which decides how values in it are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Form,
    Xml,
    Other,
}

impl BodyKind {
    /// From its Content-Type header.
    pub fn of_type(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "application/json" | "text/json" => Self::Json,
            "application/xml" | "text/xml" => Self::Xml,
            other if other.ends_with("+json") => Self::Json,
            other if other.ends_with("+xml") => Self::Xml,
            _ => Self::Other,
        }
    }

    /// From the shape of a sample, if there is no header.
    pub fn of_shape(sample: &str) -> Self {
        let body = sample.trim_start();
        let is_key = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]%+".contains(&byte);
        let is_pair = |pair: &str| {
            pair.split_once('=').is_some_and(|(key, _)| !key.is_empty() && key.bytes().all(is_key))
        };
        match body.as_bytes().first() {
            Some(b'{' | b'[') => Self::Json,
            Some(b'<') => Self::Xml,
            Some(_) if body.split('&').all(is_pair) => Self::Form,
            _ => Self::Other,
        }
    }
}

fn is_name(name: &str) -> bool {
    let word = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_';
    let secret = name.starts_with("env:") || name.starts_with("file:");
    secret || (name.starts_with(|first: char| first.is_ascii_lowercase()) && name.bytes().all(word))
}

fn piece(name: &str) -> Result<TemplatePiece, String> {
    if name.starts_with("env:") || name.starts_with("file:") {
        return SecretRef::parse(name.to_owned()).map(TemplatePiece::Secret);
    }
    name.parse().map(TemplatePiece::Place).map_err(|_| {
        let known: Vec<_> = Placeholder::VARIANTS.iter().map(|known| format!("{{{known}}}")).collect();
        format!("{{{name}}} is not a placeholder; use {}, {{env:NAME}} and {{file:PATH}}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_country_is_two_capital_letters_that_numbering_plans_know() {
        assert!(is_country("CN") && is_country("GG") && is_country("XK"));
        for unknown in ["UK", "ZZ", "cn", "001", "C", "CHN", "", "中"] {
            assert!(!is_country(unknown), "{unknown:?}");
        }
    }
}
