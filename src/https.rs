//! Clients of other servers: which certificates they accept, and what they never do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, ClientBuilder};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::clock::Micros;
use crate::public_address::is_public;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long a receiver that did not answer is told nothing more; twice as long each time, up to the longest.
pub const FIRST_REST: Duration = Duration::from_secs(5);
pub const LONGEST_REST: Duration = Duration::from_secs(60);

/// How long a receiver has not answered.
#[derive(Debug, Default)]
pub struct ReceiverSilence {
    since: Option<Micros>,
    /// Times in a row; those of one wave are one.
    times: u32,
    rests_until: Micros,
}

impl ReceiverSilence {
    pub fn rests(&self, now: Micros) -> bool {
        self.rests_until > now
    }

    /// When the first of the calls was found unanswered; none if it answered the last.
    pub fn since(&self) -> Option<Micros> {
        self.since
    }

    pub fn answered(&mut self) {
        *self = Self::default();
    }

    pub fn unanswered(&mut self, now: Micros) {
        if self.rests(now) {
            return;
        }
        let rest = FIRST_REST * 2_u32.pow(self.times.min(8));
        self.times += 1;
        self.rests_until = now.plus(rest.min(LONGEST_REST));
        self.since.get_or_insert(now);
    }
}

pub enum ClientError {
    Authorities(String),
    Tls(String),
}

/// A client that goes where it is sent, once: an unconfigured redirect or proxy would tell strangers, and a
/// repeated request would say it twice. Trusts the `authorities` in a PEM file in addition to the built-in ones.
pub fn client(authorities: Option<&Path>) -> Result<ClientBuilder, ClientError> {
    let builder = Client::builder()
        .user_agent(concat!("gatehouse/", env!("CARGO_PKG_VERSION")))
        .tls_backend_preconfigured(tls(authorities)?)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .retry(reqwest::retry::never())
        .referer(false);
    Ok(builder)
}

/// A client that posts to addresses that others have configured, each time anew: without `allow_private` only to those that
/// everybody reaches.
pub fn checked_client(allow_private: bool, timeout: Duration) -> Result<Client, String> {
    let builder = client(None).map_err(|wrong| match wrong {
        ClientError::Authorities(reason) | ClientError::Tls(reason) => reason,
    })?;
    let builder = builder.connect_timeout(CONNECT_TIMEOUT).timeout(timeout).pool_max_idle_per_host(0);
    let client = builder.dns_resolver(CheckedResolver { allow_private }).build();
    client.map_err(|wrong| wrong.without_url().to_string())
}

/// Gives only addresses that may be connected to, so that a name that changes its mind between a check and the
/// connection gains nothing: these are the addresses that are connected to.
struct CheckedResolver {
    allow_private: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("no public address")]
pub struct PrivateAddress;

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

/// Certificates are checked against Mozilla's list of authorities, which is built in, so that it is the same
/// on every machine. A company's own authorities are added.
fn tls(authorities: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = authorities {
        for certificate in certificates(path).map_err(ClientError::Authorities)? {
            roots
                .add(certificate)
                .map_err(|wrong| ClientError::Authorities(format!("{}: {wrong}", path.display())))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|wrong| ClientError::Tls(wrong.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The certificates in a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let listed = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match listed {
        Ok(certificates) if Vec::is_empty(&certificates) => {
            Err(format!("{}: contains no certificate", path.display()))
        }
        Ok(certificates) => Ok(certificates),
        Err(wrong) => Err(format!("{}: {wrong}", path.display())),
    }
}

/// Mozilla's authorities and those in a PEM file, in PEM, for clients that take nothing else.
pub fn authorities_and(path: &Path) -> Result<Vec<u8>, String> {
    let own = certificates(path)?;
    // What no verifier can use is told here, where the file is known.
    let mut roots = RootCertStore::empty();
    for certificate in &own {
        roots.add(certificate.clone()).map_err(|wrong| format!("{}: {wrong}", path.display()))?;
    }
    let mut pem = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().chain(&own) {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        STANDARD.encode_string(certificate, &mut pem);
        pem.push_str("\n-----END CERTIFICATE-----\n");
    }
    Ok(pem.into_bytes())
}
