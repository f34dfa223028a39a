//! What every form that may be challenged goes through.

pub mod fields;
pub mod notice;
pub mod reply;
