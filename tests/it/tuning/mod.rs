//! The limits changed while it runs: by the API, in files, over several instances.

mod rig;
mod saving;
mod shared;
