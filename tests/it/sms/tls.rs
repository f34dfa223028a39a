//! Who may act as a gateway over https: only a server with a certificate of a trusted authority. The code is
//! not sent before that is checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gatehouse::sms::{DeliveryResult, OutOfService};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::gateways::{opened, refused_all, send, some_id, try_open};
use crate::support::authority::Authority;

impl Authority {
    /// A server with a certificate for that name; returns how many requests it has read.
    async fn vouches_for(&self, name: &str, expired: bool) -> (u16, Arc<AtomicUsize>) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        if expired {
            (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            );
        let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let read = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut request = [0; 4096];
                if stream.read(&mut request).await.is_ok_and(|length| length > 0) {
                    read.fetch_add(1, Ordering::SeqCst);
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
                }
            }
        });
        (port, requests)
    }

    fn config(&self, port: u16) -> String {
        format!("{}ca_file = '{}'", config(port), self.file.path().display())
    }
}

fn config(port: u16) -> String {
    format!("[sms]\ngateway = 'http'\n[sms.http]\nurl = 'https://127.0.0.1:{port}/'\n")
}

async fn delivery(config: &str) -> DeliveryResult {
    send(&*opened(config, Duration::from_secs(5)).gateway, some_id()).await
}

#[tokio::test]
async fn an_authority_of_ones_own_is_believed_where_it_is_named() {
    let authority = Authority::new();
    let (port, requests) = authority.vouches_for("127.0.0.1", false).await;
    assert_eq!(delivery(&authority.config(port)).await, DeliveryResult::Accepted { reference: None });
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_stranger_is_told_nothing() {
    let authority = Authority::new();
    let refused = refused_all(OutOfService::Unreachable, "cannot be reached");
    let (unknown, first) = authority.vouches_for("127.0.0.1", false).await;
    assert_eq!(delivery(&config(unknown)).await, refused, "an authority that nobody believes");
    assert_eq!(delivery(&Authority::new().config(unknown)).await, refused, "another authority");
    let (elsewhere, second) = authority.vouches_for("sms.example", false).await;
    assert_eq!(delivery(&authority.config(elsewhere)).await, refused, "another name");
    let (expired, third) = authority.vouches_for("127.0.0.1", true).await;
    assert_eq!(delivery(&authority.config(expired)).await, refused, "an old certificate");
    assert!([first, second, third].iter().all(|requests| requests.load(Ordering::SeqCst) == 0));
}

#[test]
fn a_file_that_names_no_authority_is_refused() {
    let empty = tempfile::NamedTempFile::new().unwrap();
    for (path, reason) in
        [(empty.path(), "contains no certificate"), ("/nowhere/ca.pem".as_ref(), "No such file")]
    {
        let config = format!("{}ca_file = '{}'", config(1), path.display());
        let wrong = try_open(&config, Duration::from_secs(1)).map(|_| ()).unwrap_err().to_string();
        assert!(wrong.starts_with("sms.http.ca_file: ") && wrong.contains(reason), "{wrong}");
    }
}
