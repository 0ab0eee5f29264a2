//! Plans the requests that announce this server to the cluster. They write the Service `kubernetes` with its endpoints,
//! and a Lease that identifies the server.

use crate::apiservices::write;
use crate::authz::bootstrap_objects::kubernetes_service;
use crate::kinds::core::ServiceRanges;
use crate::kinds::{Known, known};
use crate::namespace::Step;
use crate::object::meta;
use crate::request::{Target, Verb};
use crate::stamp::Stamp;
use crate::state::State;
use holdfast_value::{Value, json};
use sha2::{Digest, Sha256};
use std::net::IpAddr;

const NAMESPACE: &str = "default";
const SERVICE: &str = "kubernetes";
pub(crate) const LEASES_NAMESPACE: &str = "kube-system";
const IDENTITY_LABEL: &str = "apiserver.kubernetes.io/identity";
const IDENTITY: &str = "kube-apiserver";

/// The settings of the Service `kubernetes`, by which clients inside the cluster reach the server.
#[derive(Debug, Clone)]
pub struct Settings {
    pub ranges: ServiceRanges,
    /// The address of this server that the endpoints list; `None` if no address of the server is reachable from other
    /// machines.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// The node port of the Service; 0 for none.
    pub node_port: u16,
    pub reconciler: Reconciler,
    /// The addresses of all servers that share the log, including this one; empty if no other server uses the log.
    pub servers: Vec<String>,
}

/// How the server determines the servers that the endpoints of the Service `kubernetes` list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconciler {
    /// Lists the servers that renew their leases.
    Lease,
    /// Lists this server and the servers that are already listed. The number is the maximum number of listed servers.
    MasterCount(usize),
    /// The server does not write the endpoints.
    Nobody,
}

/// Creates the Service and its endpoints, and corrects wrong endpoints. Changes that users made to the Service are
/// undone only when the server starts (`starts`).
pub fn plan(state: &State, settings: &Settings, starts: bool) -> Vec<Step> {
    let told = settings.address.unwrap_or(settings.ranges.first.address(1));
    let documents = kubernetes_service(&settings.ranges, told, settings.port);
    let wanted = |known: Known| documents.iter().find(|document| known.is_kind_of(document)).cloned();
    let mut steps = Vec::new();
    let has_ranges = || read(state, known::SERVICE_CIDR, "", SERVICE).is_some();
    if let Some(ranges) = wanted(known::SERVICE_CIDR).filter(|_| starts && has_ranges()) {
        steps.extend(made(state, known::SERVICE_CIDR, &ranges, |old| with_second_range(old, &ranges)));
    }
    if let Some(service) = wanted(known::SERVICE).map(|service| with_node_port(service, settings.node_port)) {
        let put_right = |old: &Value| Some(old.clone()).filter(|_| starts).and_then(|old| corrected(old, &service));
        steps.extend(made(state, known::SERVICE, &service, put_right));
    }
    if settings.reconciler == Reconciler::Nobody || settings.address.is_none() {
        return steps;
    }
    let addresses = addresses(&present(state), &told.to_string(), settings);
    for known in [known::ENDPOINTS, known::ENDPOINT_SLICE] {
        let Some(mut wanted) = wanted(known) else { continue };
        let key = if known == known::ENDPOINTS { "subsets" } else { "endpoints" };
        match known == known::ENDPOINTS {
            true => {
                let all: Vec<Value> = addresses.iter().map(|address| json!({"ip": address})).collect();
                wanted["subsets"][0]["addresses"] = all.into();
            }
            false => {
                let one = |address: &String| json!({"addresses": [address], "conditions": {"ready": true}});
                wanted["endpoints"] = addresses.iter().map(one).collect();
            }
        }
        steps.extend(made(state, known, &wanted, |old| {
            let mut new = old.clone();
            for field in [key, "ports", "addressType"] {
                if let Some(value) = wanted.get(field) {
                    new[field] = value.clone();
                }
            }
            Some(new)
        }));
    }
    steps
}

/// Adds a second range to a ServiceCIDR with one range. All other changes of ranges are left to the administrator.
fn with_second_range(old: &Value, wanted: &Value) -> Option<Value> {
    let (before, now) = (old["spec"]["cidrs"].as_array()?, wanted["spec"]["cidrs"].as_array()?);
    let is_added = before.len() == 1 && now.len() == 2 && before[0] == now[0];
    is_added.then(|| {
        let mut new = old.clone();
        new["spec"]["cidrs"] = now.clone().into();
        new
    })
}

