//! HTTP only: what a request says about its client, and how answers look. Nothing here
//! knows of a database or a store.

#[cfg(feature = "server")]
pub mod admin;
#[cfg(feature = "server")]
pub mod api;
#[cfg(feature = "server")]
pub mod assets;
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
pub mod extract;
#[cfg(feature = "server")]
pub mod flash;
#[cfg(feature = "server")]
pub mod handlers;
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
pub mod openapi;
#[cfg(feature = "server")]
pub mod pages;
#[cfg(feature = "server")]
pub mod phone;
#[cfg(feature = "server")]
pub mod problem;
#[cfg(feature = "server")]
mod problem_body;
#[cfg_attr(not(feature = "server"), expect(dead_code, reason = "the middleware alone answers three of them"))]
mod problem_kind;
pub mod rate_limit;
pub mod ratelimit_fields;
#[cfg(feature = "server")]
pub mod services;
#[cfg(feature = "server")]
pub mod status;
#[cfg(feature = "server")]
pub mod subject;
#[cfg(feature = "server")]
pub mod visit;
#[cfg(feature = "server")]
pub mod wait;

pub use client::{ClientAddress, TrustedProxies};
#[cfg(feature = "server")]
pub use flash::Flash;
#[cfg(feature = "server")]
pub use locale::Locale;
#[cfg(feature = "server")]
pub use message::{Field, FieldErrors, Message};
#[cfg(feature = "server")]
pub use next::Next;
#[cfg(feature = "server")]
pub use problem::Problem;
pub use rate_limit::RateLimit;
#[cfg(feature = "server")]
pub use visit::{Edge, Visit};
#[cfg(feature = "server")]
pub use wait::Wait;
