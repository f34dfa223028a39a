//! Clients of other servers: which certificates they accept, and what they never do.

use std::path::Path;
use std::sync::Arc;

use reqwest::{Client, ClientBuilder};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why there is no client.
pub enum ClientError {
    /// The file of authorities.
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

/// Certificates are checked against Mozilla's list of authorities, which is built in, so that it is the same
/// on every machine. A company's own authorities are added.
fn tls(authorities: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = authorities {
        let refused = |reason: String| ClientError::Authorities(format!("{}: {reason}", path.display()));
        let listed = CertificateDer::pem_file_iter(path).map_err(|wrong| refused(wrong.to_string()))?;
        let before = roots.len();
        for certificate in listed {
            let certificate = certificate.map_err(|wrong| refused(wrong.to_string()))?;
            roots.add(certificate).map_err(|wrong| refused(wrong.to_string()))?;
        }
        if roots.len() == before {
            return Err(refused("contains no certificate".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|wrong| ClientError::Tls(wrong.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
