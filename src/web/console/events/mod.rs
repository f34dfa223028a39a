//! `/admin/events`: what was decided, and about whom.

pub mod call;
pub mod page;
pub mod row;
pub mod view;
