//! Where mails go: to the server that delivers, to the page for developers, or nowhere.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox as Party, MultiPart};
use lettre::{Address, Message};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::ExposeSecret;
use zeroize::Zeroizing;

use super::smtp::{MailDelivery, SmtpCheck, SmtpPhase, SmtpServer};
use super::{Letter, MailQueue, MailSeal, Mailbox};
use crate::clock::{Clock, Micros};
use crate::config::{MailSettings, SecretError, Server, SmsSettings};

/// A setting with which no mail can be sent.
#[derive(Debug, thiserror::Error)]
#[error("{field} {reason}")]
pub struct MailOpenError {
    pub field: &'static str,
    pub reason: String,
}

/// What mails are sent with.
#[derive(Clone)]
pub struct Mailer {
    pub queue: MailQueue,
    pub seal: MailSeal,
    pub transport: MailTransport,
    /// Our own address, without a slash at its end.
    pub public_url: String,
}

#[derive(Clone)]
pub enum MailTransport {
    Smtp(Arc<SmtpTransport>),
    Outbox(MailOutbox),
    /// Nothing is sent, and pages and calls that need mail do not exist.
    Nowhere,
}

pub struct SmtpTransport {
    server: SmtpServer,
    from: Address,
    reply_to: Option<Address>,
}

impl MailTransport {
    /// May read files.
    pub fn open(
        settings: &MailSettings,
        (server, sms): (&Server, &SmsSettings),
        clock: &Clock,
    ) -> Result<Self, MailOpenError> {
        let Some(url) = &settings.url else {
            let outbox = || Self::Outbox(MailOutbox { mails: Arc::default(), clock: clock.clone() });
            return Ok(if settings.shows(server, sms) { outbox() } else { Self::Nowhere });
        };
        let password = settings.password.as_ref().map(crate::config::SecretRef::read).transpose();
        let password = password.map_err(|error: SecretError| MailOpenError {
            field: "mail.password",
            reason: error.to_string(),
        })?;
        let password = password.map(|it| Zeroizing::new(it.expose_secret().to_owned()));
        let address = |field, text: &str| {
            text.parse::<Address>().map_err(|error| MailOpenError { field, reason: error.to_string() })
        };
        let server = SmtpServer {
            host: url.host.clone(),
            port: url.port,
            security: url.security,
            credentials: url.user.clone().zip(password),
            timeout: settings.timeout,
            hello: server.domain().unwrap_or_else(|| "localhost".to_owned()),
            authorities: settings.ca_file.as_deref().map(authorities).transpose()?.unwrap_or_default(),
        };
        let from = address("mail.from", settings.from.as_deref().unwrap_or_default())?;
        let reply_to = settings.reply_to.as_deref().map(|text| address("mail.reply_to", text)).transpose()?;
        Ok(Self::Smtp(Arc::new(SmtpTransport { server, from, reply_to })))
    }

    pub const fn sends(&self) -> bool {
        !matches!(self, Self::Nowhere)
    }

    pub const fn outbox(&self) -> Option<&MailOutbox> {
        match self {
            Self::Outbox(outbox) => Some(outbox),
            Self::Smtp(_) | Self::Nowhere => None,
        }
    }

    /// Does all that comes before a mail, and sends none.
    pub async fn probe(&self) -> MailDelivery {
        match self {
            Self::Smtp(smtp) => smtp.server.probe().await,
            Self::Outbox(_) | Self::Nowhere => MailDelivery::Accepted { said: None },
        }
    }

    /// Hands a letter over, once.
    pub async fn send(&self, id: &str, brand: &str, to: &Mailbox, letter: &Letter) -> MailDelivery {
        match self {
            Self::Smtp(smtp) => smtp.send(id, brand, to, letter).await,
            Self::Outbox(outbox) => {
                outbox.keep(id, to, letter);
                MailDelivery::Accepted { said: None }
            }
            Self::Nowhere => {
                MailDelivery::Deferred { at: SmtpPhase::Connect, reason: "mail.url is not set".to_owned() }
            }
        }
    }

