//! `/login`: signing in with a password.

pub mod call;
pub mod page;
pub mod view;
