//! `[telemetry]`: traces and metrics for an OpenTelemetry receiver.

use std::path::PathBuf;
use std::time::Duration;

use url::{Host, Url};

use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ParseResult, SectionReader, WithinSection};
use super::section::section;
use super::values::{HOUR, MINUTE, SECOND, SecretRef, duration, header, path_if_any, share, text};

section! {
    TelemetrySettings in "telemetry" {
        /// The base URL of a receiver of OTLP over HTTP; `None`: nothing is exported.
        otlp_endpoint: Option<Url> = None, endpoint;
        /// Sent with every export.
        headers: Vec<(String, SecretRef)> = Vec::new(), WithinSection(headers);
        /// Certificates in PEM that may have signed the receiver's, beside Mozilla's roots.
        ca_file: Option<PathBuf> = None, path_if_any;
        service_name: String = "gatehouse".to_owned(), service_name;
        /// The part of the requests that is traced, unless a trusted proxy has decided.
        sample: f64 = 1.0, share;
        /// Between two exports of metrics; that of OpenTelemetry's SDKs.
        interval: Duration = MINUTE, duration(SECOND..=HOUR);
    }
}

/// Empty is off.
fn endpoint(node: ValueNode) -> ParseResult<Option<Url>> {
    let text = node.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    if let Some(reason) = missing_exporter(cfg!(feature = "otlp")) {
        return Err(reason.to_owned());
    }
    let wanted = "write the base URL, as \"http://127.0.0.1:4318\"";
    let url = Url::parse(&text).map_err(|wrong| format!("is not a URL ({wrong}); {wanted}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("has the scheme {:?}; OTLP over HTTP needs http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a username or password; write them into telemetry.headers".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has a part after ? or #; {wanted}"));
    }
    if url.path().ends_with("/v1/traces") || url.path().ends_with("/v1/metrics") {
        return Err(format!("ends with the path of a signal, which is added to it; {wanted}"));
    }
    Ok(Some(url))
}

fn headers(section: &mut SectionReader<'_>, key: &'static str) -> Option<Vec<(String, SecretRef)>> {
    Some(section.section(key, |inner| inner.pairs(header)))
}

fn service_name(node: ValueNode) -> ParseResult<String> {
    let name = text(node)?;
    if name.len() > 255 || name.chars().any(char::is_control) {
        return Err("is not a name: it has more than 255 bytes, or a control character".to_owned());
    }
    Ok(name)
}

/// What a build without the exporter answers.
pub(super) const fn missing_exporter(built_in: bool) -> Option<&'static str> {
    if built_in {
        return None;
    }
    Some(
        "is set, but this build does not export telemetry; build one that does: cargo build --release --features otlp",
    )
}

/// A header that is read from a variable or a file is a secret.
pub(super) fn refuse_secrets_in_clear(
    root: &SectionReader<'_>,
    place: Option<ConfigLocation>,
    settings: &TelemetrySettings,
) {
    let (Some(url), Some(place)) = (&settings.otlp_endpoint, place) else { return };
    let secret = settings.headers.iter().find(|(_, value)| !matches!(value, SecretRef::Literal(_)));
    let here = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if let (Some((name, _)), "http", false) = (secret, url.scheme(), here) {
        let reason = format!("is http, but the secret in telemetry.headers.{name} is sent there; use https");
        root.refuse(place, "telemetry.otlp_endpoint".to_owned(), reason);
    }
}
