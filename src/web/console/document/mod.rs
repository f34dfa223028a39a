//! Drafts of one part of the document as TOML: their editor, how they are saved, and the page of a draft that came too
//! late.

pub mod call;
pub mod diff;
pub mod draft;
pub mod part;
pub mod saving;
pub mod view;
