//! Connect requests to subresources that are answered outside the API server: their options, the document for
//! admission, and their destination.

use super::known::{self, Known};
use super::layouts::layout_of;
use super::{Kind, Registry, body_message};
use crate::refusal::{BadRequest, Internal, Refusal, Subject};
use crate::schema::layout::Layout;
use crate::schema::{Field, Shape, Type, schema};
use holdfast_value::{Map, Value};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The options of a connect request: all properties of the request except the path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    pub container: Option<String>,
    pub limit_bytes: Option<i64>,
    pub since_seconds: Option<i64>,
    pub since_time: Option<String>,
    pub tail_lines: Option<i64>,
    /// All query parameters as sent, for subresources that are answered outside the API server.
    pub parameters: Vec<(String, String)>,
}

impl ConnectOptions {
    /// Whether a parameter is true. As in Kubernetes, any value except `false` and `0` is true.
    pub fn flag(&self, name: &str) -> bool {
        self.all(name).next().is_some_and(is_true)
    }

    /// The ports to forward. The client sends one parameter for each port, or one parameter with commas.
    pub fn ports(&self) -> Result<Vec<u16>, Refusal> {
        ports_of(self.all("ports"))
    }

    /// All values of the query parameter `name`.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.parameters.iter().filter(move |(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

fn ports_of<'a>(said: impl Iterator<Item = &'a str>) -> Result<Vec<u16>, Refusal> {
    let port = |text: &str| text.parse().map_err(|_| Refusal::BadRequest(BadRequest::NotAPort(text.to_owned())));
    said.flat_map(|text| text.split(',')).map(port).collect()
}

fn is_true(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0")
}

/// Checks the options of a connect request. The arguments are the object's name, the subresource, the options, and the
/// feature gates that are off.
pub type CheckConnect = fn(&str, &str, &ConnectOptions, &BTreeSet<&'static str>) -> Result<(), Refusal>;

/// The input for finding a connect request's destination.
pub struct Leading<'a> {
    /// The subresource: `log`, `exec`, `proxy` and so on.
    pub part: &'a str,
    /// The name in the path. A proxy's name may include scheme and port: `https:web:8443`.
    pub way: &'a Named<'a>,
    pub options: &'a ConnectOptions,
    /// A function that finds another object by kind and key.
    pub find: &'a dyn Fn(Known, &str) -> Option<Value>,
    /// A random number for choosing among several destinations.
    pub draw: u64,
}

/// Finds the destination of a connect request. The first argument is the object.
pub type Lead = fn(&Value, &Leading<'_>) -> Result<Destination, Refusal>;

/// The destination of a connect request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// No destination yet: the log of a pod that has no node.
    Nowhere,
    /// The kubelet of a node, at this path and with this query.
    Kubelet { machine: Machine, path: String, query: String },
    /// A node, at its kubelet's port unless the request names another port.
    Node { machine: Machine, is_secure: bool, port: Option<u16> },
    /// A pod, at its address in the cluster.
    Server { is_secure: bool, host: IpAddr, port: Option<u16> },
}

/// A node and its addresses, from the Node's metadata and status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    /// The node's addresses: type and address.
    pub addresses: Vec<(String, String)>,
    /// The port of the node's kubelet.
    pub port: Option<u16>,
    /// Whether the kubelet supports all WebSocket protocol versions.
    pub takes_websockets: bool,
    /// Whether the node is simulated.
    pub is_simulated: bool,
}

/// Nodes that Holdfast created to simulate them have this annotation with the value `true`.
pub const SIMULATED_NODE: &str = "simulate.holdfast.dev/node";
/// The annotation, with its value, that marks other Nodes to be simulated, as in KWOK.
pub const KWOK_NODE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");

impl Machine {
    /// The machine that the document of a Node describes.
    pub fn of(node: &Value) -> Machine {
        let status = &node["status"];
        let entries = status["addresses"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let features = status["declaredFeatures"].as_array().into_iter().flatten();
        let annotations = &node["metadata"]["annotations"];
        Machine {
            name: text(&node["metadata"]["name"]),
            addresses: entries.map(|entry| (text(&entry["type"]), text(&entry["address"]))).collect(),
            port: port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
            takes_websockets: features.into_iter().any(|feature| feature == "ExtendWebSocketsToKubelet"),
            is_simulated: annotations[SIMULATED_NODE] == "true" || annotations[KWOK_NODE.0] == KWOK_NODE.1,
        }
    }

    /// The pod's node. As in Kubernetes, the error for a missing node names the pods resource.
    pub(crate) fn find(find: &dyn Fn(Known, &str) -> Option<Value>, name: &str) -> Result<Machine, Refusal> {
        let missing = || Refusal::NotFound(Subject::new(known::POD.group, known::POD.resource, name.to_owned()));
        find(known::NODE, name).as_ref().map(Machine::of).ok_or_else(missing)
    }
}

/// The name in a proxy path, with optional scheme and port: `web`, `web:80`, `https:web:https`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    pub is_secure: bool,
    pub name: &'a str,
    /// The port as a number or a name; empty if the path names no port.
    pub port: &'a str,
}

