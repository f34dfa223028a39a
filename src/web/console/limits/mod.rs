//! `/admin/limits`: the limits in force, their drafts and previews, and their history.

pub mod call;
pub mod draft;
pub mod edit_page;
pub mod edit_view;
pub mod history_call;
pub mod history_page;
pub mod history_view;
pub mod page;
pub mod preview;
pub mod preview_call;
pub mod schema;
pub mod trial;
pub mod view;
