//! The proxy of a Service: connects to one of the Service's ready endpoints that are pods.

use super::super::connect::refuse_simulated;
use crate::kinds::build::text;
use crate::kinds::{Destination, Leading, Named, is_global, known};
use crate::object::meta;
use crate::refusal::{Refusal, Subject, Unavailable};
use holdfast_value::Value;
use std::net::IpAddr;

/// The destination of a request to the Service's proxy.
pub fn leads(service: &Value, leading: &Leading<'_>) -> Result<Destination, Refusal> {
    let Named { is_secure, name, port } = *leading.way;
    let namespace = text(service, "/metadata/namespace");
    let port = named_port(service, port)?;
    let endpoints = (leading.find)(known::ENDPOINTS, &meta::key(Some(&namespace), name));
    let endpoints = endpoints.ok_or_else(|| {
        Refusal::NotFound(Subject::new(known::SERVICE.group, known::SERVICE.resource, name.to_owned()))
    })?;
    let subsets = endpoints["subsets"].as_array().map(Vec::as_slice).unwrap_or_default();
    for subset in turned(subsets, leading.draw) {
        let ports = subset["ports"].as_array().into_iter().flatten();
        let mut ports = ports.filter(|own| own["name"].as_str().unwrap_or_default() == port);
        let Some(port) = ports.next().and_then(|own| own["port"].as_u64()?.try_into().ok()) else { continue };
        let addresses = subset["addresses"].as_array().map(Vec::as_slice).unwrap_or_default();
        for address in turned(addresses, leading.draw) {
            let Some((host, pod)) = of_a_pod(address, &namespace, leading) else { continue };
            refuse_simulated(leading.find, &pod)?;
            return Ok(Destination::Server { is_secure, host, port: Some(port) });
        }
    }
    Err(Refusal::Unavailable(Unavailable::NoEndpoints { service: name.to_owned() }))
}

/// The name of the requested port. The request may give the port's number instead.
fn named_port(service: &Value, port: &str) -> Result<String, Refusal> {
    let Ok(number) = port.parse::<i64>() else { return Ok(port.to_owned()) };
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let found = ports.find(|own| own["port"].as_i64() == Some(number));
    let missing = || Unavailable::NoServicePort { service: text(service, "/metadata/name"), port: number };
    found.map(|own| text(own, "/name")).ok_or_else(|| Refusal::Unavailable(missing()))
}

/// All items, starting at a random item.
fn turned(all: &[Value], draw: u64) -> impl Iterator<Item = &Value> {
    let first = usize::try_from(draw % u64::try_from(all.len().max(1)).unwrap_or(1)).unwrap_or(0);
    all.iter().cycle().skip(first).take(all.len())
}

/// The address and its pod, if the address belongs to a pod of the same namespace. Users can write endpoints with any
/// other address, so the proxy does not use them.
fn of_a_pod(address: &Value, namespace: &str, leading: &Leading<'_>) -> Option<(IpAddr, Value)> {
    let target = &address["targetRef"];
    if target["kind"] != "Pod" || target["namespace"] != namespace {
        return None;
    }
    let pod = (leading.find)(known::POD, &meta::key(Some(namespace), target["name"].as_str()?))?;
    let text = address["ip"].as_str()?;
    let mut own = pod["status"]["podIPs"].as_array().into_iter().flatten().map(|ip| &ip["ip"]);
    if pod["status"]["podIP"] != text && !own.any(|ip| ip == text) {
        return None;
    }
    Some((text.parse().ok().filter(|address| is_global(*address))?, pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{ConnectOptions, known::Known};
    use holdfast_value::json;

    #[test]
    fn only_ready_pods_of_the_namespace_are_asked() {
        let service = json!({
            "metadata": {"name": "web", "namespace": "s"},
            "spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}, {"port": 1}]},
        });
        let address = |ip: &str, kind: &str, namespace: &str| json!({"ip": ip, "targetRef": {"kind": kind, "namespace": namespace, "name": ip}});
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "10.0.0.9"}, address("10.0.0.8", "Pod", "t"), address("127.0.0.1", "Pod", "s")],
             "ports": [{"name": "http", "port": 8080}]},
            {"addresses": [address("10.0.0.7", "Pod", "s")], "notReadyAddresses": [address("10.0.0.6", "Pod", "s")],
             "ports": [{"name": "http", "port": 8081}, {"port": 1}]},
        ]});
        let find = |kind: Known, key: &str| match (kind, key) {
            (known::ENDPOINTS, "s/web") => Some(endpoints.clone()),
            (known::POD, key) => {
                let ip = key.strip_prefix("s/")?;
                Some(json!({"status": {"podIP": ip}, "spec": {"nodeName": "n"}}))
            }
            _ => None,
        };
        let options = ConnectOptions::default();
        let asked = |name: &str, draw: u64| {
            let way = Named::parse(name).expect("a name");
            let leading = Leading { part: "proxy", way: &way, options: &options, find: &find, draw };
            leads(&service, &leading).map_err(|refusal| refusal.message())
        };
        for draw in 0..4 {
            let host = "10.0.0.7".parse().expect("an address");
            let server = |is_secure, port| Ok(Destination::Server { is_secure, host, port: Some(port) });
            assert_eq!(asked("web:80", draw), server(false, 8081));
            assert_eq!(asked("https:web:http", draw), server(true, 8081));
            assert_eq!(asked("web", draw), server(false, 1), "the port without a name");
            assert_eq!(asked("web:443", draw), Err("no endpoints available for service \"web\"".into()));
            assert_eq!(asked("web:81", draw), Err("no service port 81 found for service \"web\"".into()));
        }
    }
}
