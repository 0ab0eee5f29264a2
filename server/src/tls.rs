//! From options to the TLS side of the server.

use crate::flags::Args;
use anyhow::{Result, anyhow};
use holdfast_tls::server::{LiveTls, Options, Pem};
use std::path::Path;
use std::sync::Arc;

/// The TLS side with its own pair, the pairs for other names, and the authorities of clients.
pub fn configure(args: &Args, certificate: &Path, key: &Path) -> Result<Arc<LiveTls>> {
    let file = |path: &Path| Pem::File(path.to_owned());
    let files = |path: &Option<_>| path.as_deref().map(file).into_iter().collect();
    let options = Options {
        certificate: file(certificate),
        key: file(key),
        named: args.tls_sni_cert_key.clone(),
        cipher_suites: args.tls_cipher_suites.clone(),
        min_version: args.tls_min_version.clone(),
        http2: !args.serving.disable_http2_serving,
        client_authorities: files(&args.client_ca_file),
        front_proxy_authorities: files(&args.front_proxy.requestheader_client_ca_file),
        front_proxy_names: args.front_proxy.requestheader_allowed_names.clone(),
    };
    LiveTls::new(options).map(Arc::new).map_err(|why| anyhow!(why))
}
