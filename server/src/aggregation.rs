//! Builds the settings of the aggregation layer from the options: how other API servers are reached, and the
//! credentials that this server shows to them.

use crate::files::read;
use crate::flags::Args;
use anyhow::{Result, anyhow, bail};
use holdfast_component::options::joined;
use holdfast_component::serving::FILES_PERIOD;
use holdfast_core::apiservices::resolve::Routing;
use holdfast_core::apiservices::trust::{FrontProxy, Trust};
use holdfast_outbound::{Egress, Identity, InProcessServices};
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_transport_http::aggregate::Settings;
use std::sync::{Arc, Weak};

/// How to reach the servers behind APIServices; `inside` are the servers within this process.
pub fn settings(args: &Args, inside: InProcessServices) -> Result<Settings> {
    let options = &args.front_proxy;
    let identity = match identity(args) {
        Some(read) => {
            let identity = Arc::new(read?);
            tokio::spawn(follow(Arc::downgrade(&identity)));
            Some(identity)
        }
        None => None,
    };
    let routing = if options.enable_aggregator_routing { Routing::Endpoints } else { Routing::Service };
    let (reject_redirects, egress) = (options.aggregator_reject_forwarding_redirect, egress(args)?);
    Ok(Settings { routing, reject_redirects, identity, inside, egress })
}

/// The proxies through which other servers are reached, from `--egress-selector-config-file`.
pub fn egress(args: &Args) -> Result<Egress> {
    let Some(file) = &args.network.egress_selector_config_file else { return Ok(Egress::default()) };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("egress-selector-config-file {} does not exist", file.display())
        }
        Err(error) => bail!("--egress-selector-config-file: {}: {error}", file.display()),
    };
    let invalid = |faults: Vec<String>| {
        anyhow!("failed to validate egress selector configuration: {}: {}", file.display(), joined(&faults))
    };
    Egress::read(&text).map_err(invalid)
}

/// The client certificate that this server shows to other servers, if options name one.
pub fn identity(args: &Args) -> Option<Result<Identity>> {
    let options = &args.front_proxy;
    let (certificate, key) = (options.proxy_client_cert_file.as_ref()?, options.proxy_client_key_file.as_ref()?);
    let told = |why| anyhow!("--proxy-client-cert-file={}: {why}", certificate.display());
    Some(Identity::of_files(certificate, key).map_err(told))
}

/// Reloads the client certificate when its files change, until the identity is dropped.
async fn follow(identity: Weak<Identity>) {
    loop {
        tokio::time::sleep(FILES_PERIOD).await;
        let Some(identity) = identity.upgrade() else { return };
        // The files may lie on a disk that does not answer, so they are read on a blocking thread.
        _ = tokio::task::spawn_blocking(move || identity.reload_if_changed()).await;
    }
}

pub fn request_headers(args: &Args) -> RequestHeaders {
    let options = &args.front_proxy;
    RequestHeaders {
        usernames: options.requestheader_username_headers.clone(),
        uids: options.requestheader_uid_headers.clone(),
        groups: options.requestheader_group_headers.clone(),
        extra_prefixes: options.requestheader_extra_headers_prefix.clone(),
    }
}

/// The authorities that other servers may trust, as published in `extension-apiserver-authentication`.
pub fn trust(args: &Args) -> Result<Trust> {
    let options = &args.front_proxy;
    let front_proxy = match &options.requestheader_client_ca_file {
        None => None,
        Some(file) => Some(FrontProxy {
            authorities: read(file)?,
            allowed_names: options.requestheader_allowed_names.clone(),
            username_headers: options.requestheader_username_headers.clone(),
            uid_headers: options.requestheader_uid_headers.clone(),
            group_headers: options.requestheader_group_headers.clone(),
            extra_header_prefixes: options.requestheader_extra_headers_prefix.clone(),
        }),
    };
    let client_authorities = args.credentials.client_ca_file.as_ref().map(read).transpose()?.unwrap_or_default();
    Ok(Trust { client_authorities, front_proxy })
}
