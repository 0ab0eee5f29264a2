//! Connections to the kubelets of nodes: where a Node says that its kubelet is, whom is trusted there and what is shown.
//!
//! A Node is written by whoever has that right, and so its address is judged before anybody is called: this machine and
//! its link are not. The kubelets of nodes that this very process simulates are known by their listener alone.

use crate::connect::Link;
use crate::egress::Dialer;
use crate::wire::{ServerTls, shown};
use crate::{IDLE_MAX, Identity, OutBody, TlsTrust, words};
use holdfast_core::kinds::{Machine, is_global};
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a kubelet may take to begin its answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// What is spoken over every connection.
const HTTP1: &[u8] = b"http/1.1";
/// The port of kubelets that do not say theirs.
const PORT: u16 = 10250;
/// The types of addresses that are tried, the best first.
pub const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// What options say of it.
pub struct Settings {
    /// Types of addresses, the best first.
    pub preferred: Vec<String>,
    /// The port of kubelets that do not say theirs.
    pub port: u16,
    pub is_secure: bool,
    /// How long it may take until a connection stands.
    pub timeout: Duration,
    /// Whose certificates are good, in a file that is followed; without it everybody's are.
    pub authorities: Option<PathBuf>,
    /// What this server shows.
    pub identity: Option<Arc<Identity>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            preferred: ADDRESS_TYPES.map(str::to_owned).to_vec(),
            port: PORT,
            is_secure: true,
            timeout: Duration::from_secs(5),
            authorities: None,
            identity: None,
        }
    }
}

/// Reaches kubelets.
pub struct Kubelets {
    settings: Settings,
    dialer: Dialer,
    simulated: Arc<Simulated>,
    /// The port of this server, which is no kubelet's.
    own_port: OnceLock<u16>,
    trusted: Mutex<Option<Trusted>>,
}

/// What connections are made with, until a file changes.
struct Trusted {
    authorities: Vec<u8>,
    generation: u64,
    tls: ServerTls,
}

/// The kubelets of the nodes that this process simulates. They share a listener, which is told of here once it listens.
#[derive(Default)]
pub struct Simulated(OnceLock<Listener>);

struct Listener {
    /// The port that Nodes name, which may be another than that of the address.
    port: u16,
    address: SocketAddr,
    tls: ServerTls,
}

impl Simulated {
    /// The kubelets of all simulated Nodes that name this port answer at this address, over TLS: `authorities` (PEM)
    /// have signed their certificate, which is for the address, and `identity` is what is shown to them. Which node is
    /// meant they read in the header `Host`: `NODE:PORT`.
    pub fn listen(
        &self,
        port: u16,
        address: SocketAddr,
        authorities: Vec<u8>,
        identity: &Identity,
    ) -> Result<(), String> {
        let trust = TlsTrust { authorities, insecure: false, identified: true };
        let tls = ServerTls::new(&address.ip().to_string(), &trust, Some(identity))?.speaking(&[HTTP1]);
        _ = self.0.set(Listener { port, address, tls });
        Ok(())
    }
}

/// Why a kubelet did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// Nobody can tell where it is.
    #[error("{0}")]
    Nowhere(String),
    /// It must not be asked there.
    #[error("address not allowed")]
    NotAllowed,
    /// There is no connection.
    #[error("{0}")]
    NotDialled(String),
    /// It said nothing that makes sense.
    #[error("{0}")]
    Unanswered(String),
}

/// How one kubelet is reached.
pub struct Kubelet<'a> {
    kubelets: &'a Kubelets,
    place: Locality,
    host: String,
    port: u16,
}

enum Locality {
    /// Behind the listener of this process.
    Inside,
    /// Elsewhere.
    Elsewhere,
}

impl Kubelets {
    pub fn new(settings: Settings, dialer: Dialer, simulated: Arc<Simulated>) -> Kubelets {
        Kubelets { settings, dialer, simulated, own_port: OnceLock::new(), trusted: Mutex::default() }
    }

    /// Tells which port this server listens on itself.
    pub fn note_own_port(&self, port: u16) {
        _ = self.own_port.set(port);
    }

