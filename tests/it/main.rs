//! Every test that runs real parts, in one binary with one harness.

mod architecture;
mod command_line;
mod openapi;
mod outage;
mod reload;
mod sign_in;
mod support;
mod throttle;
