//! `/admin/confirm`: the password, asked for again before a change.

pub mod call;
pub mod carried;
pub mod page;
pub mod view;
