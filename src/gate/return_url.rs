//! The address at an application to which somebody returns from signing in.

use std::str::FromStr;

use strum::{EnumString, IntoStaticStr};
use url::Url;

use crate::config::{App, Apps, host_of};

/// Longer addresses are not returned to; browsers and proxies cut them off at about 8 KiB.
const LONGEST: usize = 2_048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// Returns a host as browsers send it: without the port that is the scheme's own, which some clients and proxies
    /// name.
    pub fn without_own_port(self, host: &str) -> &str {
        let own = match self {
            Self::Http => ":80",
            Self::Https => ":443",
        };
        host.strip_suffix(own).unwrap_or(host)
    }
}

/// An address that has one reading: at exactly the host of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReturnUrl {
    text: String,
    scheme: Scheme,
    host: String,
}

/// Browsers drop tabs and newlines, read a backslash as a slash, and escape some of the others.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\\\"<>^`{|}#".contains(&byte)
}

impl ReturnUrl {
    /// Parses an address; None unless it leads to the host of an application, however a browser reads it.
    /// `allows_http`: an address without TLS is one, too, as it is while the sign-in itself has none.
    pub fn parse(text: &str, apps: &Apps, allows_http: bool) -> Option<Self> {
        if text.len() > LONGEST || !text.bytes().all(is_plain) {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let scheme =
            Scheme::from_str(scheme).ok().filter(|scheme| *scheme == Scheme::Https || allows_http)?;
        let host = &rest[..rest.find('/')?];
        let (listed, _) = apps.at(host).filter(|(listed, _)| *listed == host)?;
        // Once more by a parser that follows browsers.
        let url = Url::parse(text).ok()?;
        let same = url.scheme() == scheme.into_str()
            && host_of(&url).as_deref() == Some(listed)
            && url.username().is_empty();
        (same && url.password().is_none()).then(|| Self {
            text: text.to_owned(),
            scheme,
            host: listed.to_owned(),
        })
    }

    /// For a request to an application: its own address, or the root if that is too long. Bytes that browsers send as
    /// they stand, but that have more than one reading in an address, are escaped.
    pub fn of(scheme: Scheme, host: &str, target: &str, apps: &Apps, allows_http: bool) -> Option<Self> {
        let origin = format!("{}://{host}", scheme.into_str());
        let mut escaped = String::with_capacity(target.len());
        for byte in target.bytes() {
            if is_plain(byte) {
                escaped.push(char::from(byte));
            } else {
                escaped += &format!("%{byte:02X}");
            }
        }
        Self::parse(&format!("{origin}{escaped}"), apps, allows_http)
            .or_else(|| Self::parse(&format!("{origin}/"), apps, allows_http))
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    /// Scheme and host.
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme.into_str(), self.host)
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.text[self.origin().len()..]
    }

    pub fn app<'a>(&self, apps: &'a Apps) -> Option<&'a App> {
        apps.at(&self.host).map(|(_, app)| app.as_ref())
    }
}
