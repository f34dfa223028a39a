//! `[mail]`: the server that takes our e-mail over and what it is signed with (fixed until a restart), and what is sent
//! (live).

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use super::document::ValueNode;
use super::reader::{ParseResult, SectionReader, SectionTable, section};
use super::sections::Server;
use super::sms::SmsSettings;
use super::values::{MINUTE, SECOND, SecretRef, duration, if_any, path, secret, text, word, yes_or_no};

section! {
    MailSettings in "mail" {
        /// The server that delivers. None: the development outbox, where that of messages is in use, and otherwise no mail.
        url: Option<MailServer> = None, if_any(server);
        /// The password of the user in `url`.
        password: Option<SecretRef> = None, if_any(secret);
        /// Certificate authorities (PEM) that are trusted in addition to the built-in ones.
        ca_file: Option<PathBuf> = None, if_any(path);
        /// The address that our mail is from. Required with `url`.
        from: Option<String> = None, if_any(address);
        /// Where answers go, if not to `from`.
        reply_to: Option<String> = None, if_any(address);
        /// How long the server may take for each step of one mail.
        timeout: Duration = SECOND * 30, duration(SECOND..=MINUTE * 2);
    }
}

section! {
    #[derive(Copy)]
    MailTunables in "mail" {
        /// Whether a code by e-mail sets a new password.
        reset: ResetByMail = ResetByMail::Yes, word(&[("yes", ResetByMail::Yes),
            ("without-number", ResetByMail::WithoutNumber), ("no", ResetByMail::No)]);
        /// Whether owners are told of sign-ins from new devices. Of changes of what opens their account they are always told.
        notices: bool = true, yes_or_no;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetByMail {
    Yes,
    /// Only at accounts without a number.
    WithoutNumber,
    No,
}

/// `smtps://user@host:465` or `smtp://user@host:587`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailServer {
    pub host: String,
    pub port: u16,
    pub security: MailSecurity,
    pub user: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MailSecurity {
    /// TLS from the first byte.
    Implicit,
    /// STARTTLS, and nothing without it.
    StartTls,
    /// On this machine only.
    Plain,
}

const SUBMISSIONS: u16 = 465;
const SUBMISSION: u16 = 587;
/// Where a mail server takes mail of its own machine.
const RELAY: u16 = 25;

fn server(node: ValueNode) -> ParseResult<MailServer> {
    const FORM: &str =
        "write it as \"smtps://user@mail.example.org\" or \"smtp://user@mail.example.org:587\"";
    let url = Url::parse(&node.text()?).map_err(|_| format!("is not a URL; {FORM}"))?;
    if url.password().is_some() {
        return Err("contains a password; write that as mail.password".to_owned());
    }
    let (host, is_local) = match url.host() {
        // The host of a scheme that browsers do not know is not parsed further.
        Some(Host::Domain(name)) if name.contains('%') => {
            return Err("names a server in other letters than ASCII; write its name as \"xn--…\"".to_owned());
        }
        Some(Host::Domain(name)) => match name.parse::<std::net::IpAddr>() {
            Ok(address) => (name.to_owned(), address.is_loopback()),
            Err(_) => (name.to_ascii_lowercase(), name.eq_ignore_ascii_case("localhost")),
        },
        Some(Host::Ipv4(address)) => (address.to_string(), address.is_loopback()),
        Some(Host::Ipv6(address)) => (address.to_string(), address.is_loopback()),
        None => return Err(format!("names no server; {FORM}")),
    };
    if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
        return Err(format!("has something after the server; {FORM}"));
    }
    let (port, security) = match (url.scheme(), is_local) {
        ("smtps", _) => (SUBMISSIONS, MailSecurity::Implicit),
        ("smtp", false) => (SUBMISSION, MailSecurity::StartTls),
        ("smtp", true) => (RELAY, MailSecurity::Plain),
        _ => return Err(format!("is neither smtps:// nor smtp://; {FORM}")),
    };
    let user =
        percent_decode_str(url.username()).decode_utf8().map_err(|_| "has a user that is not UTF-8")?;
    let user = (!user.is_empty()).then(|| user.into_owned());
    Ok(MailServer { host, port: url.port().unwrap_or(port), security, user })
}

/// An address alone: who it is from is said by `brand.name`.
fn address(node: ValueNode) -> ParseResult<String> {
    let text = text(node)?;
    let fits = text.parse::<lettre::Address>().is_ok() && text.is_ascii() && !text.contains(['"', '[']);
    if fits { Ok(text) } else { Err("is not an address alone, such as \"login@example.org\"".to_owned()) }
}

impl MailSettings {
    /// Whether mail is sent, or shown to developers.
    pub fn sends(&self, server: &Server, sms: &SmsSettings) -> bool {
        self.url.is_some() || self.shows(server, sms)
    }

    /// Whether mail is shown to developers: where messages are, too. A server behind a proxy of the same machine that sends
    /// real messages sends no mail until it is told how.
    pub fn shows(&self, server: &Server, sms: &SmsSettings) -> bool {
        self.url.is_none() && server.on_loopback() && sms.shows()
    }
}

/// Reads `[mail]`, and refuses what does not go together.
pub(super) fn read(section: &mut SectionReader<'_>) -> (MailSettings, MailTunables) {
    let (mail, live) = (MailSettings::read(section), MailTunables::read(section));
    if section.failed() {
        return (mail, live);
    }
    match &mail.url {
        Some(_) if mail.from.is_none() => {
            section.refuse_key("url", "needs mail.from, the address that our mail is from");
        }
        Some(MailServer { user: Some(_), .. }) if mail.password.is_none() => {
            section.refuse_key("url", "names a user; set mail.password, such as \"env:MAIL_PASSWORD\"");
        }
        Some(MailServer { user: None, .. }) | None if mail.password.is_some() => {
            section.refuse_key(
                "password",
                "belongs to no user; write the user into mail.url, as smtps://user@host",
            );
        }
        Some(_) | None => {}
    }
    (mail, live)
}
