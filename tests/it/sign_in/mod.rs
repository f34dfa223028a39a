//! Signing in through the API, on both stores.

mod addresses;
mod bursts;
mod captcha;
mod device_cookies;
mod devices;
mod disabling;
mod forgiving;
mod hang_ups;
mod overload;
mod refusals;
mod shared;
pub mod throttling;