    pub fn simulated(&self) -> &Arc<Simulated> {
        &self.simulated
    }

    /// The kubelet of a node, or another server on its port of the node.
    pub fn find(&self, machine: &Machine) -> Result<Kubelet<'_>, Unreached> {
        let port = machine.port.unwrap_or(self.settings.port);
        if machine.is_simulated && self.simulated.0.get().is_some_and(|listener| listener.port == port) {
            return Ok(Kubelet { kubelets: self, place: Locality::Inside, host: machine.name.clone(), port });
        }
        let of_type = |wanted: &String| machine.addresses.iter().find(|(kind, _)| kind == wanted);
        let Some((_, host)) = self.settings.preferred.iter().find_map(of_type) else {
            let known: Vec<String> =
                machine.addresses.iter().map(|(kind, address)| format!("{{{kind} {address}}}")).collect();
            let known = known.join(" ");
            return Err(Unreached::Nowhere(format!("no preferred addresses found; known addresses: [{known}]")));
        };
        Ok(Kubelet { kubelets: self, place: Locality::Elsewhere, host: host.clone(), port })
    }

    /// TLS towards kubelets as the files say now. The name is that of whoever is dialled.
    fn tls(&self, host: &str, is_insecure: bool) -> Result<ServerTls, String> {
        let Settings { authorities, identity, .. } = &self.settings;
        if let Some(identity) = identity {
            identity.look();
        }
        let read = |path: &Path| std::fs::read(path).map_err(|error| format!("open {}: {error}", path.display()));
        let authorities = authorities.as_deref().filter(|_| !is_insecure).map(read).transpose()?.unwrap_or_default();
        let generation = identity.as_ref().map_or(0, |identity| identity.generation());
        let mut trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*trusted
            && known.authorities == authorities
            && known.generation == generation
        {
            return known.tls.towards(host);
        }
        let trust = TlsTrust { insecure: authorities.is_empty(), authorities: authorities.clone(), identified: true };
        let tls = ServerTls::new(host, &trust, identity.as_deref())?.speaking(&[HTTP1]);
        *trusted = Some(Trusted { authorities, generation, tls: tls.clone() });
        Ok(tls)
    }

    /// Whether an address is one of this server's own, on its own port.
    fn is_own(&self, address: IpAddr, port: u16) -> bool {
        // Whoever can be bound to is here.
        self.own_port.get() == Some(&port) && UdpSocket::bind((address, 0)).is_ok()
    }

    fn judge(&self, address: IpAddr, port: u16) -> Result<(), Unreached> {
        match is_global(address) && !self.is_own(address, port) {
            true => Ok(()),
            false => Err(Unreached::NotAllowed),
        }
    }

    /// The addresses of a host, each of which may be asked.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<String>, Unreached> {
        if let Ok(address) = host.parse::<IpAddr>() {
            self.judge(address, port)?;
            return Ok(vec![host.to_owned()]);
        }
        if !matches!(self.dialer, Dialer::Direct) {
            // A proxy knows other names than this machine.
            let is_local = host.trim_end_matches('.').to_ascii_lowercase();
            return match is_local == "localhost" || is_local.ends_with(".localhost") {
                true => Err(Unreached::NotAllowed),
                false => Ok(vec![host.to_owned()]),
            };
        }
        let unknown = || Unreached::NotDialled(format!("dial tcp: lookup {host}: no such host"));
        let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(|_| unknown())?.collect();
        found.iter().try_for_each(|address| self.judge(address.ip(), port))?;
        match found.is_empty() {
            true => Err(unknown()),
            false => Ok(found.iter().map(|address| address.ip().to_string()).collect()),
        }
    }

    /// Dials a server within the cluster that is no kubelet, and shows it nothing. Its certificate is not looked at.
    pub async fn dial_server(&self, host: &str, port: u16, is_secure: bool) -> Result<Link, Unreached> {
        let tls = is_secure.then(|| {
            let trust = TlsTrust { insecure: true, ..TlsTrust::default() };
            ServerTls::new(host, &trust, None).map(|tls| tls.speaking(&[HTTP1])).map_err(Unreached::NotDialled)
        });
        self.dial(host, port, tls.transpose()?).await
    }

    async fn dial(&self, host: &str, port: u16, tls: Option<ServerTls>) -> Result<Link, Unreached> {
        let dialling = async {
            let mut first = None;
            for address in self.addresses(host, port).await? {
                match self.dialer.dial(&address, port).await {
                    Ok(wire) => {
                        wire.keep_alive(IDLE_MAX);
                        return Ok(wire);
                    }
                    Err(error) => _ = first.get_or_insert(Unreached::NotDialled(error.0)),
                }
            }
            Err(first.unwrap_or(Unreached::NotAllowed))
        };
        let late = |_| Unreached::NotDialled(format!("dial tcp {}: i/o timeout", shown(host, port)));
        let wire = tokio::time::timeout(self.settings.timeout, dialling).await.map_err(late)??;
        match tls {
            None => Ok(Link::Plain(wire)),
            Some(tls) => {
                let spoken = tls.speak(wire).await;
                spoken.map(|stream| Link::Tls(Box::new(stream))).map_err(|error| Unreached::NotDialled(error.0))
            }
        }
    }
}

