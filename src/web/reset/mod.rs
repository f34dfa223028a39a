//! `/password/reset`: a new password by a code.

pub mod call;
pub mod page;
