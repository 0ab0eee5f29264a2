//! The routes of connections out of this server: direct, or through the proxies of an EgressSelectorConfiguration.

use crate::error_texts::DialError;
use crate::wire::{ServerTls, Wire, dial, shown};
use crate::{IDLE_MAX, Identity, TlsTrust, konnectivity};
use holdfast_core::object::reader::{Faults, Reader};
use holdfast_core::object::yaml;
use holdfast_value::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const GROUP: &str = "apiserver.k8s.io";
const KIND: &str = "EgressSelectorConfiguration";
/// The largest answer of a proxy to CONNECT.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// The routes of connections to the control plane and into the cluster.
#[derive(Debug, Clone, Default)]
pub struct Egress {
    pub control_plane: Dialer,
    pub cluster: Dialer,
}

#[derive(Debug, Clone, Default)]
pub enum Dialer {
    #[default]
    Direct,
    Proxy(Arc<Proxy>),
    /// Connections go through a konnectivity server.
    Tunnel(Arc<Proxy>),
}

/// A proxy that connects to any target, with HTTP's method CONNECT or as a konnectivity server.
#[derive(Debug)]
pub struct Proxy {
    /// The proxy's address, which names the proxy in messages.
    address: String,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<ServerTls> },
}

impl Dialer {
    pub(crate) async fn dial(&self, host: &str, port: u16) -> Result<Wire, DialError> {
        match self {
            Dialer::Direct => dial(host, port).await.map(Wire::Tcp),
            Dialer::Proxy(proxy) => proxy.dial(host, port).await,
            Dialer::Tunnel(proxy) => {
                let wire = proxy.open().await.map_err(|why| konnectivity::unavailable(&why))?;
                konnectivity::dial(wire, &shown(host, port)).await.map(Wire::Tunnel)
            }
        }
    }
}

impl Proxy {
    async fn dial(&self, host: &str, port: u16) -> Result<Wire, DialError> {
        let unreachable = |why| DialError(format!("dialing proxy {:?} failed: {why}", self.address));
        let mut wire = self.open().await.map_err(unreachable)?;
        self.tunnel(&mut wire, &shown(host, port)).await?;
        Ok(wire)
    }

    /// Opens a connection to the proxy itself.
    async fn open(&self) -> Result<Wire, DialError> {
        match &self.transport {
            Transport::Unix(path) => {
                let dialled = match holdfast_files::check_socket(path) {
                    Ok(()) => UnixStream::connect(path).await,
                    Err(refused) => Err(refused),
                };
                let why = |error| {
                    let why = crate::error_texts::of_connect(&error);
                    DialError(format!("dial unix {}: {why}", path.display()))
                };
                dialled.map(Wire::Unix).map_err(why)
            }
            Transport::Tcp { host, port, tls } => {
                let wire = dial(host, *port).await.map(Wire::Tcp)?;
                wire.keep_alive(IDLE_MAX);
                match tls {
                    None => Ok(wire),
                    Some(tls) => tls.handshake(wire).await.map(|spoken| Wire::Tls(Box::new(spoken))),
                }
            }
        }
    }

    /// The same proxy with HTTP/2 negotiated over its TLS.
    fn speaking_http2(mut self) -> Proxy {
        if let Transport::Tcp { tls: Some(tls), .. } = &mut self.transport {
            *tls = tls.speaking(&[b"h2"]);
        }
        self
    }

    /// Requests a connection from the proxy, and reads exactly to the end of the proxy's answer: the bytes after it
    /// belong to the target.
    async fn tunnel(&self, wire: &mut Wire, target: &str) -> Result<(), DialError> {
        let address = &self.address;
        let broken = |why: &dyn fmt::Display| {
            DialError(format!("reading HTTP response from CONNECT to {target} via proxy {address} failed: {why}"))
        };
        let asked = format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        wire.write_all(asked.as_bytes()).await.map_err(|error| broken(&error))?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= ANSWER_BYTES_MAX {
                return Err(broken(&"the answer is too long"));
            }
            match wire.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(broken(&"unexpected EOF"));
                }
                Err(error) => return Err(broken(&error)),
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        let line = answer.lines().next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/").and_then(|rest| rest.split_once(' ')).map_or("", |(_, status)| status);
        match status.split(' ').next().unwrap_or_default() {
            "200" => Ok(()),
            code if !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(DialError(format!("proxy error from {address} while dialing {target}, code {code}: {status}")))
            }
            _ => Err(broken(&format!("malformed HTTP response {line:?}"))),
        }
    }
}

