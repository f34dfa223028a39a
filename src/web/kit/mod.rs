//! Shared by all pages and calls. It names no feature.

#[cfg(feature = "server")]
pub mod assets;
#[cfg(feature = "server")]
pub mod broken;
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
pub mod device;
#[cfg(feature = "server")]
pub mod error_page;
#[cfg(feature = "server")]
pub mod extract;
#[cfg(feature = "server")]
pub mod flash;
#[cfg(feature = "server")]
pub mod headers;
#[cfg(feature = "server")]
pub mod health;
#[cfg(feature = "server")]
pub mod layout;
#[cfg(feature = "server")]
pub mod locale;
#[cfg(feature = "server")]
pub mod message;
#[cfg(feature = "server")]
pub mod next;
#[cfg(feature = "server")]
pub mod observe;
#[cfg(feature = "server")]
pub mod phone;
#[cfg(feature = "server")]
pub mod problem;
#[cfg(feature = "server")]
mod problem_body;
#[cfg_attr(not(feature = "server"), expect(dead_code, reason = "the middleware alone answers three of them"))]
pub(in crate::web) mod problem_kind;
pub mod ratelimit_fields;
#[cfg(feature = "server")]
pub mod secret_field;
#[cfg(feature = "server")]
pub mod services;
#[cfg(feature = "server")]
pub mod visit;
#[cfg(feature = "server")]
pub mod wait;
#[cfg(feature = "server")]
pub mod web_error;