impl Kubelet<'_> {
    /// Whether it listens on this port.
    pub fn listens_on(&self, port: u16) -> bool {
        self.port == port
    }

    pub fn is_inside(&self) -> bool {
        matches!(self.place, Locality::Inside)
    }

    /// The host that the Node names.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Host and port, as URLs have them.
    pub fn authority(&self) -> String {
        shown(&self.host, self.port)
    }

    pub fn scheme(&self) -> &'static str {
        if self.kubelets.settings.is_secure || self.is_inside() { "https" } else { "http" }
    }

    /// A connection, over which HTTP/1.1 is spoken. `is_insecure`: whoever answers will do.
    pub async fn dial(&self, is_insecure: bool) -> Result<Link, Unreached> {
        let Kubelet { kubelets, place, host, port } = self;
        if let (Locality::Inside, Some(listener)) = (place, kubelets.simulated.0.get()) {
            let Listener { address, tls, .. } = listener;
            let wire = Dialer::Direct.dial(&address.ip().to_string(), address.port()).await;
            let spoken = tls.speak(wire.map_err(|error| Unreached::NotDialled(error.0))?).await;
            return spoken.map(|stream| Link::Tls(Box::new(stream))).map_err(|error| Unreached::NotDialled(error.0));
        }
        let tls = kubelets.settings.is_secure.then(|| kubelets.tls(host, is_insecure).map_err(Unreached::NotDialled));
        kubelets.dial(host, *port, tls.transpose()?).await
    }
}

