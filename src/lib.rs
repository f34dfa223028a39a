//! Gatehouse: login throttling and SMS anti-abuse on an exact sliding-window limiter.

pub mod captcha;
pub mod clock;
pub mod config;
pub mod db;
pub mod entropy;
pub mod login;
pub mod secret;
pub mod throttle;
pub mod web;

rust_i18n::i18n!("locales", fallback = "en");
