//! TLS of the listener: certificate and key from PEM files, read again when they change.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;

/// Certificates of a chain that are named by their fingerprints.
const LISTED: usize = 10;

/// The certificate in use. Cheap to clone; all copies see a new one.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<ArcSwap<Current>>,
}

struct Current {
    config: Arc<ServerConfig>,
    fingerprints: Vec<String>,
}

impl Tls {
    /// Reads both files; `None` where neither is configured.
    pub fn load(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>, Failure> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                let first = read(certificate, key).map_err(Failure::usage)?;
                let current = Arc::new(ArcSwap::from_pointee(first));
                Ok(Some(Self { certificate: certificate.to_owned(), key: key.to_owned(), current }))
            }
            _ => Err(Failure::usage("TLS needs both `tls_cert` and `tls_key`; give both, or neither")),
        }
    }

    /// What takes the next handshake.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.load().config.clone())
    }

    /// Reads the files again; what cannot be used changes nothing. SHA-256 of each certificate of the
    /// chain, before and now.
    pub fn reload(&self) -> Result<(Vec<String>, Vec<String>), String> {
        let now = read(&self.certificate, &self.key)?;
        let fingerprints = now.fingerprints.clone();
        let before = self.current.swap(Arc::new(now));
        Ok((before.fingerprints.clone(), fingerprints))
    }
}

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|b| format!("{b:02x}")).collect()
}

fn read(certificate: &Path, key: &Path) -> Result<Current, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| format!("`tls_cert` {}: no certificate in PEM: {e}", certificate.display()))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|_| {
        // Nothing of a key's file goes into a message.
        format!("`tls_key` {}: cannot be read as a private key in PEM", key.display())
    })?;
    let fingerprints = chain.iter().take(LISTED).map(fingerprint).collect();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| format!("`tls_cert` {} and `tls_key` {}: {e}", certificate.display(), key.display()))?;
    Ok(Current { config: Arc::new(config), fingerprints })
}
