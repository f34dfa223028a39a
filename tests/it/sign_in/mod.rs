//! Signing in by the API, on both stores.

mod bursts;
