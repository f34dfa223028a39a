//! The steps shared by all forms that may be challenged.

pub mod fields;
pub mod notice;
pub mod once;
pub mod reply;
