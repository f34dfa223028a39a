//! `/login/code`: signing in with a code.

pub mod call;
pub mod page;
