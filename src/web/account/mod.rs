//! `/account`: the profile, the password, the phone number and the sessions.

pub mod page;
pub mod phone_call;
pub mod phone_page;
pub mod view;
