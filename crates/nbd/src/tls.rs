//! TLS: certificates, and the clients that must use it.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::{Error, Result};

/// Whether clients use TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPolicy {
    /// TLS is not offered.
    Off,
    /// A client may use it.
    Optional,
    /// Without it, a client is refused.
    Required,
}

/// A server's side of TLS.
#[derive(Clone)]
pub struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) required: bool,
}

impl Tls {
    /// Reads the server's certificate chain and its key, in PEM; with `client_ca`, clients must
    /// have a certificate that is signed by one of that file's.
    ///
    /// # Errors
    /// [`Error::TlsFile`] or [`Error::Tls`].
    pub fn from_files(
        certificates: &Path,
        key: &Path,
        client_ca: Option<&Path>,
        required: bool,
    ) -> Result<Self> {
        let tls = |e: rustls::Error| Error::Tls(e.to_string());
        let provider = Arc::new(default_provider());
        let chain = read_certificates(certificates)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(|e| bad_file(key, e))?;
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(tls)?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    roots.add(certificate).map_err(|e| bad_file(path, e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .map_err(|e| bad_file(path, e))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain, key).map_err(tls)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            required,
        })
    }
}

fn bad_file(path: &Path, reason: impl ToString) -> Error {
    Error::TlsFile {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|e| bad_file(path, e))?
        .collect();
    let all = all.map_err(|e| bad_file(path, e))?;
    if all.is_empty() {
        return Err(bad_file(path, "holds no certificate"));
    }
    Ok(all)
}