impl Egress {
    /// Reads a document in YAML or JSON, and returns all faults at once. As in Kubernetes, unknown fields are ignored.
    pub fn read(text: &str) -> Result<Egress, Vec<String>> {
        let document: Value = yaml::read(text).map_err(|error| vec![error.to_string()])?;
        let faults = Faults::default();
        let egress = Reader::new(&document, "", &faults).map(|reader| read(&reader.lenient()));
        match (egress, faults.into_inner()) {
            (Some(egress), faults) if faults.is_empty() => Ok(egress),
            (_, faults) => Err(faults.iter().map(ToString::to_string).collect()),
        }
    }
}

fn read(reader: &Reader<'_>) -> Egress {
    let (kind, version) = (reader.text("kind").unwrap_or(""), reader.text("apiVersion").unwrap_or(""));
    if kind != KIND {
        reader.fault("", format!("invalid service configuration object {kind:?}"));
    }
    let known = version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if !matches!(known, Some("v1" | "v1beta1" | "v1alpha1")) {
        reader.fault("", format!("no kind {kind:?} is registered for version {version:?}"));
    }
    let (mut egress, mut seen) = (Egress::default(), BTreeSet::new());
    for (at, selection) in reader.list("egressSelections").unwrap_or_default().into_iter().enumerate() {
        let selection = selection.lenient();
        let dialer = selection.child("connection").map(Reader::lenient).and_then(|own| dialer(reader, &own));
        let name = selection.text("name").unwrap_or("").to_lowercase();
        // The oldest API version calls this selection `master`.
        let name = if name == "master" { "controlplane".to_owned() } else { name };
        if !seen.insert(name.clone()) {
            reader.fault(&format!("{AT}[{at}]"), format!("Duplicate value: {name:?}"));
            continue;
        }
        match name.as_str() {
            "cluster" => egress.cluster = dialer.unwrap_or_default(),
            "controlplane" => egress.control_plane = dialer.unwrap_or_default(),
            // The selection for etcd is ignored, because connections to etcd use no proxy.
            "etcd" => {}
            other => {
                let supported = "\"cluster\", \"controlplane\", \"etcd\"";
                reader.fault(AT, format!("Unsupported value: {other:?}: supported values: {supported}"));
            }
        }
    }
    egress
}

/// The path in all fault messages; as in Kubernetes it does not depend on the selection.
const AT: &str = "service.connection";

/// The dialer of a connection; `None` after a fault was reported.
fn dialer(root: &Reader<'_>, own: &Reader<'_>) -> Option<Dialer> {
    let transport = own.child("transport").map(Reader::lenient);
    let required = |field: &str, why: &str| root.required(&format!("{AT}.{field}"), why);
    match (own.text("proxyProtocol").unwrap_or(""), transport) {
        ("Direct", None) => return Some(Dialer::Direct),
        ("Direct", Some(_)) => {
            root.invalid(
                &format!("{AT}.transport"),
                "\"direct\"",
                "Transport config should be absent for direct connect",
            );
        }
        ("HTTPConnect", Some(transport)) => return proxy(root, &transport).map(|proxy| Dialer::Proxy(Arc::new(proxy))),
        ("HTTPConnect", None) => required("transport", "transport must be set for HTTPConnect"),
        ("GRPC", Some(transport)) => {
            // As in Kubernetes, a socket takes precedence over all other fields.
            let proxy = match transport.child("uds") {
                Some(unix) => over_unix(root, &unix.lenient()),
                None => proxy(root, &transport),
            };
            return proxy.map(|proxy| Dialer::Tunnel(Arc::new(proxy.speaking_http2())));
        }
        ("GRPC", None) => required("transport", "transport must be set for GRPC"),
        (other, _) => root.fault(
            &format!("{AT}.protocol"),
            format!("Unsupported value: {other:?}: supported values: \"Direct\", \"HTTPConnect\", \"GRPC\""),
        ),
    }
    None
}

fn proxy(root: &Reader<'_>, transport: &Reader<'_>) -> Option<Proxy> {
    let (tcp, unix) = (transport.child("tcp").map(Reader::lenient), transport.child("uds").map(Reader::lenient));
    let place = |field: &str| format!("{AT}.{field}");
    match (tcp, unix) {
        (Some(_), Some(_)) => root.invalid(&place("tcp"), "{}", "TCP and UDS cannot both be set"),
        (None, None) => root.required(&place("tcp"), "One of TCP or UDS must be set"),
        (Some(tcp), None) => return over_tcp(root, &tcp),
        (None, Some(unix)) => return over_unix(root, &unix),
    }
    None
}

