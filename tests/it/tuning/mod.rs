//! The limits changed while it runs: by the API, in files, over several instances.

mod files;
mod preview;
pub mod rig;
mod saving;
mod service;
mod shared;
