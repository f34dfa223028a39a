//! Shared by all pages and calls. It names no feature.

pub mod access;
pub mod action;
pub mod assets;
pub mod call;
pub mod challenge;
pub mod client;
pub mod connections;
pub mod cookies;
pub mod csrf;
pub mod describe;
pub mod error_page;
pub mod extract;
pub mod headers;
pub mod locale;
pub mod message;
pub mod next;
pub mod observe;
pub mod problem;
pub mod problem_kind;
pub mod services;
pub mod visit;

// Old paths, until the other folders name the new ones.
pub mod device {
    pub use super::locale::Device;
}
pub mod wait {
    pub use super::locale::{Moment, Wait, in_units, span_in_words, whole_seconds};
}
pub mod flash {
    pub use super::visit::{Flash, Flashes};
}
pub mod layout {
    pub use super::visit::{LanguageLink, Layout};
}
pub mod health {
    pub use super::services::{Health, Limits, Report, State};
}
pub mod phone {
    pub use super::extract::parse_phone as parse;
}
pub mod secret_field {
    pub use super::extract::SecretField;
}
pub mod token {
    pub use super::extract::{admit_program, admit_token as admit, sends_token as is_sent};
}
pub mod web_error {
    pub use super::problem::{WebError, WebResult};
}
