//! `/admin/lookup`: what the limits say of one subject now.

pub mod call;
pub mod page;
pub mod subject;
pub mod view;
