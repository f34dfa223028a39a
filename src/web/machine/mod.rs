//! What other programs call, by token.

pub mod limits;
