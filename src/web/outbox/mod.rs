//! `/dev/outbox`: the messages of the development gateway.

pub mod page;
pub mod view;
