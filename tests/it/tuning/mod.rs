//! The limits changed while it runs: by the API, in files, over several instances.

pub mod rig;
mod saving;
mod service;
mod shared;
