//! Limits that are changed while they are in force, and what a change would have done.

pub mod replay;