/// The addresses that the endpoints of the Service `kubernetes` list now.
fn present(state: &State) -> Vec<String> {
    let Some(document) = read(state, known::ENDPOINTS, NAMESPACE, SERVICE) else { return Vec::new() };
    let addresses = document["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
    addresses.iter().filter_map(|address| address["ip"].as_str().map(str::to_owned)).collect()
}

/// The addresses that the endpoints of the Service `kubernetes` should list.
fn addresses(present: &[String], own: &str, settings: &Settings) -> Vec<String> {
    let Reconciler::MasterCount(count) = settings.reconciler else {
        return if settings.servers.is_empty() { vec![own.to_owned()] } else { settings.servers.clone() };
    };
    let mut all = present.to_vec();
    if !all.iter().any(|address| address == own) {
        all.push(own.to_owned());
    }
    all.sort();
    // There are too many addresses. Removes the addresses after this server's own address, and continues at the
    // beginning of the list.
    while all.len() > count.max(1) {
        let own_at = all.iter().position(|address| address == own).unwrap_or_default();
        all.remove((own_at + 1) % all.len());
    }
    all
}

fn with_node_port(mut service: Value, node_port: u16) -> Value {
    if node_port != 0 {
        service["spec"]["type"] = "NodePort".into();
        service["spec"]["ports"][0]["nodePort"] = node_port.into();
    }
    service
}

/// The Service with the wanted ports and type; `None` if the Service already has them.
fn corrected(mut old: Value, wanted: &Value) -> Option<Value> {
    let mut ports = wanted["spec"]["ports"].clone();
    let has_type = old["spec"]["type"] == wanted["spec"]["type"];
    if has_type && ports[0].get("nodePort").is_none() && !old["spec"]["ports"][0]["nodePort"].is_null() {
        ports[0]["nodePort"] = old["spec"]["ports"][0]["nodePort"].clone();
    }
    if has_type && old["spec"]["ports"] == ports {
        return None;
    }
    old["spec"]["ports"] = ports;
    old["spec"]["type"] = wanted["spec"]["type"].clone();
    Some(old)
}

/// The document of an object; `None` if the object does not exist. `namespace` is empty for cluster-scoped kinds.
pub(crate) fn read(state: &State, known: Known, namespace: &str, name: &str) -> Option<Value> {
    let (kind, _) = state.registry.known(known)?;
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    state.get(kind, &meta::key(namespace, name)).map(|entry| entry.document())
}

/// The step that creates an object, or updates the existing object to the result of `change`; there is no update if
/// `change` returns `None`.
pub(crate) fn made(
    state: &State,
    known: Known,
    wanted: &Value,
    change: impl FnOnce(&Value) -> Option<Value>,
) -> Option<Step> {
    let (kind, version) = state.registry.known(known)?;
    let metadata = &wanted["metadata"];
    let (namespace, name) = (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str()?);
    let target = |name: Option<&str>| Target {
        kind,
        version,
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: name.map(str::to_owned),
        subresource: None,
    };
    match read(state, known, namespace, name) {
        None => Some(write(target(None), Verb::Create, wanted.as_object())),
        Some(old) => {
            let new = change(&old).filter(|new| *new != old)?;
            Some(write(target(Some(name)), Verb::Update, new.as_object()))
        }
    }
}

/// This server's identity among all API servers.
#[derive(Debug, Clone)]
pub struct Identity {
    pub host: String,
    pub lease_seconds: u32,
    /// The name that distinguishes this process from others on the same host.
    pub holder: String,
}

impl Identity {
    /// The name of the Lease that all API server processes on this host share.
    pub fn name(&self) -> String {
        server_id(&self.host)
    }
}

/// The name of the Lease of the API servers on a host: `apiserver-` and a hash of the host's name.
fn server_id(host: &str) -> String {
    let mut hash = Sha256::new();
    for part in [host.as_bytes(), IDENTITY.as_bytes()] {
        let part = &part[..part.len().min(usize::from(u16::MAX))];
        hash.update(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        hash.update(part);
    }
    format!("apiserver-{}", base32(&hash.finalize()[..16]))
}

/// The value by which metrics distinguish servers: a hash of the name of the server's Lease.
pub fn server_id_hash(host: &str) -> String {
    let digest = Sha256::digest(server_id(host));
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The step that renews the server's lease.
pub fn renew(state: &State, identity: &Identity, stamp: Stamp) -> Option<Step> {
    let name = identity.name();
    let now = micros(stamp);
    let spec = json!({
        "holderIdentity": format!("{name}_{}", identity.holder),
        "leaseDurationSeconds": identity.lease_seconds,
        "renewTime": now,
    });
    let labels = json!({IDENTITY_LABEL: IDENTITY, "kubernetes.io/hostname": identity.host});
    let wanted = json!({
        "apiVersion": known::LEASE.api_version(),
        "kind": known::LEASE.kind,
        "metadata": {"name": name, "namespace": LEASES_NAMESPACE, "labels": labels},
        "spec": spec,
    });
    made(state, known::LEASE, &wanted, |old| {
        let mut new = old.clone();
        new["metadata"]["labels"] = wanted["metadata"]["labels"].clone();
        new["spec"] = wanted["spec"].clone();
        Some(new)
    })
}

/// The steps that delete the Leases of servers which did not renew them in time.
pub fn collect(state: &State, stamp: Stamp) -> Vec<Step> {
    let Some((kind, version)) = state.registry.known(known::LEASE) else { return Vec::new() };
    let in_namespace = format!("{LEASES_NAMESPACE}/");
    let leases = state.scan(kind, &in_namespace, None).take_while(|(key, _)| key.starts_with(&in_namespace));
    let is_over = |document: &Value| {
        let renewed = document["spec"]["renewTime"].as_str().and_then(|time| time.parse::<jiff::Timestamp>().ok());
        let seconds = document["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default();
        renewed.is_none_or(|renewed| renewed.as_second().saturating_add(seconds) < stamp.seconds())
    };
    let over = leases
        .map(|(_, entry)| entry.document())
        .filter(|document| document["metadata"]["labels"][IDENTITY_LABEL] == IDENTITY && is_over(document));
    over.filter_map(|document| {
        let name = Some(document["metadata"]["name"].as_str()?.to_owned());
        let target = Target { kind, version, namespace: Some(LEASES_NAMESPACE.into()), name, subresource: None };
        Some(write(target, Verb::Delete, None))
    })
    .collect()
}

/// The time of the stamp as text in the form of the API's type MicroTime.
pub(crate) fn micros(stamp: Stamp) -> String {
    crate::stamp::rfc3339_micros(stamp.time)
}

/// Lower-case base32 without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let (mut text, mut bits, mut held) = (String::new(), 0u32, 0u32);
    for byte in bytes {
        held = (held << 8 | u32::from(*byte)) & 0xfff;
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(ALPHABET[(held >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(ALPHABET[(held << (5 - bits) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_servers_are_those_that_kubernetes_gives() {
        assert_eq!(base32(b"foobar"), "mzxw6ytboi");
        assert_eq!(base32(&[0xff; 16]), "77777777777777777777777774");
        let identity = Identity { host: "node-1".into(), lease_seconds: 3600, holder: "x".into() };
        assert_eq!(identity.name().len(), "apiserver-".len() + 26);
        assert_eq!(identity.name(), identity.name());
        assert_ne!(identity.name(), Identity { host: "node-2".into(), ..identity.clone() }.name());
    }

    #[test]
    fn each_reconciler_has_its_addresses() {
        let all = |addresses: &[&str]| addresses.iter().map(|address| (*address).to_owned()).collect::<Vec<String>>();
        let settings = |servers: &[&str], reconciler| Settings {
            ranges: "10.0.0.0/24".parse().expect("a range"),
            address: None,
            port: 443,
            node_port: 0,
            reconciler,
            servers: all(servers),
        };
        let of = |present: &[&str], reconciler| addresses(&all(present), "10.0.0.5", &settings(&[], reconciler));
        let shared = settings(&["10.0.0.4", "10.0.0.5"], Reconciler::Lease);
        assert_eq!(addresses(&all(&["10.0.0.9"]), "10.0.0.5", &shared), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(of(&["10.0.0.9"], Reconciler::Lease), ["10.0.0.5"]);
        assert_eq!(of(&["10.0.0.9"], Reconciler::MasterCount(2)), ["10.0.0.5", "10.0.0.9"]);
        assert_eq!(of(&["10.0.0.4", "10.0.0.9"], Reconciler::MasterCount(2)), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(of(&["10.0.0.3", "10.0.0.4"], Reconciler::MasterCount(2)), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(of(&["10.0.0.4", "10.0.0.9"], Reconciler::MasterCount(0)), ["10.0.0.5"]);
    }

    #[test]
    fn a_service_is_put_right_and_keeps_the_port_that_it_was_given() {
        let ports = |port: Value| json!({"spec": {"type": "NodePort", "ports": [port]}});
        let plain = json!({"spec": {"type": "ClusterIP", "ports": [{"name": "https", "port": 443}]}});
        let wanted = with_node_port(plain.clone(), 30_443);
        assert_eq!(wanted, ports(json!({"name": "https", "port": 443, "nodePort": 30_443})));
        assert_eq!(corrected(plain.clone(), &plain), None);
        assert_eq!(corrected(wanted.clone(), &wanted), None);
        assert_eq!(corrected(plain.clone(), &wanted), Some(wanted.clone()));
        assert_eq!(corrected(wanted, &plain), Some(plain));
    }
}
