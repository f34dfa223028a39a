//! `/admin/lookup`: the current state of the limits for one subject.

mod asked;
pub mod call;
pub mod page;
pub mod subject;
pub mod view;
