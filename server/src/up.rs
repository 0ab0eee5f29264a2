//! `holdfast up`: everything that one machine needs, secure from the start.

use crate::apiserver::{serve_until_stopped, server_addresses, server_names};
use crate::{flags, logging, pki, tls};
use anyhow::{Result, anyhow};
use holdfast_core::authz::chain::Mode;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    server: flags::Args,
    /// The same as --secure-port.
    #[arg(long)]
    port: Option<u16>,
    /// Where to write the administrator's kubeconfig [default: DIR/admin.kubeconfig].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<()> {
    let Args { mut server, port, kubeconfig } = args;
    let _log = logging::init(&server.logging).map_err(|why| anyhow!(why))?;
    server.secure_port = port.unwrap_or(server.secure_port);
    // Before anything is put into the folder.
    holdfast_storage_rocks::check_whole(&server.data_dir)?;
    let bind = server.bind_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let pki = pki::ensure(&server.data_dir, &server_names(), &server_addresses(&server, bind))?;
    server.client_ca_file.get_or_insert(pki.authority.clone());
    if server.service_account_signing_key_file.is_none() {
        server.service_account_signing_key_file = Some(pki.service_account_key.clone());
    }
    trust_front_proxy(&mut server.front_proxy, &pki);
    let certificate = server.tls_cert_file.clone().unwrap_or(pki.server_certificate.clone());
    let key = server.tls_private_key_file.clone().unwrap_or(pki.server_key.clone());
    let tls = tls::configure(&server, &certificate, &key)?;
    let kubeconfig = kubeconfig.unwrap_or_else(|| server.data_dir.join("admin.kubeconfig"));
    serve_until_stopped(server, bind, tls, Mode::Rbac, |address| {
        let host = if bind.is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { bind };
        let url = format!("https://{}", std::net::SocketAddr::new(host, address.port()));
        pki::write(&kubeconfig, &pki::kubeconfig(&pki, &url)?, true)?;
        let shown = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig.clone());
        println!("ready {url} kubeconfig {}", shown.display());
        Ok(())
    })
}

/// The proxy that other servers are to trust is this server itself, unless options say otherwise.
fn trust_front_proxy(options: &mut flags::FrontProxyArgs, pki: &pki::Pki) {
    if options.proxy_client_cert_file.is_none() {
        options.proxy_client_cert_file = Some(pki.front_proxy_certificate.clone());
        options.proxy_client_key_file = Some(pki.front_proxy_key.clone());
    }
    if options.requestheader_client_ca_file.is_some() {
        return;
    }
    options.requestheader_client_ca_file = Some(pki.front_proxy_authority.clone());
    let unless_given = |names: &mut Vec<String>, name: &str| {
        if names.is_empty() {
            names.push(name.to_owned());
        }
    };
    unless_given(&mut options.requestheader_allowed_names, pki::FRONT_PROXY);
    unless_given(&mut options.requestheader_username_headers, "X-Remote-User");
    unless_given(&mut options.requestheader_uid_headers, "X-Remote-Uid");
    unless_given(&mut options.requestheader_group_headers, "X-Remote-Group");
    unless_given(&mut options.requestheader_extra_headers_prefix, "X-Remote-Extra-");
}
