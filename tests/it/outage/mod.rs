//! Promise 7: an outage of the store has a policy, nothing fails open, and no restart is needed.

mod database;
mod failover;
mod forgetting;
mod guesses;
mod limiter;
mod postgres;
mod proxy;
mod secured;
mod sign_in;
mod workers;
