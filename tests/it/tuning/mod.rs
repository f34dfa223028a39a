//! The limits changed while it runs: by the API, in files, over several instances.

#[cfg(feature = "nacos")]
mod nacos;
pub mod rig;
mod saving;
mod service;
mod shared;
