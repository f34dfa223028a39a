//! An authority of a test's own, which signs certificates.

use std::io::Write;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
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
}
