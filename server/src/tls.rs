//! Builds the server's TLS configuration from the options.

use crate::flags::Args;
use anyhow::{Result, anyhow};
use holdfast_tls::generated;
use holdfast_tls::server::{LiveTls, Pem, Tls, TlsOptions};
use std::path::Path;
use std::sync::Arc;

/// The TLS configuration with the default certificate, the certificates for other names, and the client authorities.
pub fn configure(args: &Args, certificate: &Path, key: &Path) -> Result<Arc<LiveTls>> {
    let file = |path: &Path| Pem::File(path.to_owned());
    LiveTls::new(options(args, file(certificate), file(key))).map(Arc::new).map_err(|why| anyhow!(why))
}

/// The faults of the options, whatever the server's own certificate will be.
pub fn faults(args: &Args) -> Option<String> {
    let file = |path: &Path| Pem::File(path.to_owned());
    let (certificate, key) = match args.network.tls.pair() {
        Some((certificate, key)) => (file(certificate), file(key)),
        None => {
            let made = generated::self_signed("kube-apiserver", &[], &[]).ok()?;
            (Pem::Text(made.certificate), Pem::Text(made.key))
        }
    };
    Tls::new(&options(args, certificate, key)).err()
}

fn options(args: &Args, certificate: Pem, key: Pem) -> TlsOptions {
    let files = |path: &Option<std::path::PathBuf>| path.clone().map(Pem::File).into_iter().collect();
    TlsOptions {
        certificate,
        key,
        named: args.network.tls.tls_sni_cert_key.clone(),
        cipher_suites: args.network.tls.tls_cipher_suites.clone(),
        curves: args.network.tls.tls_curve_preferences.clone(),
        min_version: args.network.tls.tls_min_version.clone(),
        http2: !args.serving.disable_http2_serving,
        client_authorities: files(&args.credentials.client_ca_file),
        front_proxy_authorities: files(&args.front_proxy.requestheader_client_ca_file),
        front_proxy_names: args.front_proxy.requestheader_allowed_names.clone(),
        certificate_uids: args.api_gates().is_ok_and(|gates| gates.certificate_uids),
    }
}