/// Sends a request over a connection of its own, and gives back the answer as soon as it begins. The connection ends
/// with the answer's body, or with what it is upgraded to.
pub async fn send(
    link: Link,
    host: Option<&str>,
    mut request: Request<OutBody>,
    is_patient: bool,
) -> Result<Response<Incoming>, Unreached> {
    if let Some(host) = host {
        let host = HeaderValue::from_str(host).map_err(|error| Unreached::Unanswered(error.to_string()))?;
        request.headers_mut().insert(HOST, host);
    }
    let failed = |error: hyper::Error| Unreached::Unanswered(words::of_hyper(&error));
    let asking = async {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(link)).await.map_err(failed)?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to a node ended");
            }
        });
        sender.send_request(request).await.map_err(failed)
    };
    if is_patient {
        return asking.await;
    }
    let late = |_| Unreached::Unanswered("net/http: timeout awaiting response headers".to_owned());
    tokio::time::timeout(ANSWER_MAX, asking).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn machine(addresses: &[(&str, &str)]) -> Machine {
        Machine {
            name: "n".to_owned(),
            addresses: addresses.iter().map(|(kind, address)| ((*kind).to_owned(), (*address).to_owned())).collect(),
            port: Some(1),
            takes_websockets: false,
            is_simulated: false,
        }
    }

    fn kubelets() -> Kubelets {
        Kubelets::new(Settings::default(), Dialer::Direct, Arc::default())
    }

    #[test]
    fn the_best_type_of_address_is_taken() {
        let kubelets = kubelets();
        let found = |addresses: &[(&str, &str)]| {
            kubelets.find(&machine(addresses)).map(|found| found.authority()).map_err(|why| why.to_string())
        };
        assert_eq!(found(&[("ExternalIP", "1.2.3.4"), ("InternalIP", "10.0.0.1")]), Ok("10.0.0.1:1".to_owned()));
        assert_eq!(found(&[("InternalIP", "fd00::1"), ("ExternalIP", "1.2.3.4")]), Ok("[fd00::1]:1".to_owned()));
        let none = "no preferred addresses found; known addresses: []";
        assert_eq!(found(&[]), Err(none.to_owned()));
        let other = "no preferred addresses found; known addresses: [{Other x}]";
        assert_eq!(found(&[("Other", "x")]), Err(other.to_owned()));
    }

    #[tokio::test]
    async fn this_machine_and_its_link_are_not_asked() {
        let kubelets = kubelets();
        for host in ["127.0.0.1", "localhost", "::1", "169.254.169.254", "0.0.0.0", "::ffff:127.0.0.1"] {
            let machine = machine(&[("Hostname", host)]);
            let dialled = kubelets.find(&machine).expect("an address").dial(false).await;
            assert_eq!(dialled.err(), Some(Unreached::NotAllowed), "{host}");
        }
        // A mark alone opens nothing: no listener of this process has been told of.
        let simulated = Machine { is_simulated: true, ..machine(&[("InternalIP", "127.0.0.1")]) };
        let dialled = kubelets.find(&simulated).expect("an address").dial(false).await;
        assert_eq!(dialled.err(), Some(Unreached::NotAllowed));
    }

    #[tokio::test]
    async fn simulated_nodes_are_found_behind_the_listener_of_this_process() {
        use holdfast_tls::made::self_signed;
        use rustls::pki_types::pem::PemObject;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let made = self_signed("kubelets", &[], &[address.ip()]).expect("a certificate");
        let chain = vec![CertificateDer::from_pem_slice(made.certificate.as_bytes()).expect("PEM")];
        let key = PrivateKeyDer::from_pem_slice(made.key.as_bytes()).expect("PEM");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a server");
        let serving = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a connection");
            let mut stream = tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await.expect("TLS");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a request"));
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("an answer");
            String::from_utf8(head).expect("text")
        });
        let kubelets = kubelets();
        let own = self_signed("client", &["client".to_owned()], &[]).expect("a certificate");
        let identity = Identity::from_pem(own.certificate.as_bytes(), own.key.as_bytes()).expect("an identity");
        let authorities = made.certificate.clone().into_bytes();
        kubelets.simulated().listen(address.port(), address, authorities, &identity).expect("it is told of");
        let simulated = Machine { is_simulated: true, port: Some(address.port()), ..machine(&[]) };
        // Others are not, whatever their port.
        let other = Machine { is_simulated: false, ..simulated.clone() };
        assert!(kubelets.find(&other).is_err());
        let elsewhere = Machine { port: Some(1), ..simulated.clone() };
        assert!(kubelets.find(&elsewhere).is_err());
        let kubelet = kubelets.find(&simulated).expect("it is found");
        let link = kubelet.dial(false).await.expect("a connection");
        let body = http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync();
        let mut request = Request::new(body);
        *request.uri_mut() = "/pods".parse().expect("a path");
        let response = send(link, Some(&kubelet.authority()), request, false).await.expect("an answer");
        assert_eq!(response.status(), 200);
        let head = serving.await.expect("it ends").to_lowercase();
        assert!(
            head.starts_with("get /pods http/1.1") && head.contains(&format!("host: n:{}", address.port())),
            "{head}"
        );
    }

    #[test]
    fn the_servers_own_port_is_no_kubelet() {
        let kubelets = kubelets();
        kubelets.note_own_port(6443);
        let own: IpAddr = "127.0.0.1".parse().expect("an address");
        assert!(kubelets.is_own(own, 6443) && !kubelets.is_own(own, 10250));
        assert!(!kubelets.is_own("198.51.100.7".parse().expect("an address"), 6443), "somebody else's");
    }
}
