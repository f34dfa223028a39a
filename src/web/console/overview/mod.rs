//! `/admin`: the figures of the last hours.

pub mod chart;
pub mod figures;
pub mod page;
pub mod view;
