//! One receiver: signs a message, posts it to a public address, and takes nothing from the answer but its status.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use url::Url;
use zeroize::Zeroizing;

use crate::clock::Micros;
use crate::config::{SecretError, WebhookEvent, WebhookSettings};
use crate::https;
use crate::public_address::is_public;

/// For the whole attempt (Standard Webhooks recommend 15 to 30 s).
const TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The start of a signing secret.
pub(super) const MARK: &str = "whsec_";
/// Standard Webhooks: 24 to 64 bytes.
pub(super) const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Why a receiver cannot be told anything.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("webhooks[{index}].secret: {reason}")]
    Secret { index: usize, reason: SecretError },
    #[error(
        "webhooks[{index}].secret: is not a signing secret; write whsec_ and 24 to 64 bytes in base64, as from: echo whsec_$(openssl rand -base64 32)"
    )]
    Form { index: usize },
    #[error("webhooks[{index}]: {reason}")]
    Client { index: usize, reason: String },
}

/// What became of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub enum PostResult {
    Delivered,
    /// 410: the receiver wants nothing more.
    Gone,
    Failed {
        reason: String,
    },
}

pub struct WebhookEndpoint {
    index: usize,
    id: String,
    url: Url,
    secret: Zeroizing<Vec<u8>>,
    events: Vec<WebhookEvent>,
    client: Client,
}

/// For the log. The path may hold a token.
impl fmt::Display for WebhookEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "webhooks[{}] {}", self.index, self.url.host_str().unwrap_or_default())
    }
}

impl WebhookEndpoint {
    pub fn open(index: usize, settings: &WebhookSettings) -> Result<Self, EndpointError> {
        let secret = settings.secret.read().map_err(|reason| EndpointError::Secret { index, reason })?;
        let secret = parse_secret(&secret).ok_or(EndpointError::Form { index })?;
        let failed = |reason: String| EndpointError::Client { index, reason };
        let builder = https::client(None).map_err(|wrong| match wrong {
            https::ClientError::Authorities(reason) | https::ClientError::Tls(reason) => failed(reason),
        })?;
        let builder = builder.connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT).pool_max_idle_per_host(0);
        let resolver = CheckedResolver { allow_private: settings.allow_private };
        let client = builder.dns_resolver(resolver).build();
        let client = client.map_err(|wrong| failed(wrong.without_url().to_string()))?;
        let id = blake3::hash(settings.url.as_str().as_bytes()).to_hex()[..16].to_owned();
        Ok(Self { index, id, url: settings.url.clone(), secret, events: settings.events.clone(), client })
    }

    /// Its name in the table of deliveries.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn wants(&self, event: WebhookEvent) -> bool {
        self.events.contains(&event)
    }

    /// One attempt. The answer's body is not read.
    pub async fn post(&self, notice: &str, body: &str, now: Micros) -> PostResult {
        let timestamp = now.seconds();
        let request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("webhook-id", notice)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", sign(&self.secret, notice, timestamp, body))
            .body(body.to_owned());
        match request.send().await {
            Ok(answer) => match answer.status().as_u16() {
                200..300 => PostResult::Delivered,
                410 => PostResult::Gone,
                status => PostResult::Failed { reason: format!("answered {status}") },
            },
            Err(wrong) => PostResult::Failed { reason: failure(&wrong) },
        }
    }
}

/// Without the URL, whose path may hold a token.
fn failure(wrong: &reqwest::Error) -> String {
    let private = std::iter::successors(std::error::Error::source(wrong), |cause| cause.source())
        .any(|cause| cause.is::<PrivateAddress>());
    let reason = if private {
        "its name leads to an address that only this network reaches; if that is meant, set allow_private = true"
    } else if wrong.is_timeout() {
        "did not answer in time"
    } else if wrong.is_connect() {
        "cannot be reached"
    } else {
        "closed the connection without an answer"
    };
    reason.to_owned()
}

fn parse_secret(text: &SecretString) -> Option<Zeroizing<Vec<u8>>> {
    let encoded = text.expose_secret().strip_prefix(MARK)?;
    let bytes = Zeroizing::new(STANDARD.decode(encoded).ok()?);
    SECRET_BYTES.contains(&bytes.len()).then_some(bytes)
}

fn sign(secret: &[u8], notice: &str, timestamp: i64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(format!("{notice}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// Gives only addresses that may be connected to, so that a name that changes its mind between a check and the
/// connection gains nothing: these are the addresses that are connected to.
struct CheckedResolver {
    allow_private: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("no public address")]
struct PrivateAddress;

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let usable = found.into_iter().filter(|at| allow_private || is_public(at.ip()));
            let usable: Vec<SocketAddr> = usable.collect();
            if usable.is_empty() {
                return Err(Box::new(PrivateAddress) as Box<dyn std::error::Error + Send + Sync>);
            }
            Ok(Box::new(usable.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn a_signature_is_as_the_specification_has_it() {
        let secret = parse_secret(&"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned().into()).unwrap();
        let signature =
            sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_has_its_mark_and_24_to_64_bytes() {
        let fits = |text: String| parse_secret(&text.into()).is_some();
        let secret = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        assert_eq!([23, 24, 64, 65].map(|bytes| fits(secret(bytes))), [false, true, true, false]);
        assert!(!fits(STANDARD.encode([7; 32])) && !fits("whsec_???".to_owned()));
    }
}
