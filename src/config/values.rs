//! The types of values: numbers, words, durations, addresses, URLs and references to secrets.

use std::fmt::{self, Display};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use gatehouse_limiter::middleware::Nat64Prefix;
use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use super::document::{ConfigValue, ValueNode};
use super::reader::ParseResult;
use crate::files::open_regular;
pub(super) use crate::origins::unmapped;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn integer<T: TryFrom<i64> + PartialOrd + Display>(
    bounds: RangeInclusive<T>,
) -> impl Fn(ValueNode) -> ParseResult<T> {
    move |node| match node.typed().value {
        ConfigValue::Integer(number) => match number
            .as_ref()
            .ok()
            .and_then(|&number| T::try_from(number).ok())
        {
            Some(fits) if bounds.contains(&fits) => Ok(fits),
            _ => Err(out_of_range(number.map_or_else(|digits| digits, |number| number.to_string()), &bounds)),
        },
        other => Err(format!("is {}; it must be a whole number", other.kind())),
    }
}

pub(super) fn share(node: ValueNode) -> ParseResult<f64> {
    let value = match node.typed().value {
        ConfigValue::Fraction(value) => value,
        ConfigValue::Integer(Ok(value @ 0..=1)) => value as f64,
        ConfigValue::Integer(number) => {
            let number = number.map_or_else(|digits| digits, |number| number.to_string());
            return Err(out_of_range(number, &(0..=1)));
        }
        other => return Err(format!("is {}; it must be a number from 0 to 1", other.kind())),
    };
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(out_of_range(value, &(0..=1))) }
}

pub(super) fn yes_or_no(node: ValueNode) -> ParseResult<bool> {
    match node.typed().value {
        ConfigValue::Boolean(value) => Ok(value),
        other => Err(format!("is {}; it must be true or false", other.kind())),
    }
}

fn out_of_range<T: Display>(value: impl Display, bounds: &RangeInclusive<T>) -> String {
    format!("{value} is out of range; it must be from {} to {}", bounds.start(), bounds.end())
}

pub(super) fn word<T: Copy>(words: &[(&'static str, T)]) -> impl Fn(ValueNode) -> ParseResult<T> {
    move |node| {
        let text = node.text()?;
        if let Some((_, value)) = words.iter().find(|(name, _)| *name == text) {
            return Ok(*value);
        }
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        Err(format!("{text:?} is not allowed; use one of: {}", names.join(", ")))
    }
}

/// A duration within bounds, such as `"100ms"`, `"3m"`, `"24h"` or `"1h 30m"`.
pub(super) fn duration(bounds: RangeInclusive<Duration>) -> impl Fn(ValueNode) -> ParseResult<Duration> {
    move |node| {
        let text = node.text().map_err(|wrong| format!("{wrong}, such as \"10s\", \"3m\" or \"24h\""))?;
        let span = span(&text)?;
        if bounds.contains(&span) {
            return Ok(span);
        }
        Err(out_of_range(&text, &(shown(*bounds.start())..=shown(*bounds.end()))))
    }
}

/// Shows whole days as days; otherwise more than a month would be shown in average months and years.
pub(super) fn shown(span: Duration) -> String {
    match span.as_secs() / DAY.as_secs() {
        days if days > 1 && span == Duration::from_secs(days * DAY.as_secs()) => format!("{days}days"),
        _ => humantime::format_duration(span).to_string(),
    }
}

/// A duration as the document takes it, to the nanosecond: `1m`, `24h`, `7d`, `1h 30m`.
pub fn span_text(span: Duration) -> String {
    let hours = span.as_secs() / HOUR.as_secs();
    // A day is usually written as 24h.
    let days = if hours < 48 { 0 } else { hours / 24 };
    let rest = span - Duration::from_secs(hours * HOUR.as_secs());
    let mut parts = Vec::new();
    for (count, unit) in [(days, "d"), (hours - days * 24, "h")] {
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        }
    }
    if !rest.is_zero() || parts.is_empty() {
        parts.push(humantime::format_duration(rest).to_string());
    }
    parts.join(" ")
}

fn span(text: &str) -> ParseResult<Duration> {
    let word = |unit: &str| text.split(|letter: char| !letter.is_alphabetic()).any(|word| word == unit);
    // In humantime these are averages (a month of 30.44 days), and "1M" is easily mistaken for a minute.
    if ["M", "month", "months", "y", "year", "years"].into_iter().any(word) {
        return Err(format!(
            "{text:?} is in months or years, whose length varies; write days (\"30d\"), or minutes as \"m\""
        ));
    }
    humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is not a duration; write it as \"100ms\", \"10s\", \"3m\", \"24h\" or \"7d\"")
    })
}

