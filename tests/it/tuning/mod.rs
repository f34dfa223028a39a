//! The limits changed while it runs: by the API, in files, over several instances.

mod files;
#[cfg(feature = "nacos")]
mod nacos;
pub mod rig;
mod saving;
mod service;
mod shared;
