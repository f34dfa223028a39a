//! `/admin/confirm`: confirms the password before a change.

pub mod call;
pub mod carried;
pub mod page;
pub mod view;