/// Text that is not empty.
pub(super) fn text(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    if text.trim().is_empty() { Err("is empty".to_owned()) } else { Ok(text) }
}

pub(super) fn path(node: ValueNode) -> ParseResult<PathBuf> {
    text(node).map(PathBuf::from)
}

/// Reads a value; None if it is empty.
pub(super) fn if_any<T>(
    read: impl Fn(ValueNode) -> ParseResult<T>,
) -> impl Fn(ValueNode) -> ParseResult<Option<T>> {
    move |node| match node.clone().text() {
        Ok(text) if text.trim().is_empty() => Ok(None),
        _ => read(node).map(Some),
    }
}

pub(super) fn socket_address(node: ValueNode) -> ParseResult<SocketAddr> {
    let text = node.text()?;
    text.parse().map_err(|_| {
        format!("{text:?} is not an address to listen on; write an IP address and a port: \"127.0.0.1:8080\" or \"[::]:8080\"")
    })
}

pub(super) fn network(node: ValueNode) -> ParseResult<IpNet> {
    let text = node.text()?;
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network
        .map(|network| unmapped(network).trunc())
        .map_err(|_| format!("{text:?} is not a network; write it as \"10.0.0.0/8\" or \"2001:db8::/32\""))
}

/// What is one half of a family's addresses or more, together. Of IPv6 an eighth is given out (RFC 4291, 2.4).
pub(super) fn half_covered(networks: &[IpNet]) -> Option<&'static str> {
    let apart = IpNet::aggregate(&networks.to_vec());
    let share = |whole: IpNet| -> f64 {
        let part = |network: &IpNet| match network {
            _ if network.contains(&whole) => 1.0,
            _ if whole.contains(network) => 0.5_f64.powi((network.prefix_len() - whole.prefix_len()).into()),
            _ => 0.0,
        };
        apart.iter().map(part).sum()
    };
    let families = [("IPv4", "0.0.0.0/0"), ("IPv6", "::/0"), ("IPv6", "2000::/3")];
    let covered = |whole: &str| share(whole.parse().expect("a network")) >= 0.5;
    families.into_iter().find(|(_, whole)| covered(whole)).map(|(family, _)| family)
}

/// A prefix of IPv6 in whose addresses there is an IPv4 one.
pub(super) fn nat64_prefix(node: ValueNode) -> ParseResult<Nat64Prefix> {
    let IpNet::V6(network) = network(node)? else {
        return Err("is not a network of IPv6; write a prefix as \"64:ff9b::/96\"".to_owned());
    };
    Nat64Prefix::new(network).ok_or_else(|| {
        format!("{network} is no prefix of translated addresses (RFC 6052): it must have 32, 40, 48, 56, 64 or 96 bits, of which bits 64 to 71 are zero")
    })
}

