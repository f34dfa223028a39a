//! Every test that runs real parts, in one binary with one harness.

mod accounts;
mod architecture;
mod browser;
mod command_line;
mod openapi;
mod outage;
pub mod reload;
mod sign_in;
mod sms;
mod support;
mod throttle;
mod tuning;
