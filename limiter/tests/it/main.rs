//! The limiter's tests on real Redis servers and behind a real HTTP server, and what the crate brings along.

mod library;
mod middleware;
/// The servers, clocks and limits of the application's tests.
#[path = "../../../tests/it/support"]
#[expect(dead_code, reason = "the application's tests use more of them")]
mod support {
    pub mod answer;
    pub mod authority;
    pub mod limits;
    pub mod ports;
    pub mod redis;
    pub mod redis_group;
    pub mod steered;
}
mod throttle;
