//! Allocation of a service's cluster addresses and node ports. Each address or port is a claim, which only one service
//! can hold.

use super::range::ServiceRange;
use crate::kinds::Allocator;
use crate::object::address::address;
use crate::object::meta::{self, Document, object_mut, text};
use crate::refusal::{Cause, CauseReason, Causes};
use crate::stamp::Purpose;
use holdfast_value::{Value, json};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The number of random picks before the range is searched from its start.
const RANDOM_TRIES: u64 = 32;

/// The maximum number of addresses that are searched in a range, because an IPv6 range has too many for a full search.
const SEARCHED_MAX: usize = 1 << 20;

/// The random stream for second addresses. First addresses use stream 0, and ports use the streams from 1.
const SECOND_ADDRESS: u64 = 1 << 20;

/// The claims that a service holds.
pub fn claims(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let addresses: BTreeSet<String> = cluster_ips(spec).map(address_claim).collect();
    let mut claims: Vec<String> = addresses.into_iter().collect();
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

/// What a service holds by one of its claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceClaim<'c> {
    Address(&'c str),
    /// A node port, of any protocol.
    Port(u16),
}

/// Parses a claim; `None` if it is not a claim of a service.
pub fn held(claim: &str) -> Option<ServiceClaim<'_>> {
    let (what, rest) = claim.split_once('/')?;
    match what {
        "ip" => Some(ServiceClaim::Address(rest)),
        "nodeport" => rest.split('/').next()?.parse().ok().map(ServiceClaim::Port),
        _ => None,
    }
}

/// The claims to a node port, one for each protocol.
pub fn port_claims(port: u16) -> [String; 3] {
    ["TCP", "UDP", "SCTP"].map(|protocol| port_claim(port.into(), protocol))
}

/// The claim to an address. The address is normalized, because one address has several spellings.
fn address_claim(ip: &str) -> String {
    match address(ip) {
        Some(address) => format!("ip/{address}"),
        None => format!("ip/{ip}"),
    }
}

fn port_claim(port: i64, protocol: &str) -> String {
    format!("nodeport/{port}/{protocol}")
}

fn cluster_ips(spec: &Value) -> impl Iterator<Item = &str> {
    let listed = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    listed.chain(spec["clusterIP"].as_str()).filter(|ip| !ip.is_empty() && *ip != "None")
}

/// Completes a service with the addresses and ports that it lacks.
pub fn allocate(allocator: &Allocator, old: Option<&Value>, service: &mut Value) -> Causes {
    let mut causes = Causes::default();
    let old_spec = old.map_or(&Value::Null, |old| &old["spec"]);
    let spec = object_mut(meta::fields_mut(service), "spec");
    if text(spec, "type") == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
        return causes;
    }
    let allocation = Allocation(allocator);
    allocation.addresses(spec, old_spec, &mut causes);
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        allocation.node_ports(spec, old_spec, &mut causes);
    }
    if text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local" {
        allocation.health_check_port(spec, old_spec, &mut causes);
    }
    causes
}

/// The cause that reports an exhausted range of addresses or ports.
fn exhausted(field: impl Into<String>, what: &str) -> Cause {
    let message = format!("failed to allocate a {what}: range is full");
    Cause::told(CauseReason::Internal, field, message)
}

/// The first contradiction among the address fields of a new service.
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
    let policy = text(spec, "ipFamilyPolicy");
    let wrong = |why: &str| Some(Cause::invalid("spec.ipFamilyPolicy", &policy.into(), why));
    let families = spec.get("ipFamilies").unwrap_or(&Value::Null);
    if count("ipFamilies") == 2 && families[0] == families[1] {
        return Some(Cause::duplicate("spec.ipFamilies[1]", &families[1]));
    }
    if policy == "SingleStack" && count("ipFamilies") == 2 {
        return wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified");
    }
    if policy == "SingleStack" && count("clusterIPs") > 1 {
        return wrong("must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified");
    }
    None
}

const DUAL: [&str; 2] = ["PreferDualStack", "RequireDualStack"];

fn texts<'a>(spec: &'a Document, field: &str) -> Vec<&'a str> {
    let items = spec.get(field).and_then(Value::as_array).into_iter().flatten();
    items.map(|item| item.as_str().unwrap_or_default()).collect()
}

fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Makes `clusterIP` and `clusterIPs` agree, because older clients write only `clusterIP`. A field that a client left
/// out is filled from the old service or from the other field.
fn link(spec: &mut Document, old: &Value) {
    let had_single = old["clusterIP"].as_str().unwrap_or_default().to_owned();
    let had = old["clusterIPs"].as_array().filter(|list| !list.is_empty());
    if text(spec, "clusterIP").is_empty() && !had_single.is_empty() {
        spec.insert("clusterIP", had_single.clone().into());
    }
    let single = text(spec, "clusterIP").to_owned();
    let list = spec.get("clusterIPs").and_then(Value::as_array).filter(|list| !list.is_empty());
    let linked = match (list, had) {
        (None, Some(had)) if single == had_single => Some(json!(had)),
        (None, _) if !single.is_empty() => Some(json!([single])),
        (Some(list), Some(had)) if list == had && single != had_single => Some(json!([single])),
        _ => None,
    };
    spec.extend(linked.map(|list| ("clusterIPs".to_owned(), list)));
    // A client that changes the policy to a single family need not remove the second address and family itself.
    let was_dual = old["ipFamilyPolicy"].as_str().is_some_and(|policy| DUAL.contains(&policy));
    if was_dual && text(spec, "ipFamilyPolicy") == "SingleStack" {
        for field in ["clusterIPs", "ipFamilies"] {
            let list = spec.get_mut(field).filter(|list| **list == old[field]).and_then(Value::as_array_mut);
            list.into_iter().for_each(|list| list.truncate(1));
        }
    }
}

/// Whether the service is `PreferDualStack` as before and its addresses and families are unchanged. Then it keeps them
/// even if the cluster has gained or lost a family.
fn stays(spec: &Document, old: &Value) -> bool {
    let prefers = |policy: &str| policy == "PreferDualStack";
    prefers(text(spec, "ipFamilyPolicy"))
        && old["ipFamilyPolicy"].as_str().is_some_and(prefers)
        && ["clusterIPs", "ipFamilies"].iter().all(|field| spec.get(*field).is_some_and(|list| *list == old[*field]))
}

struct Allocation<'a>(&'a Allocator<'a>);

