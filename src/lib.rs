//! Gatehouse: login throttling and SMS anti-abuse on an exact sliding-window limiter.

pub mod clock;
pub mod entropy;
pub mod secret;
pub mod throttle;
pub mod web;

rust_i18n::i18n!("locales", fallback = "en");
