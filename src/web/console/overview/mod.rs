//! `/admin`: the figures of the last hours.

pub mod figures;
pub mod page;
pub mod view;
