//! Gatehouse: login throttling and SMS anti-abuse on an exact sliding-window limiter.

pub mod clock;
pub mod config;
pub mod entropy;
pub mod secret;
pub mod throttle;
