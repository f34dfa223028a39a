//! `/admin/messages`: the ledger of messages, and the brakes.

pub mod call;
pub mod page;
pub mod view;
