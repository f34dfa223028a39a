//! E-mail: addresses, letters, the queue, the server that delivers, and DNS.

mod dns;
mod letter;
mod mailbox;
mod queue;
mod seal;
mod smtp;
mod transport;

pub use dns::{DnsCheck, DnsResult, MailDns};
pub use letter::{Letter, LetterFacts, LetterKind, letter};
pub use mailbox::{Mailbox, MailboxError};
pub use queue::{
    MailQueue, MailResult, MailState, NoticeRule, TakenMail, tell, tell_elsewhere, tell_of_device,
};
pub use seal::{MailSeal, QueuedMail, SealedLetter};
pub use smtp::{MailDelivery, SmtpCheck, SmtpPhase};
pub use transport::{MailOpenError, MailOutbox, MailTransport, Mailer, SentMail};
