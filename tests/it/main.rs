//! Every test that runs real parts, in one binary with one harness.

mod accounts;
mod browser;
mod sign_in;
mod support;
mod throttle;
