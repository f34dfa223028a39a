//! An authority of a test's own, which signs certificates.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::NamedTempFile;

/// An authority, and a file that makes it trusted.
pub struct Authority {
    pub issuer: CertifiedIssuer<'static, KeyPair>,
    pub file: NamedTempFile,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Other than the subject of its certificates, or OpenSSL takes each of them for self-signed.
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(issuer.pem().as_bytes()).unwrap();
        Self { issuer, file }
    }

    /// Files with a certificate for that name and its key.
    pub fn certificate(&self, name: &str) -> [NamedTempFile; 2] {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        [certificate.pem(), key.serialize_pem()].map(|pem| {
            let mut file = NamedTempFile::new().unwrap();
            file.write_all(pem.as_bytes()).unwrap();
            file
        })
    }

    /// With a certificate for that name.
    pub fn redis(&self, name: &str) -> RedisTls {
        RedisTls { files: self.certificate(name), authority: self.file.path().to_owned() }
    }
}

/// What makes a `redis-server` speak TLS, with its replicas and its cluster too.
pub struct RedisTls {
    files: [NamedTempFile; 2],
    authority: PathBuf,
}

impl RedisTls {
    /// The server's options, for TLS at this port.
    pub fn options(&self, port: u16) -> [(&'static str, String); 7] {
        let [certificate, key] = &self.files;
        [
            ("tls-port", port.to_string()),
            ("tls-auth-clients", "no".to_owned()),
            ("tls-replication", "yes".to_owned()),
            ("tls-cluster", "yes".to_owned()),
            ("tls-cert-file", certificate.path().display().to_string()),
            ("tls-key-file", key.path().display().to_string()),
            ("tls-ca-cert-file", self.authority.display().to_string()),
        ]
    }

    pub fn prepare(&self, port: u16, command: &mut Command) {
        for (name, value) in self.options(port) {
            command.args([format!("--{name}"), value]);
        }
    }
}
