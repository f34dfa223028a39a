//! Every test that runs real parts, in one binary with one harness.

mod support;
mod throttle;