fn over_unix(root: &Reader<'_>, unix: &Reader<'_>) -> Option<Proxy> {
    let Some(path) = unix.text("udsName").filter(|path| !path.is_empty()) else {
        root.invalid(&format!("{AT}.udsName"), "\"nil\"", "UDSName should be present for UDS connections");
        return None;
    };
    Some(Proxy { address: path.to_owned(), transport: Transport::Unix(path.into()) })
}

fn over_tcp(root: &Reader<'_>, tcp: &Reader<'_>) -> Option<Proxy> {
    let place = |field: &str| format!("{AT}.{field}");
    let text = tcp.text("url").unwrap_or("");
    let tls = tcp.child("tlsConfig").map(Reader::lenient);
    let (is_secured, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => {
            let why = "supported connection protocols are http:// and https://";
            root.invalid(&place("url"), format!("{text:?}"), why);
            return None;
        }
    };
    let url = text.parse::<http::Uri>().ok().filter(|url| url.host().is_some());
    let Some(url) = url else {
        root.invalid(&place("url"), format!("{text:?}"), "it cannot be read");
        return None;
    };
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = url.port_u16().unwrap_or(if is_secured { 443 } else { 80 });
    let tls = match (is_secured, tls) {
        (false, None) => None,
        (false, Some(_)) => {
            root.invalid(&place("tlsConfig"), "\"nil\"", "TLSConfig config should not be present when using HTTP");
            return None;
        }
        (true, None) => {
            root.required(&place("tlsConfig"), "TLSConfig must be present when using HTTPS");
            return None;
        }
        (true, Some(tls)) => Some(identified(root, &tls, &host)?),
    };
    let address = rest.split('/').next().unwrap_or(rest).to_owned();
    Some(Proxy { address, transport: Transport::Tcp { host, port, tls } })
}

