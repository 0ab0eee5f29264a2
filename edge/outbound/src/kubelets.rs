//! Connections to the kubelets of nodes. Node objects give their addresses; options give the trusted authorities and
//! the credentials.
//!
//! Users with write access to Nodes control the addresses, so addresses of this machine and link-local addresses are
//! refused. The kubelets of nodes that this process simulates are reached within the process.

use crate::connect::{INSIDE_BYTES, Link};
use crate::egress::Dialer;
use crate::wire::{ServerTls, shown};
use crate::{IDLE_MAX, Identity, OutBody, TlsTrust, error_texts};
use holdfast_core::kinds::{Machine, is_global};
use http::header::{HOST, HeaderValue};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::DuplexStream;

/// How long a kubelet may take to begin its answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// The only protocol of connections to kubelets, by its name in ALPN.
const HTTP1: &[u8] = b"http/1.1";
/// The default port of a kubelet whose Node has none.
const PORT: u16 = 10250;
/// The default types of addresses, in order of preference.
pub const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

/// The options for connections to kubelets.
pub struct Settings {
    /// The types of addresses, in order of preference.
    pub preferred: Vec<String>,
    /// The port of a kubelet whose Node has none.
    pub port: u16,
    pub is_secure: bool,
    /// The time limit for opening a connection to a kubelet.
    pub timeout: Duration,
    /// The file with the authorities that sign kubelets' certificates. The file is read again when it changes. Without
    /// a file, any certificate is accepted.
    pub authorities: Option<PathBuf>,
    /// The client certificate that this server presents to kubelets.
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

/// Connects this server to the kubelets of nodes.
pub struct Kubelets {
    settings: Settings,
    dialer: Dialer,
    simulated: Arc<Simulated>,
    /// The port of this server itself. Connections to it are refused.
    own_port: OnceLock<u16>,
    trusted: Mutex<Option<Trusted>>,
}

/// The TLS settings, valid until a file changes.
struct Trusted {
    authorities: Vec<u8>,
    generation: u64,
    tls: ServerTls,
}

/// The kubelets of the nodes that this process simulates. One server answers for all of these nodes.
#[derive(Default)]
pub struct Simulated(OnceLock<SimulatedServer>);

struct SimulatedServer {
    /// The kubelet port that simulated Nodes report.
    port: u16,
    accept: Accept,
}

/// Receives the server's end of a new connection, which uses HTTP/1.1.
pub type Accept = Box<dyn Fn(DuplexStream) + Send + Sync>;

impl Simulated {
    /// Sets the server of all simulated Nodes with this port. The header `Host` identifies the node: `NODE:PORT`.
    /// Connections to the server stay in this process, so they need no TLS.
    pub fn serve(&self, port: u16, accept: Accept) {
        _ = self.0.set(SimulatedServer { port, accept });
    }
}

/// Why a kubelet did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreached {
    /// The Node has no usable address.
    #[error("{0}")]
    Nowhere(String),
    /// The server does not connect to this address, because it is not a global address or it is the server's own
    /// address.
    #[error("address not allowed")]
    NotAllowed,
    /// The connection to the kubelet could not be opened.
    #[error("{0}")]
    NotDialled(String),
    /// The kubelet sent no valid answer.
    #[error("{0}")]
    Unanswered(String),
}

/// A kubelet with the address at which this server connects to it.
pub struct Kubelet<'a> {
    kubelets: &'a Kubelets,
    place: Locality,
    host: String,
    port: u16,
}

enum Locality {
    /// The kubelet runs in this process.
    Inside,
    /// The kubelet runs in another process.
    Elsewhere,
}

impl Kubelets {
    pub fn new(settings: Settings, dialer: Dialer, simulated: Arc<Simulated>) -> Kubelets {
        Kubelets { settings, dialer, simulated, own_port: OnceLock::new(), trusted: Mutex::default() }
    }

    /// Sets the port on which this server itself listens.
    pub fn note_own_port(&self, port: u16) {
        _ = self.own_port.set(port);
    }

    pub fn simulated(&self) -> &Arc<Simulated> {
        &self.simulated
    }

