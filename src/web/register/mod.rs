//! `/register`: a new account.

pub mod call;
pub mod page;
pub mod view;
