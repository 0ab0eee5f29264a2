//! The kubelets of simulated nodes: one listener in this process serves all of them.

use anyhow::{Context, Result, anyhow};
use holdfast_component::api::Api;
use holdfast_component::authentication::{Authenticator, NeededTrust, look_up};
use holdfast_component::authorization::Authorizer;
use holdfast_component::serving::{self, Guard};
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_kubelet::{Cluster, NodeServer};
use holdfast_nodes::{ACCOUNT, Template};
use holdfast_outbound::kubelets::Simulated;
use holdfast_tls::front_proxy::RequestHeaders;
use holdfast_tls::generated::{self, CERTIFICATE_DAYS, alternatives, params};
use holdfast_tls::peer::authenticated;
use holdfast_tls::server::{LiveTls, Pem, TlsOptions};
use holdfast_transport_http::{Transport, memory};
use rcgen::{ExtendedKeyUsagePurpose, Issuer, KeyPair};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long the results of token reviews are cached, as in a kubelet.
const TOKEN_TIME: Duration = Duration::from_secs(120);
/// How long the results of access reviews that allow a request are cached, as in a kubelet.
const ALLOWED_TIME: Duration = Duration::from_secs(300);
/// How long the results of all other access reviews are cached, as in a kubelet.
const REFUSED_TIME: Duration = Duration::from_secs(30);

/// The API server in this process calls the nodes as this user.
const CALLER: &str = "kube-apiserver-kubelet-client";

/// A listener and the certificate that it shows.
pub struct Listening {
    listener: TcpListener,
    certificate: String,
    key: String,
    /// The authorities of clients; `None` means that they are read from the API server.
    clients: Option<String>,
}

/// A server of simulated nodes that does not serve yet.
pub struct Ready {
    server: Arc<NodeServer>,
    listener: TcpListener,
    api: Arc<Api>,
    tls: Arc<LiveTls>,
    authenticator: Arc<Authenticator>,
    knows_clients: bool,
}

impl Listening {
    /// Listens on the loopback address, with a certificate of the cluster's authority.
    pub fn within(authority: &Path, authority_key: &Path, port: u16) -> Result<Listening> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let vouched = std::fs::read_to_string(authority).with_context(|| format!("read {}", authority.display()))?;
        let issuer = Issuer::from_ca_cert_pem(&vouched, crate::pki::key_pair(authority_key)?)?;
        let mut server = params("simulated-nodes", CERTIFICATE_DAYS);
        server.subject_alt_names = alternatives(&["localhost".to_owned()], &[address])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = KeyPair::generate()?;
        let (certificate, key) = (server.signed_by(&pair, &issuer)?.pem(), pair.serialize_pem());
        Ok(Listening { listener: listen(address, port, true)?, certificate, key, clients: Some(vouched) })
    }

    /// Listens on an address that other machines reach, with a self-signed certificate.
    pub fn at(address: IpAddr, port: u16) -> Result<Listening> {
        let made = generated::self_signed("simulated-nodes", &["localhost".to_owned()], &[address])?;
        let listener = listen(address, port, false)?;
        Ok(Listening { listener, certificate: made.certificate, key: made.key, clients: None })
    }

    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    pub fn ready(self, api: Api, template: Arc<Template>) -> Result<Ready> {
        let knows_clients = self.clients.is_some();
        let options = TlsOptions {
            certificate: Pem::Text(self.certificate),
            key: Pem::Text(self.key),
            named: Vec::new(),
            cipher_suites: Vec::new(),
            curves: Vec::new(),
            min_version: String::new(),
            http2: false,
            client_authorities: self.clients.into_iter().map(Pem::Text).collect(),
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
        let authorizer = Authorizer::new(Some(shared.clone()), Vec::new(), ALLOWED_TIME, REFUSED_TIME);
        let guard = Guard { authenticator: authenticator.clone(), authorizer };
        let server = Arc::new(NodeServer::new(Cluster { api, template }, tls.clone(), guard));
        Ok(Ready { server, listener: self.listener, api: shared, tls, authenticator, knows_clients })
    }
}

impl Ready {
    /// Lets the API server in this process reach its nodes, whose Node objects have this port.
    pub fn introduce(&self, simulated: &Simulated, port: u16) {
        // The node server refers to the API server, so a strong reference from the API server to the node server would
        // be a cycle.
        let server = Arc::downgrade(&self.server);
        let caller = Arc::new(authenticated(User::new(CALLER, &[PRIVILEGED_GROUP])));
        let accept = move |socket| {
            if let Some(server) = server.upgrade() {
                server.connect(socket, caller.clone());
            }
        };
        simulated.serve(port, Box::new(accept));
    }

    /// Serves the requests that arrive at the listener; never ends.
    pub async fn serve(self) -> Result<()> {
        let Ready { server, listener, api, tls, authenticator, knows_clients } = self;
        if !knows_clients {
            let wanted = NeededTrust { client_authorities: true, front_proxies: false };
            let looked = look_up(api, wanted, &tls, &authenticator.headers, true).await;
            looked.map_err(|why| anyhow!(why))?;
        }
        tokio::spawn(serving::follow(Arc::downgrade(&tls)));
        NodeServer::clone(&server).serve(tokio::net::TcpListener::from_std(listener)?).await;
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
