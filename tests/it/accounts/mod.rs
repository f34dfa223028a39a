//! Accounts, sessions and the edge of the site around them.

mod breached;
mod edge;
mod failures;
mod foreign_cookies;
mod forgery;
mod hostile_input;
mod imported;
mod invitations;
mod own_data;
mod passwords;
mod registration;
mod repeated;
mod sessions;
