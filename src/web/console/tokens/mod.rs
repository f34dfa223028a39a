//! `/admin/tokens`: tokens for other programs.

pub mod call;
pub mod page;
pub mod view;
