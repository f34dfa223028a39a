//! The limiter on both stores: what every store must do, and both compared with a model.

mod acts;
mod calendar;
mod clock_steps;
mod conformance;
mod floods;
mod holds;
mod model;
mod reading;
mod restoring;
pub mod rig;
