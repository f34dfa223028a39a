//! The OpenID Connect provider: what applications and their users' browsers ask for.

pub mod keys;
