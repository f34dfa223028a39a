//! Shared by all pages and calls. It names no feature.

#[cfg(feature = "server")]
pub mod access;
#[cfg(feature = "server")]
pub mod action;
#[cfg(feature = "server")]
pub mod assets;
#[cfg(feature = "server")]
pub mod call;
#[cfg(feature = "server")]
pub mod challenge;
pub mod client;
#[cfg(feature = "server")]
pub mod connections;
#[cfg(feature = "server")]
pub mod cookies;
#[cfg(feature = "server")]
pub mod csrf;
#[cfg(feature = "server")]
pub mod describe;
#[cfg(feature = "server")]
pub mod error_page;
#[cfg(feature = "server")]
pub mod extract;
#[cfg(feature = "server")]
pub mod headers;
#[cfg(feature = "server")]
pub mod locale;
#[cfg(feature = "server")]
pub mod message;
#[cfg(feature = "server")]
pub mod next;
#[cfg(feature = "server")]
pub mod observe;
#[cfg(feature = "server")]
pub mod problem;
#[cfg_attr(not(feature = "server"), expect(dead_code, reason = "the middleware alone answers three of them"))]
pub(in crate::web) mod problem_kind;
pub mod ratelimit_fields;
#[cfg(feature = "server")]
pub mod services;
#[cfg(feature = "server")]
pub mod visit;

// Old paths, until the other folders name the new ones.
#[cfg(feature = "server")]
pub mod device {
    pub use super::locale::Device;
}
#[cfg(feature = "server")]
pub mod wait {
    pub use super::locale::{Moment, Wait, in_units, span_in_words, whole_seconds};
}
#[cfg(feature = "server")]
pub mod flash {
    pub use super::visit::{Flash, Flashes};
}
#[cfg(feature = "server")]
pub mod layout {
    pub use super::visit::{LanguageLink, Layout};
}
#[cfg(feature = "server")]
pub mod health {
    pub use super::services::{Health, Limits, Report, State};
}
#[cfg(feature = "server")]
pub mod phone {
    pub use super::extract::parse_phone as parse;
}
#[cfg(feature = "server")]
pub mod secret_field {
    pub use super::extract::SecretField;
}
#[cfg(feature = "server")]
pub mod token {
    pub use super::extract::{admit_program, admit_token as admit, sends_token as is_sent};
}
#[cfg(feature = "server")]
pub mod web_error {
    pub use super::problem::{WebError, WebResult};
}
