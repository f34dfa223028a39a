//! What other programs call, by token.

pub mod attempts;
pub mod limits;
mod program;
pub mod relay;
pub mod verifications;
pub mod wforce;
