//! Shared by all pages and calls. It names no feature.

pub mod access;
pub mod action;
pub mod api;
pub mod assets;
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
pub mod page;
pub mod problem;
pub mod problem_kind;
pub mod services;
