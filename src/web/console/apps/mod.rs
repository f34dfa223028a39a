//! `/admin/apps`: the applications behind the gate, their drafts, and whom a draft lets in and keeps out.

pub mod call;
mod call_body;
pub mod check;
pub mod page;
pub mod trial;
pub mod view;
