//! The gateways, one file each, behind one trait.

mod aliyun;
mod call;
mod escape;
mod http;
mod none;
mod outbox;
mod template;
mod token;
mod twilio;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::{MessageId, Phone, SmsCode};
use crate::clock::Clock;
use crate::config::{self, SecretError};
use crate::entropy::Entropy;
use crate::secret::MasterKey;

pub use outbox::{Outbox, OutboxMessage};
use token::ReportTokens;

/// One message to one number.
#[derive(Clone, Copy)]
pub struct SmsMessage<'a> {
    pub id: MessageId,
    pub phone: &'a Phone,
    pub code: &'a SmsCode,
    /// The whole text including the code. As secret as the code.
    pub text: &'a str,
}

impl fmt::Debug for SmsMessage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Message({})", self.id)
    }
}

/// The outcome of a message, as far as the gateway says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// The gateway has accepted it. `reference` is the gateway's id for it.
    Accepted { reference: Option<String> },
    /// It was certainly not sent. `reason` is for the log and the ledger: no number, no code.
    Refused { reason: String },
    /// It may have been sent: it counts, and is never sent again.
    Unknown { reason: String },
}

/// The result of a send.
pub type SendFuture<'a> = Pin<Box<dyn Future<Output = DeliveryResult> + Send + 'a>>;

/// Sends messages.
pub trait SmsGateway: Send + Sync {
    /// The name in the configuration, in the ledger and in the URL of its reports.
    fn name(&self) -> &'static str;

    /// Tries once; only a failed connection is tried again. Waits at most the gateway's timeout.
    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a>;

    /// The content of a call to `/sms/reports/{gateway}`, if it is authentic.
    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError>;

    /// The answer to a valid report, with status 200, so that the gateway does not repeat it; `None` if an
    /// empty answer is enough.
    fn acknowledgement(&self) -> Option<ReportAcknowledgement<'_>> {
        None
    }
}

/// An answer to a delivery report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportAcknowledgement<'a> {
    pub content_type: &'static str,
    pub body: &'a str,
}

/// A delivery report as it was received.
pub struct ReportCall<'a> {
    /// The URL that was called, as the gateway knows it: with `server.public_url` and the query.
    pub url: &'a str,
    pub query: &'a str,
    pub header: &'a dyn Fn(&str) -> Option<String>,
    pub body: &'a [u8],
}

/// What happened to one message between the gateway and the telephone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    pub message: ReportedMessage,
    pub state: ReportState,
    /// The gateway's own code or word for it; no number, no code.
    pub detail: Option<String>,
}

/// Which message a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportedMessage {
    Id(MessageId),
    /// The gateway's id from when it accepted the message.
    Reference(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportState {
    /// Still on its way.
    Pending,
    Delivered,
    Failed,
}

/// Why a report is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    #[error("this report is not from the gateway")]
    NotAuthentic,
    #[error("this report cannot be read: {0}")]
    Unreadable(String),
    #[error("this gateway sends no reports")]
    NotOffered,
}

/// The gateway that the configuration selects.
#[derive(Clone)]
pub struct OpenedGateway {
    pub gateway: Arc<dyn SmsGateway>,
    /// The same gateway, if it is the outbox: for the page that shows it.
    pub outbox: Option<Outbox>,
}

/// Why the chosen gateway cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{field}: {reason}")]
    Secret { field: String, reason: SecretError },
    #[error("{field}: {reason}")]
    Setting { field: &'static str, reason: String },
    #[error("sms: TLS for the gateway cannot be set up: {0}")]
    Tls(String),
}

impl OpenError {
    fn secret(field: impl Into<String>) -> impl FnOnce(SecretError) -> Self {
        let field = field.into();
        |reason| Self::Secret { field, reason }
    }
}

/// What every gateway needs.
pub struct GatewayParts<'a> {
    pub master: &'a MasterKey,
    /// The base URL to which gateways send their reports.
    pub public_url: &'a Url,
    /// `sms.timeout`
    pub timeout: Duration,
    pub clock: Clock,
    pub entropy: Entropy,
}

/// Opens the selected gateway and reads its secrets.
pub fn open(chosen: &config::GatewaySettings, parts: GatewayParts<'_>) -> Result<OpenedGateway, OpenError> {
    let tokens = ReportTokens::new(parts.master, parts.public_url);
    let gateway: Arc<dyn SmsGateway> = match chosen {
        config::GatewaySettings::Outbox => {
            let outbox = Outbox::new(parts.clock);
            return Ok(OpenedGateway { gateway: Arc::new(outbox.clone()), outbox: Some(outbox) });
        }
        config::GatewaySettings::None => Arc::new(none::NoGateway),
        config::GatewaySettings::Http(settings) => {
            let line = call::GatewayClient::open(parts.timeout, settings.ca_file.as_deref())?;
            Arc::new(http::HttpGateway::open(settings, line, tokens)?)
        }
        config::GatewaySettings::Twilio(settings) => Arc::new(twilio::TwilioGateway::open(
            settings,
            call::GatewayClient::open(parts.timeout, None)?,
            tokens,
        )?),
        config::GatewaySettings::Aliyun(settings) => {
            let line = call::GatewayClient::open(parts.timeout, None)?;
            Arc::new(aliyun::AliyunGateway::open(settings, line, tokens, parts.clock, parts.entropy)?)
        }
    };
    Ok(OpenedGateway { gateway, outbox: None })
}
