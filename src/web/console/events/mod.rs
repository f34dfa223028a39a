//! `/admin/events`: the recorded decisions and their subjects.

mod asked;
pub mod call;
mod drawn;
pub mod export;
pub mod page;
pub mod row;
pub mod view;

pub use asked::EventsAsked;
