//! The host of an application as it is written: what a browser sends in `Host`.

use url::Url;

use crate::config::document::ValueNode;
use crate::config::reader::ParseResult;

/// The longest name of a host (RFC 1035, 2.3.4), and a port.
const LONGEST: usize = 253 + 6;

/// What a browser sends in `Host` for an address: with the port where it is not the scheme's own.
pub fn host_of(url: &Url) -> Option<String> {
    let name = url.host_str()?;
    Some(url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}")))
}

/// A host without its port.
pub(super) fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    }
}

/// A host in the one spelling that browsers send.
pub(super) fn host(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let wanted =
        "write it as \"wiki.example\", or \"wiki.example:8443\" where the port is not the scheme's own";
    let lower = text.to_ascii_lowercase();
    if lower != text {
        return Err(format!("{text:?} has capital letters; write {lower:?}"));
    }
    let sent = |scheme: &str| host_of(&Url::parse(&format!("{scheme}://{text}/")).ok()?);
    let ours =
        |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || b"-.:[]".contains(&letter);
    if text.is_empty() || text.len() > LONGEST || !text.bytes().all(ours) || text.ends_with('.') {
        return Err(format!("{text:?} is not a host; {wanted}"));
    }
    // A port that is the own of one of the two schemes is left out there by browsers.
    match (sent("https"), sent("http")) {
        (Some(https), Some(http)) if https == text && http == text => Ok(text),
        (Some(https), Some(_)) if https != text => {
            Err(format!("{text:?} is sent by browsers as {https:?}; write that"))
        }
        (Some(_), Some(http)) => Err(format!("{text:?} is sent by browsers as {http:?}; write that")),
        _ => Err(format!("{text:?} is not a host; {wanted}")),
    }
}
