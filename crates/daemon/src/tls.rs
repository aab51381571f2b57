//! Certificates: shown to clients, asked of them if so configured, and read again when their files change.

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use tokio_rustls::TlsAcceptor;

/// Where the certificates of a listener are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that vouch for it, in PEM.
    pub certificate: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
    /// Whoever has a certificate by one of these may ask without a token, and nobody else may connect at all.
    pub client_ca: Option<PathBuf>,
    /// The protocols to agree on, such as `h2`.
    pub alpn: Vec<Vec<u8>>,
}

/// The certificates of a listener, as they were last read.
pub struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn open(files: TlsFiles) -> Result<Tls, String> {
        let config = ArcSwap::from_pointee(read(&files)?);
        Ok(Tls { files, config })
    }

    /// Reads the files again. Connections that are open go on with the certificates they have.
    ///
    /// # Errors
    /// Which file cannot be used, and why. The certificates before stay in use.
    pub fn reload(&self) -> Result<(), String> {
        self.config.store(Arc::new(read(&self.files)?));
        Ok(())
    }

    /// When the files were changed last.
    pub fn changed(&self) -> Option<SystemTime> {
        let paths = [Some(&self.files.certificate), Some(&self.files.key), self.files.client_ca.as_ref()];
        let changed = |path: &PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        paths.into_iter().flatten().filter_map(changed).max()
    }

    /// What connections are taken by.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.load_full())
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| format!("{}: {error}", path.display()))?)
        }
    };
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key, "a private key", &error))?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| format!("{} and {}: {error}", files.certificate.display(), files.key.display()))?;
    config.alpn_protocols.clone_from(&files.alpn);
    Ok(config)
}

/// The certificates in a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unusable(path, "certificates", &error))?;
    if certificates.is_empty() {
        return Err(format!("{}: there is no certificate in it; it should be in PEM", path.display()));
    }
    Ok(certificates)
}

fn unusable(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> String {
    format!("{}: cannot read {what} in PEM: {error}", path.display())
}