/// TLS towards a proxy, with a client certificate.
fn identified(root: &Reader<'_>, tls: &Reader<'_>, host: &str) -> Option<ServerTls> {
    let place = |field: &str| format!("{AT}.tlsConfig.{field}");
    let file = |field: &str, missing: &str, absent: &str| {
        let path = tls.text(field).unwrap_or("");
        match (path, std::fs::read(path)) {
            ("", _) if missing.is_empty() => Some(Vec::new()),
            ("", _) => {
                root.invalid(&place(field), "\"nil\"", missing);
                None
            }
            (_, Ok(bytes)) => Some(bytes),
            (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                root.invalid(&place(field), format!("{path:?}"), absent);
                None
            }
            (_, Err(error)) => {
                root.invalid(&place(field), format!("{path:?}"), &error.to_string());
                None
            }
        }
    };
    let authorities = file("caBundle", "", "TLS config ca bundle does not exist");
    let certificate = file("clientCert", "Using TLS requires clientCert", "TLS client cert does not exist");
    let key = file("clientKey", "Using TLS requires requires clientKey", "TLS client key does not exist");
    let (authorities, certificate, key) = (authorities?, certificate?, key?);
    let trust = TlsTrust { authorities, insecure: false, identified: true };
    let tls = Identity::from_pem(&certificate, &key).and_then(|own| ServerTls::new(host, &trust, Some(&own)));
    tls.map_err(|why| root.fault(&format!("{AT}.tlsConfig"), format!("Invalid value: {why}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use tokio::io::AsyncBufReadExt;
    use tokio::net::UnixListener;

    fn document(selections: Value) -> String {
        json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": KIND, "egressSelections": selections}).to_string()
    }

    fn selection(name: &str, protocol: &str, transport: Value) -> Value {
        json!({"name": name, "connection": {"proxyProtocol": protocol, "transport": transport}})
    }

    #[test]
    fn what_is_wrong_is_told_all_at_once() {
        let tcp = |url: &str, tls: Value| json!({"tcp": {"url": url, "tlsConfig": tls}});
        let cases = [
            (selection("Cluster", "Direct", Value::Null), ""),
            (selection("master", "HTTPConnect", json!({"uds": {"udsName": "/x"}})), ""),
            (selection("etcd", "HTTPConnect", tcp("http://a:1", Value::Null)), ""),
            (
                selection("cluster", "Direct", json!({})),
                "service.connection.transport: Invalid value: \"direct\": Transport config should be absent for direct \
                 connect",
            ),
            (
                selection("cluster", "HTTPConnect", Value::Null),
                "service.connection.transport: Required value: transport must be set for HTTPConnect",
            ),
            (
                selection("cluster", "HTTPConnect", json!({"tcp": {}, "uds": {}})),
                "service.connection.tcp: Invalid value: {}: TCP and UDS cannot both be set",
            ),
            (
                selection("cluster", "HTTPConnect", tcp("ftp://a", Value::Null)),
                "service.connection.url: Invalid value: \"ftp://a\": supported connection protocols are http:// and \
                 https://",
            ),
            (
                selection("cluster", "HTTPConnect", tcp("https://a", json!({"clientKey": "/nowhere"}))),
                "service.connection.tlsConfig.clientCert: Invalid value: \"nil\": Using TLS requires clientCert, \
                 service.connection.tlsConfig.clientKey: Invalid value: \"/nowhere\": TLS client key does not exist",
            ),
            (selection("cluster", "GRPC", json!({"uds": {"udsName": "/x"}})), ""),
            (
                selection("cluster", "GRPC", json!({})),
                "service.connection.tcp: Required value: One of TCP or UDS must be set",
            ),
            (selection("cluster", "GRPC", tcp("http://a", Value::Null)), ""),
            (selection("cluster", "GRPC", json!({"tcp": {"url": "ftp://a"}, "uds": {"udsName": "/x"}})), ""),
            (
                selection("cluster", "GRPC", tcp("https://a", Value::Null)),
                "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS",
            ),
            (
                selection("cluster", "GRPC", Value::Null),
                "service.connection.transport: Required value: transport must be set for GRPC",
            ),
            (
                selection("cluster", "GRPC", json!({"uds": {}})),
                "service.connection.udsName: Invalid value: \"nil\": UDSName should be present for UDS connections",
            ),
            (
                selection("node", "Direct", Value::Null),
                "service.connection: Unsupported value: \"node\": supported values: \"cluster\", \"controlplane\", \"etcd\"",
            ),
        ];
        for (selection, expected) in cases {
            let told = Egress::read(&document(json!([selection]))).err().unwrap_or_default().join(", ");
            assert_eq!(told, expected, "{selection}");
        }
        let twice = [selection("cluster", "Direct", Value::Null), selection("CLUSTER", "Direct", Value::Null)];
        let told = Egress::read(&document(json!(twice))).expect_err("refused");
        assert_eq!(told, ["service.connection[1]: Duplicate value: \"cluster\""]);
        assert!(Egress::read("kind: X").is_err());
    }

    #[tokio::test]
    async fn connections_go_through_a_proxy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("proxy");
        let listener = UnixListener::bind(&path).expect("a socket");
        let answers = ["HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello", "HTTP/1.1 403 Forbidden\r\n\r\n", "SSH-2.0\r\n\r\n"];
        let proxy = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (stream, _) = listener.accept().await.expect("a connection");
                let mut stream = tokio::io::BufStream::new(stream);
                let mut line = String::new();
                stream.read_line(&mut line).await.expect("a request");
                asked.push(line.trim_end().to_owned());
                stream.write_all(answer.as_bytes()).await.expect("an answer");
                stream.flush().await.expect("an answer");
            }
            asked
        });
        let transport = json!({"uds": {"udsName": path}});
        let egress =
            Egress::read(&document(json!([selection("cluster", "HTTPConnect", transport)]))).expect("it is right");
        let mut wire = egress.cluster.dial("a.example.com", 443).await.expect("a connection");
        let mut text = [0; 5];
        wire.read_exact(&mut text).await.expect("what is sent through it");
        assert_eq!(&text, b"hello");
        let refused = egress.cluster.dial("::1", 8443).await.err().expect("refused").to_string();
        let shown = path.display();
        assert_eq!(refused, format!("proxy error from {shown} while dialing [::1]:8443, code 403: 403 Forbidden"));
        let broken = egress.cluster.dial("b", 1).await.err().expect("refused").to_string();
        assert!(broken.ends_with("failed: malformed HTTP response \"SSH-2.0\""), "{broken}");
        let asked = proxy.await.expect("it ends");
        let expected = ["CONNECT a.example.com:443 HTTP/1.1", "CONNECT [::1]:8443 HTTP/1.1", "CONNECT b:1 HTTP/1.1"];
        assert_eq!(asked, expected);
        let missing = egress.cluster.dial("b", 1).await.err().expect("refused").to_string();
        assert!(missing.starts_with(&format!("dialing proxy \"{shown}\" failed: dial unix")), "{missing}");
        let transport = json!({"uds": {"udsName": folder.path().join("nobody")}});
        let egress = Egress::read(&document(json!([selection("cluster", "GRPC", transport)]))).expect("it is right");
        let missing = egress.cluster.dial("b", 1).await.err().expect("refused").to_string();
        let expected = "rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: \
                        dial unix ";
        assert!(missing.starts_with(expected) && missing.ends_with("no such file or directory\""), "{missing}");
    }
}
