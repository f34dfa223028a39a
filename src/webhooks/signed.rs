//! Calls signed as Standard Webhooks are: to a receiver, which is posted to at a public address and of whose answer only the
//! status is taken; and from identity providers, of whose hooks it is found out whether they are theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Client;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;
use url::Url;
use zeroize::Zeroizing;

use crate::clock::Micros;
use crate::config::{Relays, SecretError, SecretRef, WebhookEvent, WebhookSettings};
use crate::https;

/// For the whole attempt (Standard Webhooks recommend 15 to 30 s).
const TIMEOUT: Duration = Duration::from_secs(15);
const MARK: &str = "whsec_";
/// Standard Webhooks: 24 to 64 bytes.
const SECRET_BYTES: RangeInclusive<usize> = 24..=64;

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

#[derive(Debug, PartialEq, Eq)]
pub enum PostResult {
    Delivered,
    /// 410: the receiver wants nothing more.
    Gone,
    /// It answered something else.
    Failed {
        reason: String,
    },
    /// It did not answer.
    Silent {
        reason: String,
    },
}

impl PostResult {
    /// In the metrics.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Gone => "gone",
            Self::Failed { .. } | Self::Silent { .. } => "failed",
        }
    }
}

pub struct WebhookEndpoint {
    index: usize,
    pub id: String,
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
        let client = https::checked_client(settings.allow_private, TIMEOUT).map_err(failed)?;
        let id = blake3::hash(settings.url.as_str().as_bytes()).to_hex()[..16].to_owned();
        Ok(Self { index, id, url: settings.url.clone(), secret, events: settings.events.clone(), client })
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
            Err(wrong) => PostResult::Silent { reason: failure(&wrong) },
        }
    }
}

/// Without the URL, whose path may hold a token.
fn failure(wrong: &reqwest::Error) -> String {
    let private = std::iter::successors(std::error::Error::source(wrong), |cause| cause.source())
        .any(|cause| cause.is::<https::PrivateAddress>());
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

fn signature(secret: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

fn sign(secret: &[u8], notice: &str, timestamp: i64, body: &str) -> String {
    let mac = signature(secret, notice, &timestamp.to_string(), body.as_bytes());
    format!("{VERSION},{}", STANDARD.encode(mac.finalize().into_bytes()))
}

/// How old or new a call may be (Standard Webhooks recommend some minutes). A message is recognised for twice as long,
/// so that a call from the future cannot be replayed at the end of that.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);
/// The version of signatures that this is, before each of them and before Supabase's secrets.
const VERSION: &str = "v1";
/// A caller with two secrets sends two.
const MOST_SIGNATURES: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum HookSecretError {
    #[error("relay.{relay}.secret: {reason}")]
    Secret { relay: String, reason: SecretError },
    #[error(
        "relay.{relay}.secret: is not a signing secret; it is whsec_ and 24 to 64 bytes in base64, as the provider shows it, with v1, before it or without"
    )]
    Form { relay: String },
    #[error(
        "relay.{relay}.secret: is the secret of relay.{other}, too; a signature does not say which of them a call is for, so each needs its own"
    )]
    Shared { relay: String, other: String },
}

type HookSecret = Zeroizing<Vec<u8>>;

#[derive(Default)]
pub struct SignedHooks(BTreeMap<String, Vec<HookSecret>>);

pub struct HookCall<'a> {
    pub id: &'a str,
    pub timestamp: &'a str,
    /// Several with spaces between them, as the standard writes them, or commas, as Supabase does.
    pub signatures: &'a str,
    pub body: &'a [u8],
}

impl SignedHooks {
    pub fn open(relays: &Relays) -> Result<Self, HookSecretError> {
        Self::of(relays.iter().map(|(name, settings)| (name.as_str(), &settings.secrets[..])))
    }

    fn of<'a>(relays: impl Iterator<Item = (&'a str, &'a [SecretRef])>) -> Result<Self, HookSecretError> {
        let mut hooks = BTreeMap::<String, Vec<HookSecret>>::new();
        for (name, listed) in relays {
            let relay = || name.to_owned();
            let mut secrets = Vec::new();
            for secret in listed {
                let text =
                    secret.read().map_err(|reason| HookSecretError::Secret { relay: relay(), reason })?;
                let secret = parse(&text).ok_or_else(|| HookSecretError::Form { relay: relay() })?;
                if let Some((other, _)) = hooks.iter().find(|(_, secrets)| secrets.contains(&secret)) {
                    return Err(HookSecretError::Shared { relay: relay(), other: other.clone() });
                }
                secrets.push(secret);
            }
            hooks.insert(relay(), secrets);
        }
        Ok(Self(hooks))
    }

    /// Whether one of the relay's secrets has signed the call, just now. No relay is like one without secrets.
    pub fn admits(&self, relay: &str, call: &HookCall<'_>, now: Micros) -> bool {
        let Some(secrets) = self.0.get(relay) else { return false };
        is_recent(call.timestamp, now) && secrets.iter().any(|secret| is_signed(secret, call))
    }
}

