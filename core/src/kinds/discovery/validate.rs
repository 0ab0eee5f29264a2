//! Validation of endpoint slices.

use crate::kinds::rules::{At, PROTOCOLS, distinct, immutable, known, labels, named};
use crate::kinds::shapes::{at_most, domain_name, need_one_of, qualified};
use crate::object::address::address;
use crate::object::names;
use crate::refusal::{Cause, CauseReason, Causes};
use holdfast_value::Value;
use std::net::IpAddr;

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const PORTS_MAX: usize = 20_000;
const TOPOLOGY_LABELS_MAX: usize = 16;
const HINTS_MAX: usize = 8;
const ZONE: &str = "topology.kubernetes.io/zone";

pub fn endpoint_slice(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let ty = root.get("addressType");
    need_one_of(ty, &["FQDN", "IPv4", "IPv6"], &mut causes);
    let endpoints = root.get("endpoints");
    if at_most(endpoints, ENDPOINTS_MAX, &mut causes) {
        for endpoint in endpoints.items() {
            one(endpoint, ty.text(), &mut causes);
        }
    }
    ports(root.get("ports"), &mut causes);
    if let Some(old) = old {
        immutable(ty, &old["addressType"], &mut causes);
    }
    causes
}

fn one(endpoint: At, ty: &str, causes: &mut Causes) {
    let addresses = endpoint.get("addresses");
    if addresses.is_empty() {
        causes.push(addresses.required("must contain at least 1 address"));
    }
    at_most(addresses, ADDRESSES_MAX, causes);
    for address in addresses.items() {
        match ty {
            "IPv4" | "IPv6" => ip(address, addresses, ty == "IPv4", causes),
            "FQDN" => domain_name(address, causes),
            _ => {}
        }
    }
    if endpoint.get("nodeName").is_set() {
        named(endpoint.get("nodeName"), names::subdomain, causes);
    }
    let topology = endpoint.get("deprecatedTopology");
    at_most(topology, TOPOLOGY_LABELS_MAX, causes);
    labels(topology, causes);
    if topology.key(ZONE).is_set() {
        let message = "Internal error: reserved key was not removed in conversion";
        causes.push(Cause::told(CauseReason::Internal, topology.key(ZONE).path(), message));
    }
    if endpoint.get("hostname").is_set() {
        named(endpoint.get("hostname"), names::label, causes);
    }
    let hints = endpoint.get("hints");
    for (field, check) in [("forZones", names::label_value as fn(&str) -> Vec<String>), ("forNodes", names::subdomain)]
    {
        let list = hints.get(field);
        if at_most(list, HINTS_MAX, causes) {
            distinct(list, "name", causes);
            for hint in list.items() {
                named(hint.get("name"), check, causes);
            }
        }
    }
}

/// Validates an address. Kubernetes reports an address of the wrong family at the path of the list.
fn ip(at: At, list: At, v4: bool, causes: &mut Causes) {
    let Some(address) = address(at.text()) else {
        causes.push(at.invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        return;
    };
    if address.is_ipv4() != v4 {
        let detail = if v4 { "must be an IPv4 address" } else { "must be an IPv6 address" };
        causes.push(list.holding(at.value).invalid(detail));
        return;
    }
    if let Some(detail) = special(address) {
        causes.push(at.invalid(&detail));
    }
}

/// The reason why an endpoint cannot have the address; `None` if it can have the address.
fn special(address: IpAddr) -> Option<String> {
    let (link_local, multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    if address.is_unspecified() {
        Some(format!("may not be unspecified ({address})"))
    } else if address.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".into())
    } else if link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".into())
    } else if multicast {
        Some("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".into())
    } else {
        None
    }
}

fn ports(list: At, causes: &mut Causes) {
    if !at_most(list, PORTS_MAX, causes) {
        return;
    }
    let mut seen = crate::kinds::rules::Seen::default();
    for port in list.items() {
        let name = port.get("name");
        if !name.is_empty() {
            named(name, names::label, causes);
        }
        // The name of a port without a name is the empty text, which must be unique too.
        if seen.again(&Value::from(name.text())) {
            causes.push(Cause::duplicate(name.path(), &Value::from(name.text())));
        }
        known(port.get("protocol"), PROTOCOLS, causes);
        if port.get("appProtocol").is_set() {
            qualified(port.get("appProtocol"), causes);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule() {
        let good = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "a"},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"name": "http", "port": 80}],
        });
        let address = "endpoints[0].addresses[0]: Invalid value: ";
        check_rows(
            &good,
            &[
                ("/addressType", json!(""), "addressType: Required value"),
                (
                    "/addressType",
                    json!("IP"),
                    "addressType: Unsupported value: \"IP\": supported values: \"FQDN\", \"IPv4\"",
                ),
                (
                    "/addressType",
                    json!("IPv6"),
                    "endpoints[0].addresses: Invalid value: \"10.0.0.1\": must be an IPv6 address",
                ),
                (
                    "/endpoints/0/addresses",
                    json!([]),
                    "endpoints[0].addresses: Required value: must contain at least 1",
                ),
                (
                    "/endpoints/0/addresses/0",
                    json!("ten"),
                    &format!("{address}\"ten\": must be a valid IP address, (e.g."),
                ),
                (
                    "/endpoints/0/addresses/0",
                    json!("127.0.0.1"),
                    &format!("{address}\"127.0.0.1\": may not be in the loop"),
                ),
                (
                    "/endpoints/0/addresses/0",
                    json!("169.254.1.1"),
                    &format!("{address}\"169.254.1.1\": may not be in the"),
                ),
                (
                    "/endpoints/0/addresses/0",
                    json!("0.0.0.0"),
                    &format!("{address}\"0.0.0.0\": may not be unspecified"),
                ),
                (
                    "/endpoints",
                    json!(vec![json!({"addresses": ["10.0.0.1"]}); 1001]),
                    "endpoints: Too many: 1001: must have at most 1000 items",
                ),
                (
                    "/endpoints/0/nodeName",
                    json!("A"),
                    "endpoints[0].nodeName: Invalid value: \"A\": a lowercase RFC 1123",
                ),
                (
                    "/endpoints/0/hostname",
                    json!("a.b"),
                    "endpoints[0].hostname: Invalid value: \"a.b\": must not contain",
                ),
                (
                    "/endpoints/0/hints/forZones",
                    json!([{"name": "a"}, {"name": "a"}]),
                    "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
                ),
                ("/ports/1", json!({"name": "http"}), "ports[1].name: Duplicate value: \"http\""),
                ("/ports/0/name", json!("A"), "ports[0].name: Invalid value: \"A\": a lowercase RFC 1123 label"),
                (
                    "/ports/0/protocol",
                    json!("ICMP"),
                    "ports[0].protocol: Unsupported value: \"ICMP\": supported values:",
                ),
                (
                    "/ports/0/appProtocol",
                    json!("a b"),
                    "ports[0].appProtocol: Invalid value: \"a b\": name part must cons",
                ),
            ],
        );
        let loopback = "endpoints[0].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range";
        check_rows(&good, &[("/endpoints/0/addresses/0", json!("127.0.0.1"), loopback)]);
        let mut empty = good;
        empty["endpoints"] = json!([]);
        check_updates(
            &empty,
            &[
                ("/ports", json!([]), ""),
                ("/addressType", json!("IPv6"), "addressType: Invalid value: \"IPv6\": field is immutable"),
            ],
        );
    }
}
