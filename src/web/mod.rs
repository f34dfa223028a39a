//! HTTP only: what a request says about its client, and how answers look. Nothing here
//! knows of a database or a store.

pub mod admin;
pub mod api;
pub mod assets;
pub mod challenge;
pub mod client;
pub mod connections;
pub mod cookies;
pub mod csrf;
pub mod device;
pub mod extract;
pub mod flash;
pub mod handlers;
pub mod headers;
pub mod locale;
pub mod message;
pub mod next;
pub mod observe;
pub mod openapi;
pub mod pages;
pub mod phone;
pub mod problem;
mod problem_body;
pub mod rate_limit;
pub mod ratelimit_fields;
pub mod services;
pub mod status;
pub mod subject;
pub mod visit;
pub mod wait;

pub use client::{ClientAddress, TrustedProxies};
pub use flash::Flash;
pub use locale::Locale;
pub use message::{Field, FieldErrors, Message};
pub use next::Next;
pub use problem::Problem;
pub use rate_limit::RateLimit;
pub use visit::{Edge, Visit};
pub use wait::Wait;
