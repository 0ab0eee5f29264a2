//! Finds the address for a reference to a Service: the cluster IP of the Service, or one of its endpoints.

use crate::kinds::{Known, known};
use crate::object::meta;
use crate::state::{Entry, State};
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Which of a Service's addresses the server connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The Service's cluster IP is used, because this machine routes Service traffic.
    Service,
    /// The address of a ready endpoint is used.
    Endpoints,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// The EndpointSlices of each Service. Events keep this index up to date, so that finding the slices of a Service needs
/// no scan.
#[derive(Debug, Default)]
pub struct Slices {
    of_service: BTreeMap<String, BTreeSet<String>>,
    service_of: BTreeMap<String, String>,
}

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Slices {
    /// Updates the index for the newest state of a slice; `None` if the slice was deleted. Returns the keys of the
    /// Services that the slice belongs or belonged to.
    pub fn note(&mut self, key: &str, slice: Option<&Entry>) -> BTreeSet<String> {
        let (namespace, _) = meta::split_key(key);
        let service = slice.and_then(|slice| slice.index.label(SERVICE_NAME));
        let now = service.map(|name| meta::key(namespace, name));
        let before = match &now {
            Some(service) => self.service_of.insert(key.to_owned(), service.clone()),
            None => self.service_of.remove(key),
        };
        if before != now {
            if let Some(slices) = before.as_ref().and_then(|before| self.of_service.get_mut(before)) {
                slices.remove(key);
            }
            if let Some(service) = &now {
                self.of_service.entry(service.clone()).or_default().insert(key.to_owned());
            }
            if let Some(before) = before.as_ref().filter(|before| self.of_service[*before].is_empty()) {
                self.of_service.remove(before);
            }
        }
        before.into_iter().chain(now).collect()
    }
}

/// The endpoints of a Service's port.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Whether any EndpointSlice or Endpoints object describes the Service.
    pub known: bool,
    pub ready: Vec<Address>,
}

pub fn service(state: &State, namespace: &str, name: &str) -> Option<Value> {
    object(state, known::SERVICE, namespace, name)
}

fn object(state: &State, known: Known, namespace: &str, name: &str) -> Option<Value> {
    let (kind, _) = state.registry.known(known)?;
    state.get(kind, &meta::key(Some(namespace), name)).map(|entry| entry.document())
}

/// The name of the Service's port with this number; `None` if the Service has no such port. The name may be empty.
pub fn port_name(service: &Value, port: u16) -> Option<String> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array);
    let found = ports.into_iter().flatten().find(|found| found["port"] == port)?;
    Some(found["name"].as_str().unwrap_or_default().to_owned())
}

/// The ready endpoints of a Service's port, from its EndpointSlices, or from its Endpoints object if it has no slices.
pub fn endpoints(state: &State, slices: &Slices, namespace: &str, name: &str, port_name: &str) -> Endpoints {
    let mut found = Endpoints::default();
    if let Some((kind, _)) = state.registry.known(known::ENDPOINT_SLICE) {
        let keys = slices.of_service.get(&meta::key(Some(namespace), name));
        for entry in keys.into_iter().flatten().filter_map(|key| state.get(kind, key)) {
            found.known = true;
            let slice = entry.document();
            let ready = |endpoint: &&Value| endpoint.pointer("/conditions/ready") != Some(&Value::Bool(false));
            let hosts =
                items(&slice, "endpoints").filter(ready).filter_map(|endpoint| endpoint["addresses"][0].as_str());
            found.add(hosts, items(&slice, "ports"), port_name);
        }
    }
    if !found.known
        && let Some(old) = object(state, known::ENDPOINTS, namespace, name)
    {
        found.known = true;
        for subset in items(&old, "subsets") {
            let hosts = items(subset, "addresses").filter_map(|address| address["ip"].as_str());
            found.add(hosts, items(subset, "ports"), port_name);
        }
    }
    found
}

impl Endpoints {
    fn add<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a str>,
        mut ports: impl Iterator<Item = &'a Value>,
        port_name: &str,
    ) {
        let port = ports.find(|port| port["name"].as_str().unwrap_or_default() == port_name);
        let Some(port) = port.and_then(|port| u16::try_from(port["port"].as_u64()?).ok()) else { return };
        self.ready.extend(hosts.map(|host| Address { host: host.to_owned(), port }));
    }
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The address of a Service's port. `draw` is a random number that chooses among the endpoints.
pub fn resolve(
    state: &State,
    slices: &Slices,
    (namespace, name, port): (&str, &str, u16),
    routing: Routing,
    draw: u64,
) -> Result<Address, String> {
    let found = service(state, namespace, name).ok_or_else(|| format!("service {name:?} not found"))?;
    let spec = |field: &str| found["spec"][field].as_str().unwrap_or_default();
    let kind = spec("type");
    let routed = matches!(kind, "" | "ClusterIP" | "NodePort" | "LoadBalancer");
    if kind == "ExternalName" && routing == Routing::Service {
        return Ok(Address { host: spec("externalName").to_owned(), port });
    }
    if !routed {
        return Err(format!("unsupported service type {kind:?}"));
    }
    let headless = spec("clusterIP") == "None";
    if headless && kind != "NodePort" && kind != "LoadBalancer" && routing == Routing::Service {
        return Err("cannot route to service with ClusterIP \"None\"".into());
    }
    let port_name =
        port_name(&found, port).ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    if routing == Routing::Service {
        return Ok(Address { host: spec("clusterIP").to_owned(), port });
    }
    let mut ready = endpoints(state, slices, namespace, name, &port_name).ready;
    match u64::try_from(ready.len()) {
        Ok(0) | Err(_) => Err(format!("no endpoints available for service {name:?}")),
        Ok(count) => Ok(ready.swap_remove((draw % count) as usize)),
    }
}
