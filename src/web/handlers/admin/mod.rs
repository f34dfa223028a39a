//! The handlers of the console: parse, call, match.

pub mod edit;
pub mod events;
mod figures;
pub mod history;
pub mod limits;
pub mod lookup;
pub mod overview;
mod password;
mod trial;