impl Allocation<'_> {
    /// Sets the families and the addresses of a service according to its `ipFamilyPolicy`.
    fn addresses(&self, spec: &mut Document, old: &Value, causes: &mut Causes) {
        link(spec, old);
        if stays(spec, old) {
            return;
        }
        let is_selective = spec.get("selector").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
        let is_open = text(spec, "clusterIP") == "None" && !is_selective;
        if text(spec, "ipFamilyPolicy").is_empty() {
            let usual = if is_open { "RequireDualStack" } else { "SingleStack" };
            let policy = old["ipFamilyPolicy"].as_str().unwrap_or(usual);
            spec.insert("ipFamilyPolicy", policy.into());
        }
        if let Some(cause) = contradiction(spec).filter(|_| old.is_null()) {
            causes.push(cause);
            return;
        }
        if !self.infer_families(spec, causes) {
            return;
        }
        if is_open {
            self.any_family(spec);
            return;
        }
        if self.choose_families(spec, causes) && text(spec, "clusterIP") != "None" {
            self.take_addresses(spec, old, causes);
        }
    }

    /// Adds the families of the addresses that the client named. Returns false if an address is invalid, or if its
    /// family contradicts `ipFamilies` or is missing in the cluster.
    fn infer_families(&self, spec: &mut Document, causes: &mut Causes) -> bool {
        let list: Vec<String> = texts(spec, "clusterIPs").into_iter().map(str::to_owned).collect();
        let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
        for (index, wanted) in list.iter().enumerate() {
            if wanted == "None" {
                break;
            }
            let path = format!("spec.clusterIPs[{index}]");
            let Some(address) = address(wanted) else {
                let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                causes.push(Cause::invalid(path, &wanted.as_str().into(), why));
                return false;
            };
            let family = family_of(address);
            match families.get(index) {
                // Validation reports the mismatch later.
                Some(said) if said != family => return false,
                Some(_) => {}
                None if self.0.service_ranges.of(family).is_none() => {
                    causes.push(Cause::invalid(
                        path,
                        &json!(list),
                        &format!("{family} is not configured on this cluster"),
                    ));
                    return false;
                }
                None => families.push(family.to_owned()),
            }
        }
        if !families.is_empty() {
            spec.insert("ipFamilies", json!(families));
        }
        true
    }

    /// Gives a headless service without a selector both families, unless its policy is `SingleStack`: its endpoints may
    /// have addresses of any family.
    fn any_family(&self, spec: &mut Document) {
        let policy = text(spec, "ipFamilyPolicy").to_owned();
        let families = spec.entry("ipFamilies").or_insert_with(|| json!([self.0.service_ranges.first.family()]));
        if let Some(families) =
            families.as_array_mut().filter(|families| families.len() == 1 && policy != "SingleStack")
        {
            families.push(other_family(&families[0]).into());
        }
    }

    /// Completes the families with the families of the cluster. Returns whether the cluster has all wanted families.
    fn choose_families(&self, spec: &mut Document, causes: &mut Causes) -> bool {
        let (ranges, policy) = (self.0.service_ranges, text(spec, "ipFamilyPolicy").to_owned());
        let is_dual = ranges.second.is_some();
        if policy == "RequireDualStack" && !is_dual {
            let why = "this cluster is not configured for dual-stack services";
            causes.push(Cause::invalid("spec.ipFamilyPolicy", &policy.as_str().into(), why));
        }
        for (index, family) in texts(spec, "ipFamilies").into_iter().enumerate() {
            if ["IPv4", "IPv6"].contains(&family) && ranges.of(family).is_none() {
                let path = format!("spec.ipFamilies[{index}]");
                causes.push(Cause::invalid(path, &family.into(), "not configured on this cluster"));
            }
        }
        if !causes.is_empty() {
            return false;
        }
        let families = spec.entry("ipFamilies").or_insert_with(|| json!([]));
        if let Some(families) = families.as_array_mut() {
            if families.is_empty() {
                families.push(ranges.first.family().into());
            }
            if families.len() == 1 && is_dual && DUAL.contains(&policy.as_str()) {
                families.push(other_family(&families[0]).into());
            }
        }
        true
    }

    /// Sets an address for each family: the address that the service names, or a free one.
    fn take_addresses(&self, spec: &mut Document, old: &Value, causes: &mut Causes) {
        let had: Vec<&str> = old["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let asked: Vec<String> = texts(spec, "clusterIPs").into_iter().map(str::to_owned).collect();
        let families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
        if let (Some(before), Some(first)) = (old["clusterIP"].as_str(), asked.first())
            && ![before, first.as_str()].contains(&"")
            && before != first
        {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(asked), "may not change once set"));
            return;
        }
        let mut taken = asked.clone();
        let ranges = LazyCell::new(|| self.ranges());
        let of = |family: &str| -> Vec<ServiceRange> {
            ranges.iter().filter(|range| range.family() == family).copied().collect()
        };
        for (index, family) in families.iter().enumerate() {
            // Validation reports an unknown family later.
            if self.0.service_ranges.of(family).is_none() {
                continue;
            }
            match asked.get(index).filter(|wanted| !wanted.is_empty()) {
                Some(wanted) if had.contains(&wanted.as_str()) => {}
                Some(wanted) => {
                    if let Some(fault) = self.why_not(wanted, &of(family)) {
                        let why = format!("failed to allocate IP {wanted}: {fault}");
                        causes.push(Cause::invalid("spec.clusterIPs", &json!([wanted]), &why));
                        return;
                    }
                }
                None => match self.pick_address(&of(family), index as u64) {
                    Some(address) => taken.push(address),
                    None => {
                        causes.push(exhausted("spec.clusterIPs", "serviceIP"));
                        return;
                    }
                },
            }
        }
        let Some(first) = taken.first().cloned() else { return };
        if old["clusterIP"].as_str().is_some_and(|before| !before.is_empty() && *before != first) {
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(taken), "may not change once set"));
        }
        spec.insert("clusterIP", first.into());
        spec.insert("clusterIPs", taken.into());
    }

    /// The ranges to allocate from, in the order in which they are tried: first the ranges of the option
    /// `--service-cluster-ip-range`, then the ranges of ServiceCIDRs. A range that several ServiceCIDRs list is ready
    /// if one of these ServiceCIDRs is ready.
    fn ranges(&self) -> Vec<ServiceRange> {
        let (mut ready, mut unready) = (Vec::new(), BTreeSet::new());
        for service_cidr in (self.0.service_cidrs)() {
            let cidrs = service_cidr["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let listed = cidrs.filter_map(ServiceRange::listed);
            match is_ready(&service_cidr) {
                true => ready.extend(listed),
                false => unready.extend(listed),
            }
        }
        ready.iter().for_each(|range| _ = unready.remove(range));
        // Without controllers, no ServiceCIDR lists the ranges of `--service-cluster-ip-range`, so these ranges count
        // as ready. If a ServiceCIDR lists such a range, the readiness of the ServiceCIDR counts.
        let own = self.0.service_ranges.iter().copied().filter(|range| !unready.contains(range));
        let mut seen = BTreeSet::new();
        own.chain(ready).filter(|range| seen.insert(*range)).collect()
    }

    /// The reason why a service cannot have an address; `None` if it can have the address.
    fn why_not(&self, wanted: &str, ranges: &[ServiceRange]) -> Option<String> {
        let is_within = address(wanted).is_some_and(|address| ranges.iter().any(|range| range.contains(address)));
        match is_within {
            false => Some("the provided network does not match the current range".into()),
            true if !self.0.is_free(&address_claim(wanted)) => Some("provided IP is already allocated".into()),
            true => None,
        }
    }

    /// Picks a free address in one of the ranges. Random addresses of all ranges are tried before any range is
    /// searched: otherwise every service of a cluster with a full first range would search that range.
    fn pick_address(&self, ranges: &[ServiceRange], nth: u64) -> Option<String> {
        let mut stream = self.0.stamp.stream(Purpose::Address, SECOND_ADDRESS * nth);
        let free = |range: &ServiceRange, nth: u128| {
            let address = range.address(nth).to_string();
            self.0.is_free(&format!("ip/{address}")).then_some(address)
        };
        let mut at_random = |range: &ServiceRange| {
            let named = range.named();
            let unnamed = range.usable() - named;
            (0..RANDOM_TRIES).find_map(|_| free(range, 1 + named + u128::from(stream.next()) % unnamed))
        };
        let searched = |range: &ServiceRange| {
            let (named, usable) = (range.named(), range.usable());
            (named + 1..=usable).take(SEARCHED_MAX).chain(1..=named).find_map(|nth| free(range, nth))
        };
        ranges.iter().find_map(&mut at_random).or_else(|| ranges.iter().find_map(searched))
    }

    fn node_ports(&self, spec: &mut Document, old: &Value, causes: &mut Causes) {
        if spec.get("allocateLoadBalancerNodePorts") == Some(&Value::Bool(false))
            && text(spec, "type") == "LoadBalancer"
        {
            return;
        }
        let number = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
        let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
        let old_ports = || old["ports"].as_array().into_iter().flatten();
        // A port keeps its number while it keeps its name, even if its other fields change.
        let given: BTreeMap<String, Option<i64>> = old_ports().map(|port| (name(port), number(port))).collect();
        let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else { return };
        // A port does not keep a number that another port explicitly requests.
        let asked_for: BTreeSet<i64> = ports.iter().filter_map(number).collect();
        let mut taken: BTreeSet<String> = BTreeSet::new();
        for (index, port) in ports.iter_mut().enumerate() {
            let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
            let kept = given.get(&name(port)).copied().flatten().filter(|number| !asked_for.contains(number));
            let number = match number(port).or(kept) {
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
                        // The whole range was searched, so there is no free number for the next port either.
                        return;
                    }
                },
            };
            taken.insert(port_claim(number, &protocol));
            if let Value::Object(port) = port {
                port.insert("nodePort", number.into());
            }
        }
    }

    fn health_check_port(&self, spec: &mut Document, old: &Value, causes: &mut Causes) {
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
        spec.insert("healthCheckNodePort", number.into());
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

/// Whether addresses may be allocated from a ServiceCIDR. As in Kubernetes, a ServiceCIDR without a condition counts as
/// ready, because without controllers nothing sets conditions.
fn is_ready(service_cidr: &Value) -> bool {
    let mut conditions = service_cidr["status"]["conditions"].as_array().into_iter().flatten();
    let is_told = conditions.find(|condition| condition["type"] == "Ready");
    service_cidr["metadata"].get("deletionTimestamp").is_none()
        && is_told.is_none_or(|condition| condition["status"] == "True")
}

fn other_family(family: &Value) -> &'static str {
    if family == "IPv4" { "IPv6" } else { "IPv4" }
}

#[cfg(test)]
mod tests;