    /// The kubelet of a node, at the port that `machine` names, or else at the configured port.
    pub fn find(&self, machine: &Machine) -> Result<Kubelet<'_>, Unreached> {
        let port = machine.port.unwrap_or(self.settings.port);
        if machine.is_simulated && self.simulated.0.get().is_some_and(|server| server.port == port) {
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

    /// TLS towards kubelets, with the present content of the files. `host` is the name in the certificate.
    fn tls(&self, host: &str, is_insecure: bool) -> Result<ServerTls, String> {
        let Settings { authorities, identity, .. } = &self.settings;
        if let Some(identity) = identity {
            identity.reload_if_changed();
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

    /// Whether an address belongs to this machine and the port is this server's own port.
    fn is_own(&self, address: IpAddr, port: u16) -> bool {
        // A UDP socket can be bound only to addresses of this machine.
        self.own_port.get() == Some(&port) && UdpSocket::bind((address, 0)).is_ok()
    }

    fn judge(&self, address: IpAddr, port: u16) -> Result<(), Unreached> {
        match is_global(address) && !self.is_own(address, port) {
            true => Ok(()),
            false => Err(Unreached::NotAllowed),
        }
    }

    /// The addresses of a host. Fails unless connections to all of them are allowed.
    async fn addresses(&self, host: &str, port: u16) -> Result<Vec<String>, Unreached> {
        if let Ok(address) = host.parse::<IpAddr>() {
            self.judge(address, port)?;
            return Ok(vec![host.to_owned()]);
        }
        if !matches!(self.dialer, Dialer::Direct) {
            // The proxy resolves the name, and may find other addresses than this machine would find.
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

    /// Dials a server within the cluster that is not a kubelet, without a client certificate. Any server certificate is
    /// accepted.
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
                let spoken = tls.handshake(wire).await;
                spoken.map(|stream| Link::Tls(Box::new(stream))).map_err(|error| Unreached::NotDialled(error.0))
            }
        }
    }
}

impl Kubelet<'_> {
    /// Whether the kubelet listens on this port.
    pub fn listens_on(&self, port: u16) -> bool {
        self.port == port
    }

    pub fn is_inside(&self) -> bool {
        matches!(self.place, Locality::Inside)
    }

    /// The kubelet's host, as the Node's address names it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The kubelet's host and port, as in URLs.
    pub fn authority(&self) -> String {
        shown(&self.host, self.port)
    }

    pub fn scheme(&self) -> &'static str {
        if self.kubelets.settings.is_secure || self.is_inside() { "https" } else { "http" }
    }

    /// A connection for HTTP/1.1. If `is_insecure` is true, any server certificate is accepted.
    pub async fn dial(&self, is_insecure: bool) -> Result<Link, Unreached> {
        let Kubelet { kubelets, place, host, port } = self;
        if let (Locality::Inside, Some(server)) = (place, kubelets.simulated.0.get()) {
            let (ours, theirs) = tokio::io::duplex(INSIDE_BYTES);
            (server.accept)(theirs);
            return Ok(Link::Inside(ours));
        }
        let tls = kubelets.settings.is_secure.then(|| kubelets.tls(host, is_insecure).map_err(Unreached::NotDialled));
        kubelets.dial(host, *port, tls.transpose()?).await
    }
}

/// Sends a request over a separate connection, and returns the answer as soon as it begins. The connection ends with
/// the body of the answer, or with the upgraded protocol.
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
    let failed = |error: hyper::Error| Unreached::Unanswered(error_texts::of_hyper(&error));
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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
        // Marking a Node as simulated has no effect while no listener is registered.
        let simulated = Machine { is_simulated: true, ..machine(&[("InternalIP", "127.0.0.1")]) };
        let dialled = kubelets.find(&simulated).expect("an address").dial(false).await;
        assert_eq!(dialled.err(), Some(Unreached::NotAllowed));
    }

    #[tokio::test]
    async fn simulated_nodes_are_found_in_this_process() {
        let kubelets = kubelets();
        let (heads, mut served) = tokio::sync::mpsc::unbounded_channel();
        let accept = move |mut stream: DuplexStream| {
            let heads = heads.clone();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a request"));
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("an answer");
                heads.send(String::from_utf8(head).expect("text")).expect("it is waited for");
            });
        };
        kubelets.simulated().serve(7, Box::new(accept));
        let simulated = Machine { is_simulated: true, port: Some(7), ..machine(&[]) };
        // Connections to other nodes never use the listener, whatever their port.
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
        let head = served.recv().await.expect("it was asked").to_lowercase();
        assert!(head.starts_with("get /pods http/1.1") && head.contains("host: n:7"), "{head}");
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