fn parse(text: &SecretString) -> Option<HookSecret> {
    let text = text.expose_secret().trim();
    let text = text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(',')).unwrap_or(text);
    let encoded = text.strip_prefix(MARK)?.trim_end_matches('=');
    let bytes = Zeroizing::new(STANDARD_NO_PAD.decode(encoded).ok()?);
    SECRET_BYTES.contains(&bytes.len()).then_some(bytes)
}

/// Whole seconds since 1970, and nothing else. At most as old as is tolerated, and less far ahead.
fn is_recent(timestamp: &str, now: Micros) -> bool {
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|letter| letter.is_ascii_digit());
    let Some(seconds) = timestamp.parse::<i64>().ok().filter(|_| digits) else { return false };
    let signed = Micros::from_seconds(seconds);
    now.since(signed) <= TOLERANCE && signed.since(now) < TOLERANCE
}

fn is_signed(secret: &[u8], call: &HookCall<'_>) -> bool {
    let mac = signature(secret, call.id, call.timestamp, call.body);
    let words: Vec<&str> =
        call.signatures.split([' ', ',']).filter(|word| !word.is_empty()).take(2 * MOST_SIGNATURES).collect();
    let signed = |signature: &str| {
        let bytes = STANDARD_NO_PAD.decode(signature.trim_end_matches('='));
        // Compares in constant time.
        bytes.is_ok_and(|bytes| mac.clone().verify_slice(&bytes).is_ok())
    };
    words.windows(2).any(|pair| pair[0] == VERSION && signed(pair[1]))
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

    const NOW: Micros = Micros::from_seconds(1_700_000_000);

    fn hooks() -> SignedHooks {
        let secret = |byte| Zeroizing::new(vec![byte; 32]);
        SignedHooks([("one".to_owned(), vec![secret(1), secret(2)]), ("none".to_owned(), vec![])].into())
    }

    fn signature(byte: u8, timestamp: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&[byte; 32]).unwrap();
        mac.update(format!("msg.{timestamp}.body").as_bytes());
        format!("v1,{}=", STANDARD_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    fn admits(relay: &str, timestamp: &str, signatures: &str) -> bool {
        let call = HookCall { id: "msg", timestamp, signatures, body: b"body" };
        hooks().admits(relay, &call, NOW)
    }

    #[test]
    fn one_of_several_signatures_by_either_secret_is_enough() {
        let now = "1700000000";
        let (one, two, other) = (signature(1, now), signature(2, now), signature(3, now));
        for good in [
            one.clone(),
            two.clone(),
            format!("{other} {one}"),
            format!("{other}, {two}"),
            format!("{one},{other}"),
            format!("v2,x {two}"),
            one.trim_end_matches('=').to_owned(),
        ] {
            assert!(admits("one", now, &good), "{good}");
        }
        for bad in [
            other.clone(),
            String::new(),
            "v1,".to_owned(),
            "v1,AAAA".to_owned(),
            one.replace("v1,", "v2,"),
            one.replace("v1,", "v1a,"),
            one.replace("v1,", ""),
            format!("{}{one}", "v1,AAAA ".repeat(MOST_SIGNATURES)),
        ] {
            assert!(!admits("one", now, &bad), "{bad}");
        }
        assert!(!admits("none", now, &one) && !admits("two", now, &one));
    }

    #[test]
    fn a_call_is_recent_for_five_minutes_before_and_after() {
        let at = |timestamp: &str| admits("one", timestamp, &signature(1, timestamp));
        assert!(at("1699999700") && at("1700000299"));
        for bad in [
            "1699999699",
            // Replayed as it gets too old, its message would just be forgotten.
            "1700000300",
            "",
            "-1700000000",
            "+1700000000",
            "1700000000.0",
            "1e9",
            "99999999999999999999",
        ] {
            assert!(!at(bad), "{bad}");
        }
    }

    #[test]
    fn a_secret_belongs_to_one_relay() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("whsec_{}", STANDARD_NO_PAD.encode([7; 32]))).unwrap();
        let secret = || SecretRef::File(file.path().to_owned());
        let (once, twice) = ([secret()], [secret(), secret()]);
        let shared = SignedHooks::of([("one", &once[..]), ("two", &once[..])].into_iter());
        let told = shared.err().expect("a refusal").to_string();
        assert!(told.starts_with("relay.two.secret: is the secret of relay.one, too"), "{told}");
        assert!(SignedHooks::of([("one", &twice[..])].into_iter()).is_ok());
    }

    #[test]
    fn a_secret_is_read_as_providers_show_it() {
        let key = STANDARD_NO_PAD.encode([7; 32]);
        for text in [format!("whsec_{key}"), format!("v1,whsec_{key}="), format!("v1,whsec_{key}")] {
            assert_eq!(**parse(&text.into()).expect("a secret"), [7; 32]);
        }
        for text in
            [key.clone(), format!("v1,{key}"), "whsec_AAAA".into(), format!("whsec_{key}!"), "whsec_".into()]
        {
            assert!(parse(&text.into()).is_none());
        }
    }
}
