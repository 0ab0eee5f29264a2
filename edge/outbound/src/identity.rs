//! The client certificate of this server, which is read again when its files change.

use holdfast_tls::keys;
use holdfast_tls::server::{Stamp, stamp};
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A client certificate with its key.
pub struct Identity {
    shown: Arc<PresentedCertificate>,
    files: Option<CertificateFiles>,
    generation: AtomicU64,
}

struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    stamps: Mutex<[Option<Stamp>; 2]>,
}

/// The certificate that the next connection presents.
#[derive(Debug)]
struct PresentedCertificate(RwLock<Arc<CertifiedKey>>);

/// Two identities are equal if they are the same object. The content of their files does not matter.
impl PartialEq for Identity {
    fn eq(&self, other: &Identity) -> bool {
        Arc::ptr_eq(&self.shown, &other.shown)
    }
}

impl Eq for Identity {}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.shown).hash(state);
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Makes an identity that never changes.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Identity, String> {
        Ok(Identity::new(certified(certificate, key)?, None))
    }

    /// An identity that can change with its files: [`reload_if_changed`](Self::reload_if_changed) reads them again.
    pub fn of_files(certificate: &Path, key: &Path) -> Result<Identity, String> {
        let files =
            CertificateFiles { certificate: certificate.to_owned(), key: key.to_owned(), stamps: Mutex::default() };
        *files.stamps.lock().unwrap_or_else(PoisonError::into_inner) = files.stamps_now();
        Ok(Identity::new(files.read()?, Some(files)))
    }

    fn new(certified: CertifiedKey, files: Option<CertificateFiles>) -> Identity {
        let shown = Arc::new(PresentedCertificate(RwLock::new(Arc::new(certified))));
        Identity { shown, files, generation: AtomicU64::new(0) }
    }

    /// The number of changes. Connections made before the last change used another certificate.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A resolver that reads changed files at each handshake, for callers that make few handshakes and never call
    /// `reload_if_changed`.
    pub fn looking(self: Arc<Self>) -> Arc<dyn ResolvesClientCert> {
        Arc::new(Looking(self))
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        self.shown.clone()
    }

    /// Reads the certificate and key files if they have changed. If they cannot be read, the old certificate stays in
    /// use.
    pub fn reload_if_changed(&self) {
        let Some(files) = &self.files else { return };
        let mut stamps = files.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let now = files.stamps_now();
        if *stamps == now {
            return;
        }
        *stamps = now;
        let certificate = files.certificate.display();
        match files.read() {
            Ok(certified) => {
                *self.shown.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certified);
                self.generation.fetch_add(1, Ordering::Release);
                tracing::info!(%certificate, "the client certificate for other servers was reloaded");
            }
            Err(why) => {
                tracing::error!(
                    %certificate,
                    why,
                    "the client certificate for other servers has changed and cannot be read: the old one stays in use"
                );
            }
        }
    }
}

impl CertificateFiles {
    fn stamps_now(&self) -> [Option<Stamp>; 2] {
        [stamp(&self.certificate), stamp(&self.key)]
    }

    fn read(&self) -> Result<CertifiedKey, String> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| format!("read {}: {error}", file.display()));
        certified(&read(&self.certificate)?, &read(&self.key)?)
    }
}

#[derive(Debug)]
struct Looking(Arc<Identity>);

impl ResolvesClientCert for Looking {
    fn resolve(&self, hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.reload_if_changed();
        self.0.shown.resolve(hints, schemes)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesClientCert for PresentedCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn certified(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let provider = rustls::crypto::ring::default_provider();
    keys::certified(&provider, chain, keys::private_key(key)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_tls::generated::self_signed;

    #[test]
    fn the_certificate_follows_its_files_and_broken_ones_change_nothing() {
        let folder = std::env::temp_dir().join(format!("holdfast-identity-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (certificate, key) = (folder.join("proxy.crt"), folder.join("proxy.key"));
        let write = |name: &str| {
            let made = self_signed(name, &[name.to_owned()], &[]).expect("a certificate");
            std::fs::write(&certificate, made.certificate).expect("it is written");
            std::fs::write(&key, made.key).expect("it is written");
        };
        let shown = |identity: &Identity| identity.resolver().resolve(&[], &[]).expect("a certificate");
        write("first");
        let identity = Identity::of_files(&certificate, &key).expect("it is read");
        let first = shown(&identity);
        identity.reload_if_changed();
        assert!(Arc::ptr_eq(&first, &shown(&identity)) && identity.generation() == 0, "nothing has changed");
        write("second.example.com");
        identity.reload_if_changed();
        let second = shown(&identity);
        assert!(first.cert != second.cert && identity.generation() == 1);
        std::fs::write(&certificate, "nonsense").expect("it is written");
        identity.reload_if_changed();
        assert!(Arc::ptr_eq(&second, &shown(&identity)) && identity.generation() == 1);
        std::fs::remove_dir_all(&folder).expect("it is removed");
    }
}
