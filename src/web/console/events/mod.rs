//! `/admin/events`: the recorded decisions and their subjects.

pub mod call;
pub mod page;
pub mod row;
pub mod view;
