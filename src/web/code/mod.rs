//! Codes by SMS, for pages and API calls, for every purpose.

pub mod call;
pub mod fields;
pub mod page;
pub mod view;
