//! Codes by SMS: asked for by a page or a call, whatever they are for.

pub mod call;
pub mod fields;
pub mod page;
pub mod view;
