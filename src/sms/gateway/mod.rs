//! What carries a message to a telephone, behind one trait; a file each.

mod outbox;

use std::future::Future;
use std::pin::Pin;

use super::{Code, MessageId, Phone};

pub use outbox::{Outbox, OutboxMessage};

/// One message to one number.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    pub id: MessageId,
    pub phone: &'a Phone,
    pub code: &'a Code,
    /// The whole text, the code in it. As secret as the code.
    pub text: &'a str,
}

/// What became of a message, as far as its gateway says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The gateway has taken it. `reference` is what the gateway calls it.
    Accepted { reference: Option<String> },
    /// It has certainly not gone out. `reason` is for the log and the ledger: no number, no code.
    Refused { reason: String },
    /// It may have gone out: it counts, and is never sent again.
    Unknown { reason: String },
}

/// Carries messages.
pub trait Gateway: Send + Sync {
    /// As in the configuration, the ledger and the address of its reports.
    fn name(&self) -> &'static str;

    /// Tries once; only a connection that was never made is tried again. Waits at most the gateway's
    /// time-out.
    fn send<'a>(&'a self, message: Message<'a>) -> Pin<Box<dyn Future<Output = Delivery> + Send + 'a>>;

    /// What a call to `/sms/reports/{gateway}` says, where it is authentic.
    fn reports(&self, call: &ReportCall<'_>) -> Result<Vec<Report>, ReportError>;
}

/// A delivery report as it came in.
pub struct ReportCall<'a> {
    /// The address that was called, as the gateway was told it: with `server.public_url` and the query.
    pub url: &'a str,
    pub query: &'a str,
    pub header: &'a dyn Fn(&str) -> Option<String>,
    pub body: &'a [u8],
}

/// How one message fared on its way from the gateway to the telephone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub message: Reported,
    pub state: ReportState,
    /// The gateway's own code or word for it; no number, no code.
    pub detail: Option<String>,
}

/// Which message a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    Id(MessageId),
    /// What the gateway called it when it accepted it.
    Reference(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportState {
    /// On its way still.
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
    #[error("this gateway reports nothing")]
    NotOffered,
}
