//! What a service is given: cluster addresses and node ports that no other service holds.

use super::range::ServiceRange;
use crate::kinds::Allocator;
use crate::object::meta::{self, Document, object_mut, text};
use crate::refusal::{Cause, CauseReason};
use crate::stamp::Purpose;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How many random picks are tried before the range is searched from its beginning.
const RANDOM_TRIES: u64 = 32;

/// What a service holds that no other may hold.
pub fn claims(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let mut claims: Vec<String> = cluster_ips(spec).into_iter().map(|ip| format!("ip/{ip}")).collect();
    for port in spec["ports"].as_array().into_iter().flatten() {
        if let Some(number) = port["nodePort"].as_i64().filter(|n| *n != 0) {
            claims.push(port_claim(number, port["protocol"].as_str().unwrap_or("TCP")));
        }
    }
    if let Some(number) = spec["healthCheckNodePort"].as_i64().filter(|n| *n != 0) {
        claims.push(port_claim(number, "TCP"));
    }
    claims
}

fn port_claim(port: i64, protocol: &str) -> String {
    format!("nodeport/{port}/{protocol}")
}

fn cluster_ips(spec: &Value) -> Vec<String> {
    let listed = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut ips: Vec<String> = listed.chain(spec["clusterIP"].as_str()).map(str::to_owned).collect();
    ips.retain(|ip| !ip.is_empty() && ip != "None");
    ips.sort_unstable();
    ips.dedup();
    ips
}

/// Completes a service with the addresses and ports that it lacks.
pub fn allocate(allocator: &Allocator, old: Option<&Value>, service: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let old_spec = old.map_or(&Value::Null, |old| &old["spec"]);
    let spec = object_mut(meta::fields_mut(service), "spec");
    if text(spec, "type") == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
        return causes;
    }
    let allocation = Allocation(allocator);
    allocation.address(spec, old_spec, &mut causes);
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        allocation.node_ports(spec, old_spec, &mut causes);
    }
    if text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local" {
        allocation.health_check_port(spec, old_spec, &mut causes);
    }
    causes
}

/// What the client is told when everything has been handed out.
fn exhausted(field: impl Into<String>, what: &str) -> Cause {
    let message = format!("failed to allocate a {what}: range is full");
    Cause::told(CauseReason::Internal, field, message)
}

/// What a new service says of its addresses must fit together, and what the cluster has.
fn contradiction(spec: &Document) -> Option<Cause> {
    let count = |field: &str| spec.get(field).and_then(Value::as_array).map_or(0, Vec::len);
    let (single, list) = (text(spec, "clusterIP"), spec.get("clusterIPs").unwrap_or(&Value::Null));
    let first = list[0].as_str().unwrap_or_default();
    if count("clusterIPs") > 0 && single.is_empty() {
        let why = "must be empty when `clusterIP` is not specified";
        return Some(Cause::invalid("spec.clusterIPs", list, why));
    }
    if count("clusterIPs") > 0 && first != single {
        return Some(Cause::invalid("spec.clusterIPs", list, "first value must match `clusterIP`"));
    }
    // Both families together are what whoever runs the cluster sets up, and this one has a single range.
    let policy = match text(spec, "ipFamilyPolicy") {
        "" => "SingleStack",
        policy => policy,
    };
    let is_headless = first == "None" || single == "None";
    let wrong = |why: &str| Some(Cause::invalid("spec.ipFamilyPolicy", &policy.into(), why));
    let families = spec.get("ipFamilies").unwrap_or(&Value::Null);
    if policy == "SingleStack" && count("ipFamilies") == 2 && families[0] != families[1] {
        return wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified");
    }
    if policy == "SingleStack" && count("clusterIPs") > 1 {
        return wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified");
    }
    if policy == "RequireDualStack" && !is_headless {
        return wrong("this cluster is not configured for dual-stack services");
    }
    None
}

struct Allocation<'a>(&'a Allocator<'a>);

