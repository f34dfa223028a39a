//! Changes of the limits at run time: through the API, in files, over several instances.

mod files;
mod hostile;
#[cfg(feature = "nacos")]
mod nacos;
mod preview;
mod realms;
pub mod rig;
mod saving;
mod service;
mod shared;
