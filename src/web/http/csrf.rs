//! Whether a state-changing request comes from our own pages. Headers name its origin. Forms also carry a
//! token, which only a page made for this browser has.

use actix_web::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, ORIGIN, REFERER, TRANSFER_ENCODING};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use url::Url;

use crate::entropy::Entropy;
use crate::secret::{SigningKeys, SubKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provenance {
    SameOrigin,
    Foreign,
    /// No recent browser sends a form without one of these headers. Other clients do.
    Untold,
}

/// A random number that a browser keeps. Form tokens and challenges are bound to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Browser([u8; 16]);

impl Browser {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    pub fn parse(cookie: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(cookie).ok()?.try_into().ok().map(Self)
    }

    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Challenges are bound to these bytes. Hash them with a key before storing them.
    pub const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl std::fmt::Debug for Browser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Browser(…)")
    }
}

/// The checks; the keys are `web.csrf`.
#[derive(Clone)]
pub struct Csrf {
    keys: SigningKeys,
    origin: String,
}

impl Csrf {
    pub fn new(keys: SigningKeys, public_url: &Url) -> Self {
        Self { keys, origin: public_url.origin().ascii_serialization() }
    }

    /// `Sec-Fetch-Site` decides if it is sent (a page cannot set it), then `Origin`, then the origin of
    /// `Referer`. `none` means that a person typed the URL, which changes nothing here.
    pub fn provenance(&self, headers: &HeaderMap) -> Provenance {
        let told = |same: bool| if same { Provenance::SameOrigin } else { Provenance::Foreign };
        if let Some(site) = headers.get("sec-fetch-site") {
            return told(site.as_bytes() == b"same-origin");
        }
        if let Some(origin) = headers.get(ORIGIN) {
            return told(origin.as_bytes().eq_ignore_ascii_case(self.origin.as_bytes()));
        }
        let Some(referer) = headers.get(REFERER) else { return Provenance::Untold };
        let referer = referer.to_str().ok().and_then(|text| Url::parse(text).ok());
        told(referer.is_some_and(|page| page.origin().ascii_serialization() == self.origin))
    }

    /// A form: never from another site, and always with its token. Both are required: a sibling site that
    /// sets cookies passes neither check, and for an old browser without these headers only the token
    /// protects.
    pub fn admits_form(&self, from: Provenance, browser: Option<&Browser>, token: &str) -> bool {
        from != Provenance::Foreign && browser.is_some_and(|browser| self.verify(browser, token))
    }

    /// An API call: from our pages, or from a client without these headers that sends what no form can: JSON
    /// or no body at all. Another site needs CORS permission to send JSON, and never gets it.
    pub fn admits_call(&self, headers: &HeaderMap) -> bool {
        match self.provenance(headers) {
            Provenance::SameOrigin => true,
            Provenance::Foreign => false,
            Provenance::Untold => match headers.get(CONTENT_TYPE) {
                Some(kind) => is_json(kind.as_bytes()),
                None => {
                    let empty = headers.get(CONTENT_LENGTH).is_none_or(|length| length.as_bytes() == b"0");
                    empty && !headers.contains_key(TRANSFER_ENCODING)
                }
            },
        }
    }

    /// The token for a browser's forms, with a new mask each time. Otherwise a compressed page that also
    /// reflects input would reveal the token byte by byte (BREACH).
    pub fn token(&self, browser: &Browser, entropy: &Entropy) -> String {
        let mask: [u8; 16] = entropy.bytes();
        let mut both = [0; 32];
        both[..16].copy_from_slice(&mask);
        for (index, byte) in plain(self.keys.signing(), browser).into_iter().enumerate() {
            both[16 + index] = byte ^ mask[index];
        }
        URL_SAFE_NO_PAD.encode(both)
    }

    fn verify(&self, browser: &Browser, token: &str) -> bool {
        let Ok(Ok(both)) = URL_SAFE_NO_PAD.decode(token).map(<[u8; 32]>::try_from) else { return false };
        let (mask, masked) = both.split_at(16);
        let told: Vec<u8> = masked.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        self.keys.signer(&told, |key| plain(key, browser)).is_some()
    }
}

fn plain(key: &SubKey, browser: &Browser) -> [u8; 16] {
    *key.hash(&[&browser.0]).first_chunk().expect("a hash of 32 bytes")
}

fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
#[path = "csrf_tests.rs"]
mod tests;
