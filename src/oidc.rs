//! OpenID Connect: tokens by which applications know who is signed in.

mod jws;
mod keys;
mod rsa;
mod signature;
#[cfg(test)]
mod tests;

pub use keys::{Jwk, Jwks, NotReady, ResealedKeys, SigningKeys};
pub use signature::PublicKey;