impl Allocation<'_> {
    fn address(&self, spec: &mut Document, old: &Value, causes: &mut Vec<Cause>) {
        let range = self.0.service_range;
        let mut wanted = text(spec, "clusterIP").to_owned();
        if let Some(cause) = contradiction(spec).filter(|_| old.is_null()) {
            causes.push(cause);
            return;
        }
        if wanted.is_empty() {
            wanted = spec.get("clusterIPs").and_then(|ips| ips[0].as_str()).unwrap_or("").to_owned();
        }
        if wanted.is_empty() {
            wanted = old["clusterIP"].as_str().unwrap_or("").to_owned();
        }
        if wanted.is_empty() {
            match self.pick_address(range) {
                Some(address) => wanted = address,
                None => {
                    causes.push(exhausted("spec.clusterIPs", "serviceIP"));
                    return;
                }
            }
        } else if wanted != "None" {
            let Ok(address) = wanted.parse::<IpAddr>() else {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(Cause::invalid("spec.clusterIPs[0]", &wanted.into(), why));
                return;
            };
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            if family != range.family() {
                let why = format!("{family} is not configured on this cluster");
                causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([wanted]), &why));
                return;
            }
            let fault = match address {
                address if !range.contains(address) => Some(format!(
                    "failed to allocate IP {wanted}: the provided IP ({wanted}) is not in the valid range. The range \
                     of valid IPs is {range}"
                )),
                _ if !self.0.is_free(&format!("ip/{wanted}")) => {
                    Some(format!("failed to allocate IP {wanted}: provided IP is already allocated"))
                }
                _ => None,
            };
            if let Some(fault) = fault {
                causes.push(Cause::invalid("spec.clusterIPs", &json!([wanted]), &fault));
                return;
            }
        }
        if old["clusterIP"].as_str().is_some_and(|before| !before.is_empty() && before != wanted) {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!([wanted]), "may not change once set"));
        }
        spec.insert("clusterIP".into(), wanted.as_str().into());
        let listed = spec.get("clusterIPs").and_then(Value::as_array).map_or(0, Vec::len);
        if listed < 2 {
            spec.insert("clusterIPs".into(), json!([wanted]));
        }
        if wanted == "None" {
            self.any_family(spec);
        }
        if !spec.contains_key("ipFamilies") {
            let family =
                wanted.parse::<IpAddr>().map_or(range.family(), |ip| if ip.is_ipv4() { "IPv4" } else { "IPv6" });
            spec.insert("ipFamilies".into(), json!([family]));
        }
        spec.entry("ipFamilyPolicy").or_insert_with(|| "SingleStack".into());
    }

    /// A headless service without a selector has whatever addresses somebody gives it: of both families, unless
    /// it says otherwise.
    fn any_family(&self, spec: &mut Document) {
        let selective = spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty());
        if selective {
            return;
        }
        let policy = spec.entry("ipFamilyPolicy").or_insert_with(|| "RequireDualStack".into());
        if *policy == "SingleStack" {
            return;
        }
        let families = spec.entry("ipFamilies").or_insert_with(|| json!([self.0.service_range.family()]));
        if let Some(families) = families.as_array_mut()
            && families.len() == 1
        {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.into());
        }
    }

    fn pick_address(&self, range: &ServiceRange) -> Option<String> {
        let mut stream = self.0.stamp.stream(Purpose::Address, 0);
        let usable = range.usable();
        let free = |nth: u128| {
            let address = range.address(nth).to_string();
            self.0.is_free(&format!("ip/{address}")).then_some(address)
        };
        (0..RANDOM_TRIES)
            .find_map(|_| free(1 + u128::from(stream.next()) % usable))
            .or_else(|| (1..=usable.min(1 << 20)).find_map(free))
    }

    fn node_ports(&self, spec: &mut Document, old: &Value, causes: &mut Vec<Cause>) {
        if spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false))
            && text(spec, "type") == "LoadBalancer"
        {
            return;
        }
        let identity = |port: &Value| (port["port"].to_string(), port["protocol"].to_string());
        let mut old_ports = BTreeMap::new();
        for port in old["ports"].as_array().into_iter().flatten() {
            old_ports.entry(identity(port)).or_insert(port);
        }
        let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else { return };
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (index, port) in ports.iter_mut().enumerate() {
            let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
            let kept = old_ports.get(&identity(port)).and_then(|old| old["nodePort"].as_i64());
            let asked = port["nodePort"].as_i64().filter(|n| *n != 0);
            let number = match asked.or(kept.filter(|n| *n != 0)) {
                Some(number) => {
                    let path = format!("spec.ports[{index}].nodePort");
                    if let Err(fault) = self.check_port(number, &protocol) {
                        causes.push(Cause::invalid(path, &number.into(), &fault));
                        continue;
                    }
                    number
                }
                None => match self.pick_port(&protocol, index as u64, &taken) {
                    Some(number) => number,
                    None => {
                        causes.push(exhausted(format!("spec.ports[{index}].nodePort"), "nodePort"));
                        // The range was searched to its end, and will not have grown for the next port.
                        return;
                    }
                },
            };
            taken.insert(port_claim(number, &protocol));
            if let Value::Object(port) = port {
                port.insert("nodePort".into(), number.into());
            }
        }
    }

    fn health_check_port(&self, spec: &mut Document, old: &Value, causes: &mut Vec<Cause>) {
        let asked = spec.get("healthCheckNodePort").and_then(Value::as_i64).filter(|n| *n != 0);
        let number = match asked.or(old["healthCheckNodePort"].as_i64().filter(|n| *n != 0)) {
            Some(number) => match self.check_port(number, "TCP") {
                Ok(()) => number,
                Err(fault) => {
                    causes.push(Cause::invalid("spec.healthCheckNodePort", &number.into(), &fault));
                    return;
                }
            },
            None => {
                let taken = claims(&json!({ "spec": spec })).into_iter().collect();
                match self.pick_port("TCP", 1000, &taken) {
                    Some(number) => number,
                    None => return,
                }
            }
        };
        spec.insert("healthCheckNodePort".into(), number.into());
    }

    fn check_port(&self, number: i64, protocol: &str) -> Result<(), String> {
        let (first, last) = self.0.node_ports;
        if !(i64::from(first)..=i64::from(last)).contains(&number) {
            return Err(format!("provided port is not in the valid range. The range of valid ports is {first}-{last}"));
        }
        if !self.0.is_free(&port_claim(number, protocol)) {
            return Err("provided port is already allocated".into());
        }
        Ok(())
    }

    fn pick_port(&self, protocol: &str, nth: u64, taken: &BTreeSet<String>) -> Option<i64> {
        let (first, last) = self.0.node_ports;
        let width = i64::from(last) - i64::from(first) + 1;
        let mut stream = self.0.stamp.stream(Purpose::Address, 1 + nth);
        let free = |number: i64| {
            let claim = port_claim(number, protocol);
            (self.0.is_free(&claim) && !taken.contains(&claim)).then_some(number)
        };
        (0..RANDOM_TRIES)
            .find_map(|_| free(i64::from(first) + (stream.next() % width as u64) as i64))
            .or_else(|| (i64::from(first)..=i64::from(last)).find_map(free))
    }
}