/// The origin that people see in their browser's address bar.
pub(super) fn origin(node: ValueNode) -> ParseResult<Url> {
    let text = node.text()?;
    let wanted = "write only scheme and host: \"https://login.example\"";
    let url = Url::parse(&text).map_err(|wrong| format!("is not a URL ({wrong}); {wanted}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; it must be http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("contains a username or password; {wanted}"));
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has a path, but Gatehouse serves only from the root; {wanted}"));
    }
    Ok(url)
}

/// Whether what is sent there does not leave this machine.
pub(super) fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// A reference to a secret. Whether the variable or the file exists is not checked here.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// `env:NAME`
    Variable(String),
    /// `file:PATH`, without the line break at its end
    File(PathBuf),
    /// The value itself, if the setting is not always a secret.
    Literal(String),
}

/// Longer than any key; a line of this many bytes is not a secret, and is refused when it is used.
const LONGEST_SECRET: u64 = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the environment variable {name} is not set, or is not text")]
    Variable { name: String },
    #[error("{path} cannot be read: {reason}", path = path.display())]
    File { path: PathBuf, reason: std::io::Error },
    #[error("{place} is empty, or has more than one line")]
    Unfit { place: String },
}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Literal(_) => f.write_str("(literal)"),
        }
    }
}

impl SecretRef {
    /// The secret. May block to read a file.
    pub fn read(&self) -> Result<SecretString, SecretError> {
        let text = match self {
            Self::Literal(text) => return Ok(text.clone().into()),
            Self::Variable(name) => {
                std::env::var(name).map_err(|_| SecretError::Variable { name: name.clone() })?
            }
            Self::File(path) => open_regular(path)
                .and_then(|file| std::io::read_to_string(file.take(LONGEST_SECRET)))
                .map_err(|reason| SecretError::File { path: path.clone(), reason })?,
        };
        let text = SecretString::from(text);
        let line = text.expose_secret().strip_suffix('\n').unwrap_or(text.expose_secret());
        let line = line.strip_suffix('\r').unwrap_or(line);
        // Only the reference is quoted here, never the secret.
        if line.is_empty() || line.contains(char::is_control) {
            return Err(SecretError::Unfit { place: format!("{self:?}") });
        }
        Ok(line.to_owned().into())
    }

    pub(crate) fn parse(text: String) -> ParseResult<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let named = !name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit());
            return if named && name.chars().all(fits) {
                Ok(Self::Variable(name.to_owned()))
            } else {
                Err("names no environment variable after env:; write it as \"env:NAME\"".to_owned())
            };
        }
        match text.strip_prefix("file:") {
            Some(path) if path.trim().is_empty() => {
                Err("names no file after file:; write it as \"file:/run/secrets/name\"".to_owned())
            }
            Some(path) => Ok(Self::File(PathBuf::from(path))),
            None => Ok(Self::Literal(text)),
        }
    }
}

/// A secret, which must not be in the configuration file itself.
pub(super) fn secret(node: ValueNode) -> ParseResult<SecretRef> {
    secret_ref(text(node)?)
}

pub(super) fn secret_ref(text: String) -> ParseResult<SecretRef> {
    match SecretRef::parse(text)? {
        SecretRef::Literal(_) => Err(
            "contains the secret itself; write \"env:NAME\" or \"file:PATH\" to say where it is read from"
                .to_owned(),
        ),
        reference => Ok(reference),
    }
}

/// A header of requests to another server: a reference to a secret, or the value itself.
pub(super) fn header(name: &str, node: ValueNode) -> ParseResult<SecretRef> {
    // RFC 9110, section 5.6.2: a field name is a token.
    let token = |letter: u8| letter.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&letter);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("is not a valid HTTP header name".to_owned());
    }
    let value = node.text()?;
    if value.chars().any(char::is_control) {
        return Err("contains a control character, which an HTTP header must not".to_owned());
    }
    SecretRef::parse(value)
}

/// For a Debug line: the URL without its password and query, which may be secret.
pub(super) fn without_password(url: &Url) -> String {
    let mut shown = url.clone();
    if shown.password().is_some() {
        // Refused only for URLs that cannot have a password, and those have none.
        shown.set_password(Some("***")).ok();
    }
    shown.set_query(None);
    shown.to_string()
}
