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
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;

/// The certificate in use. Cheap to clone; all copies see a new one.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<ArcSwap<ServerConfig>>,
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
        TlsAcceptor::from(self.current.load_full())
    }

    /// Reads the files again; what cannot be used changes nothing.
    pub fn reload(&self) -> Result<(), String> {
        self.current.store(Arc::new(read(&self.certificate, &self.key)?));
        Ok(())
    }
}

fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| format!("`tls_cert` {}: no certificate in PEM: {e}", certificate.display()))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|_| {
        // Nothing of a key's file goes into a message.
        format!("`tls_key` {}: cannot be read as a private key in PEM", key.display())
    })?;
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|e| format!("`tls_cert` {} and `tls_key` {}: {e}", certificate.display(), key.display()))
}