impl<'a> Named<'a> {
    /// Parses the name; `None` if it has more than three parts, an unknown scheme or an empty name.
    pub fn parse(text: &'a str) -> Option<Named<'a>> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => return None,
        };
        let is_known = matches!(scheme, "" | "http" | "https");
        (is_known && !name.is_empty()).then_some(Named { is_secure: scheme == "https", name, port })
    }
}

/// Whether a proxy may connect to the address. Unspecified, loopback, link-local, multicast and broadcast addresses are
/// refused.
pub fn is_global(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let is_bad = address.is_unspecified() || address.is_loopback() || address.is_link_local();
            !is_bad && !address.is_multicast() && !address.is_broadcast() && address.octets()[0] != 0
        }
        IpAddr::V6(address) => {
            let is_bad = address.is_unspecified() || address.is_loopback() || address.is_unicast_link_local();
            !is_bad && !address.is_multicast()
        }
    }
}

/// The pairs as a URL query, sorted by name, as Go clients write it.
pub fn query_of(mut pairs: Vec<(&str, String)>) -> String {
    pairs.sort_by_key(|(name, _)| *name);
    let pairs: Vec<String> = pairs.iter().map(|(name, text)| format!("{name}={}", escaped(text))).collect();
    pairs.join("&")
}

/// Percent-encodes text for a query.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| match byte {
            b' ' => "+".to_owned(),
            byte if plain(byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// Subresources that connect the client to a server behind the API server.
const WAYS: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// The package of the schema messages that describe connect options.
const PACKAGE: &str = "io.k8s.api.core.v1";

/// Whether a subresource is answered outside the API server.
pub fn leads_away(subresource: &str) -> bool {
    leads_to_node(subresource) || subresource == "log"
}

/// Whether a subresource connects the client to a server behind the API server, so that admission judges the request.
/// Reading a `log` does not count.
pub fn leads_to_node(subresource: &str) -> bool {
    WAYS.contains(&way(subresource).0)
}

/// Splits the path below an object into the subresource's name and the path after the name.
fn way(subresource: &str) -> (&str, &str) {
    subresource.split_once('/').unwrap_or((subresource, ""))
}

/// The document that represents a connect request in admission: the options from its parameters and path.
pub(crate) fn connect_document(
    kind: &Kind,
    version: usize,
    subresource: &str,
    options: &ConnectOptions,
) -> Result<(Known, Value), Refusal> {
    let (name, path) = way(subresource);
    let body = kind.subresource(version, name).and_then(|served| served.body.as_ref());
    let known = body.and_then(|(_, _, kind)| known::options(kind)).ok_or(Refusal::NoSuchPath)?;
    let message = format!("{PACKAGE}.{}", known.kind);
    let id = schema().id(&message).ok_or(Refusal::Internal(Internal::NoMessage { message }))?;
    let mut document = Map::new();
    document.insert("kind", known.kind.into());
    document.insert("apiVersion", known.api_version().into());
    for field in &schema().message(id).fields {
        let said: Vec<&str> = match (&*field.json, path) {
            ("path", path) if !path.is_empty() => vec![path],
            (name, _) => {
                options.parameters.iter().filter(|(known, _)| known == name).map(|(_, text)| &**text).collect()
            }
        };
        if let Some(value) = value_of(field, &said)? {
            document.insert(field.json.to_string(), value);
        }
    }
    if let Some(Value::String(path)) = document.get_mut("path")
        && !path.starts_with('/')
    {
        path.insert(0, '/');
    }
    Ok((known, Value::Object(document)))
}

/// The value of an option that may be given several times. As in Kubernetes, any boolean except `false` and `0` is
/// true.
fn value_of(field: &Field, said: &[&str]) -> Result<Option<Value>, Refusal> {
    let Some(first) = said.first() else { return Ok(None) };
    Ok(match (&field.shape, &field.ty) {
        (Shape::List, Type::Int32) => Some(ports_of(said.iter().copied())?.into_iter().collect()),
        (Shape::List, _) => Some(said.iter().copied().collect()),
        (_, Type::Bool) => Some(Value::Bool(true)).filter(|_| is_true(first)),
        _ => Some(Value::from(*first)).filter(|_| !first.is_empty()),
    })
}

/// The layout of a subresource's body, which is a served kind, a message of the group, or connect options.
pub(crate) fn part_layout(registry: &Registry, part: Known) -> Result<Layout<'static>, Refusal> {
    let served = registry.find_kind(part.group, part.version, part.kind);
    let message = match served {
        Some((id, version)) => registry.get(id).versions[version].message.clone(),
        None => match body_message(part.group, part.version, part.kind) {
            Some(message) => message.to_owned(),
            None => format!("{PACKAGE}.{}", part.kind),
        },
    };
    layout_of(&message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::registry;
    use holdfast_value::json;

    #[test]
    fn names_may_say_how_they_are_asked() {
        let all = |text| Named::parse(text).map(|named| (named.is_secure, named.name, named.port));
        for (text, expected) in [
            ("web", Some((false, "web", ""))),
            ("web:", Some((false, "web", ""))),
            ("web:80", Some((false, "web", "80"))),
            ("http:web:80", Some((false, "web", "80"))),
            ("https:web:", Some((true, "web", ""))),
            (":web:x", Some((false, "web", "x"))),
            ("ftp:web:80", None),
            (":80", None),
            ("a:b:c:d", None),
            ("", None),
        ] {
            assert_eq!(all(text), expected, "{text}");
        }
    }

    #[test]
    fn addresses_of_this_machine_and_its_link_are_not_asked() {
        for (address, expected) in [
            ("10.0.0.1", true),
            ("192.168.1.1", true),
            ("fd00::1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("127.8.9.1", false),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("169.254.169.254", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:10.0.0.1", true),
        ] {
            assert_eq!(is_global(address.parse().expect("an address")), expected, "{address}");
        }
    }

    #[test]
    fn queries_read_as_go_writes_them() {
        let pairs = vec![("tty", "1".to_owned()), ("command", "a b&c".to_owned()), ("command", "ü".to_owned())];
        assert_eq!(query_of(pairs), "command=a+b%26c&command=%C3%BC&tty=1");
    }

    #[test]
    fn parameters_become_options() {
        let sent = |pairs: &[(&str, &str)]| {
            let parameters = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            ConnectOptions { parameters, ..ConnectOptions::default() }
        };
        let made = |kind, subresource: &str, pairs: &[(&str, &str)]| {
            let kind = registry().get(registry().known(kind).expect("a kind of every cluster").0);
            connect_document(kind, 0, subresource, &sent(pairs)).map(|(_, document)| document)
        };
        let of = |kind, subresource: &str, pairs: &[(&str, &str)]| made(kind, subresource, pairs).expect("a way");
        let exec = of(
            known::POD,
            "exec",
            &[("command", "ls"), ("command", "-l"), ("tty", "true"), ("stdin", "0"), ("x", "y")],
        );
        let wanted = json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["ls", "-l"], "tty": true});
        assert_eq!(exec, wanted);
        let proxy = of(known::SERVICE, "proxy/a/b", &[("path", "c")]);
        assert_eq!(proxy, json!({"kind": "ServiceProxyOptions", "apiVersion": "v1", "path": "/a/b"}));
        let ports = of(known::POD, "portforward", &[("ports", "80"), ("ports", "443,8080")]);
        assert_eq!(ports, json!({"kind": "PodPortForwardOptions", "apiVersion": "v1", "ports": [80, 443, 8080]}));
        for (text, fault) in [
            ("x", "parsing \"x\": invalid syntax"),
            ("", "parsing \"\": invalid syntax"),
            ("80,", "parsing \"\": invalid syntax"),
            ("-1", "parsing \"-1\": invalid syntax"),
            ("80,65536", "parsing \"65536\": value out of range"),
        ] {
            let refused = made(known::POD, "portforward", &[("ports", text)]).expect_err("no ports");
            let told = format!("cannot convert to []int32: strconv.ParseUint: {fault}");
            assert_eq!((refused.reason(), refused.message()), ("BadRequest", told), "{text}");
        }
    }
}
