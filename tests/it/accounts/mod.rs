//! Accounts, sessions and the edge of the site around them.

mod edge;
mod forgery;
mod hostile_input;
mod passwords;
mod registration;
mod sessions;