    /// Sends a letter to try the server, and tells in the server's words what became of it. A development outbox tries none.
    pub async fn try_mail(
        &self,
        id: &str,
        brand: &str,
        to: &Mailbox,
        letter: &Letter,
    ) -> Result<String, String> {
        let Self::Smtp(smtp) = self else { return Err("mail.url is not set".to_owned()) };
        let message = smtp.message(id, brand, to, letter).map_err(|error| error.to_string())?;
        let raw = Zeroizing::new(message.formatted());
        smtp.server.try_mail(smtp.from.as_ref(), to.as_str(), &raw).await
    }

    /// Asks the server whether it would take mail of ours; None if there is none.
    pub async fn check(&self) -> Option<SmtpCheck> {
        match self {
            Self::Smtp(smtp) => Some(smtp.server.check().await),
            Self::Outbox(_) | Self::Nowhere => None,
        }
    }
}

impl SmtpTransport {
    async fn send(&self, id: &str, brand: &str, to: &Mailbox, letter: &Letter) -> MailDelivery {
        match self.message(id, brand, to, letter) {
            Ok(message) => {
                let raw = Zeroizing::new(message.formatted());
                self.server.send(self.from.as_ref(), to.as_str(), &raw).await
            }
            Err(error) => {
                tracing::warn!(%error, mail = id, "a mail could not be written");
                MailDelivery::Refused { at: SmtpPhase::Data, reason: "it could not be written".to_owned() }
            }
        }
    }

    /// A message says that a program has sent it, so that no absent person's server answers (RFC 3834).
    fn message(
        &self,
        id: &str,
        brand: &str,
        to: &Mailbox,
        letter: &Letter,
    ) -> Result<Message, lettre::error::Error> {
        let address = to.as_str().parse::<Address>().map_err(|_| lettre::error::Error::MissingTo)?;
        let mut message = Message::builder()
            .from(Party::new(Some(brand.to_owned()), self.from.clone()))
            .to(Party::new(None, address))
            .subject(letter.subject.clone())
            .message_id(Some(format!("<{id}@{}>", self.from.domain())))
            .date_now()
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        if let Some(reply_to) = &self.reply_to {
            message = message.reply_to(Party::new(None, reply_to.clone()));
        }
        message.multipart(MultiPart::alternative_plain_html(letter.text.clone(), letter.html.clone()))
    }
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, MailOpenError> {
    let refused = |reason: String| MailOpenError { field: "mail.ca_file", reason };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(refused(format!("{} contains no certificate", path.display()))),
        Err(error) => Err(refused(format!("{} cannot be read: {error}", path.display()))),
    }
}

const KEPT_MAILS: usize = 1000;

/// The mails of a server for development, on a page of this machine.
#[derive(Clone)]
pub struct MailOutbox {
    mails: Arc<Mutex<VecDeque<SentMail>>>,
    clock: Clock,
}

#[derive(Clone)]
pub struct SentMail {
    pub id: String,
    pub at: Micros,
    pub to: Mailbox,
    pub code: Option<String>,
    pub subject: String,
    pub text: String,
    pub html: String,
}

impl MailOutbox {
    /// Newest first; only those to one mailbox if one is given.
    pub fn mails(&self, to: Option<&Mailbox>) -> Vec<SentMail> {
        let counted = to.map(Mailbox::counted);
        let is_to = |mail: &&SentMail| counted.is_none_or(|counted| counted == mail.to.counted());
        self.mails.lock().iter().rev().filter(is_to).cloned().collect()
    }

    fn keep(&self, id: &str, to: &Mailbox, letter: &Letter) {
        let mail = SentMail {
            id: id.to_owned(),
            at: self.clock.now(),
            to: to.clone(),
            code: letter.code.clone(),
            subject: letter.subject.clone(),
            text: letter.text.clone(),
            html: letter.html.clone(),
        };
        let mut mails = self.mails.lock();
        if mails.len() >= KEPT_MAILS {
            mails.pop_front();
        }
        mails.push_back(mail);
    }
}
