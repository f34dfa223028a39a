//! `[oidc]`: how tokens for applications are signed, and how long they last.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use super::reader::section;
use super::values::{DAY, HOUR, MINUTE, duration, word};

section! {
    #[derive(Copy)]
    OidcSettings in "oidc" {
        signing: SigningAlgorithm = SigningAlgorithm::Rs256, word(&ALGORITHMS);
        access_token_ttl: Duration = MINUTE * 10, duration(MINUTE..=HOUR);
        /// A refresh token that is not used for this long ends. None outlives its session.
        refresh_idle: Duration = DAY * 14, duration(HOUR..=DAY * 365);
        /// How long a key signs.
        key_rotation: Duration = DAY * 90, duration(DAY * 7..=DAY * 730);
    }
}

/// Algorithms, by their names in JOSE (RFC 7518, 3.1). Every client knows the first (OpenID Connect Core, 15.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, EnumString, IntoStaticStr, Serialize, Deserialize)]
#[strum(serialize_all = "UPPERCASE", const_into_str)]
#[serde(rename_all = "UPPERCASE")]
pub enum SigningAlgorithm {
    /// RSA of 2048 bits, PKCS#1 v1.5, SHA-256.
    #[default]
    Rs256,
    /// ECDSA on P-256, SHA-256.
    Es256,
}

pub(super) const ALGORITHMS: [(&str, SigningAlgorithm); 2] =
    [("RS256", SigningAlgorithm::Rs256), ("ES256", SigningAlgorithm::Es256)];
