//! The OpenID Connect provider, as applications meet it.

mod keys;
