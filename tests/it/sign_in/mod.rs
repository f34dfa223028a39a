//! Signing in by the API, on both stores.

mod addresses;
mod bursts;
mod captcha;
mod disabling;
mod hang_ups;
mod refusals;
mod throttling;
