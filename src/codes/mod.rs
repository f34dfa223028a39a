//! Messages with a code: who may have one, how it is sent only once, and what proves that it was received.

mod budgets;
mod check;
mod costs;
mod decide;
mod ledger;
mod mailing;
mod message_limits;
mod metrics;
mod money;
mod recipient;
mod request;
mod send;
mod service;
mod slots;
mod spent;

pub use check::{CheckOutcome, CodeGuess, Proven, VerificationOutcome};
pub use costs::{CountryFigures, as_text};
pub use ledger::{Guesser, Ledger, LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage, MessageState};
pub use recipient::{Channel, Recipient};
pub use request::{RequestedMessage, SendOutcome, SendReceipt};
pub use send::{InTurn, TurnResult};
pub use service::{CodeService, CodesDeps, MailServerState, RecipientOwners};
pub use spent::{BudgetLevel, SpentRule};
