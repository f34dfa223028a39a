//! OpenID Connect: tokens by which applications know who is signed in.

mod authorization;
mod check;
mod claims;
mod client_secrets;
mod jws;
mod keys;
mod logouts;
mod refused;
mod request;
mod rsa;
mod signature;
#[cfg(test)]
mod tests;
mod wrong_calls;

pub use authorization::{CONTINUE, ClientRequest, ParameterFault, Unanswerable, request_at};
pub use check::{Ask, ClientCheck};
pub use claims::{Authentication, Claims, IdToken, IdTokenHint};
pub use client_secrets::{ClientSecretId, ClientSecrets, StoredSecret};
pub use keys::{Jwk, Jwks, NotReady, ResealedKeys, TokenKeys};
pub use logouts::LogoutNotices;
pub use refused::{RefusedRedirect, RefusedRequests};
pub use request::{
    AuthorizationRequest, CLASSES, NO_PKCE, OAuthError, PROVED_SINCE, Parameters, SCOPES, redirect_with,
};
pub use signature::PublicKey;
pub use wrong_calls::WrongCalls;
