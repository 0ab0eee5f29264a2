//! The kubelets of simulated nodes: one listener in this process serves all of them.

use anyhow::{Context, Result, anyhow};
use holdfast_component::api::Api;
use holdfast_component::authentication::{Authenticator, Wanted, look_up};
use holdfast_component::authorization::Authorizer;
use holdfast_component::serving::{self, Guard};
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_kubelet::{Cluster, Server};
use holdfast_nodes::{ACCOUNT, Template};
use holdfast_outbound::Identity;
use holdfast_outbound::kubelets::Simulated;
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_tls::made::{self, CERTIFICATE_DAYS, alternatives, params};
use holdfast_tls::server::{LiveTls, Options, Pem};
use holdfast_transport_http::{Transport, memory};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the results of token reviews and of access reviews are cached, as in a kubelet.
const TOKEN_TIME: Duration = Duration::from_secs(120);
const ALLOWED_TIME: Duration = Duration::from_secs(300);
const REFUSED_TIME: Duration = Duration::from_secs(30);

/// A listener and the certificate that it shows.
pub struct Listening {
    listener: TcpListener,
    certificate: String,
    key: String,
    /// The authorities of clients; `None`: read from the API server.
    clients: Option<String>,
    /// The certificate and key of the API server in this process, as a client.
    shown: Option<(String, String)>,
}

impl Listening {
    /// On the loopback address, with a certificate of the cluster's authority.
    pub fn within(authority: &Path, authority_key: &Path, port: u16) -> Result<Listening> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let vouched = std::fs::read_to_string(authority).with_context(|| format!("read {}", authority.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&vouched, crate::pki::key_pair(authority_key)?)?;
        let issue = |params: CertificateParams| -> Result<(String, String)> {
            let pair = KeyPair::generate()?;
            Ok((params.signed_by(&pair, &issuer)?.pem(), pair.serialize_pem()))
        };
        let mut server = params("simulated-nodes", CERTIFICATE_DAYS);
        server.subject_alt_names = alternatives(&["localhost".to_owned()], &[address])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = issue(server)?;
        let mut client = params("kube-apiserver-kubelet-client", CERTIFICATE_DAYS);
        client.distinguished_name.push(DnType::OrganizationName, PRIVILEGED_GROUP);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let shown = Some(issue(client)?);
        let listener = listen(address, port, true)?;
        Ok(Listening { listener, certificate, key, clients: Some(vouched), shown })
    }

    /// On an address that other machines reach, with a self-signed certificate.
    pub fn at(address: IpAddr, port: u16) -> Result<Listening> {
        let made = made::self_signed("simulated-nodes", &["localhost".to_owned()], &[address])?;
        let listener = listen(address, port, false)?;
        Ok(Listening { listener, certificate: made.certificate, key: made.key, clients: None, shown: None })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Tells the API server in this process how to reach its nodes, which name this port.
    pub fn introduce(&self, simulated: &Simulated, port: u16) -> Result<()> {
        let (Some(clients), Some((certificate, key))) = (&self.clients, &self.shown) else { return Ok(()) };
        let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).map_err(|why| anyhow!(why))?;
        let told = simulated.listen(port, self.address()?, clients.clone().into_bytes(), &identity);
        told.map_err(|why| anyhow!(why))
    }

    /// Serves requests; never ends.
    pub async fn serve(self, api: Api, template: Arc<Template>) -> Result<()> {
        let options = Options {
            certificate: Pem::Text(self.certificate),
            key: Pem::Text(self.key),
            named: Vec::new(),
            cipher_suites: Vec::new(),
            curves: Vec::new(),
            min_version: String::new(),
            http2: false,
            client_authorities: self.clients.iter().cloned().map(Pem::Text).collect(),
            front_proxy_authorities: Vec::new(),
            front_proxy_names: Vec::new(),
            certificate_uids: true,
        };
        let tls = Arc::new(LiveTls::new(options).map_err(|why| anyhow!(why))?);
        let shared = Arc::new(api.clone());
        // Kubelets do not accept users from the headers of a front proxy.
        let headers =
            RequestHeaders { usernames: Vec::new(), uids: Vec::new(), groups: Vec::new(), extra_prefixes: Vec::new() };
        let authenticator = Arc::new(Authenticator::new(Some(shared.clone()), TOKEN_TIME, headers));
        if self.clients.is_none() {
            let wanted = Wanted { client_authorities: true, front_proxies: false };
            let looked = look_up(shared.clone(), wanted, &tls, &authenticator.headers, true).await;
            looked.map_err(|why| anyhow!(why))?;
        }
        tokio::spawn(serving::follow(Arc::downgrade(&tls)));
        let authorizer = Authorizer::new(Some(shared), Vec::new(), ALLOWED_TIME, REFUSED_TIME);
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        Server::new(Cluster { api, template }, tls, Guard { authenticator, authorizer }).serve(listener).await;
        Ok(())
    }
}

/// Listens on the port, or on a free one if it is taken and `or_elsewhere` is set.
fn listen(address: IpAddr, port: u16, or_elsewhere: bool) -> Result<TcpListener> {
    let bind = |port: u16| TcpListener::bind(SocketAddr::new(address, port));
    let listener = match bind(port) {
        Err(_) if or_elsewhere => bind(0),
        bound => bound,
    };
    let listener = listener.with_context(|| format!("listen on {address}, port {port}, for simulated nodes"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A client of the server in this process, with the nodes' own account.
pub fn inside(transport: &Arc<Transport>) -> Api {
    let user = Arc::new(User::service_account("kube-system", ACCOUNT, ""));
    Api::new(kube::Client::new(memory::service(transport.clone(), user), "default"))
}
