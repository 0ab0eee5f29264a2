//! Validation of IPAddresses and ServiceCIDRs.

use crate::kinds::rules::{At, IMMUTABLE, immutable, named};
use crate::kinds::shapes::{canonical_cidr, count, need_segment};
use crate::object::address::network;
use crate::object::names;
use crate::refusal::Causes;
use holdfast_value::{Value, json};
use std::net::IpAddr;

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
/// The label of addresses that an API server allocated for Services.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const SERVICES: &str = "services";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The Service that holds an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AddressOwner {
    pub namespace: String,
    pub name: String,
}

/// The IPAddress object for an address of a Service.
pub fn given_address(address: &str, holder: &AddressOwner) -> Value {
    let family = if address.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) { "IPv6" } else { "IPv4" };
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": address, "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"name": holder.name.as_str(), "namespace": holder.namespace.as_str(), "resource": SERVICES}},
    })
}

/// The Service that holds an address; `None` if its parent is no Service.
pub fn holder(address: &Value) -> Option<AddressOwner> {
    let parent = &address["spec"]["parentRef"];
    let text = |field: &str| parent[field].as_str().unwrap_or_default();
    let is_service = text("group").is_empty() && text("resource") == SERVICES;
    is_service.then(|| AddressOwner { namespace: text("namespace").to_owned(), name: text("name").to_owned() })
}

/// Whether an API server created the address, rather than a user.
pub fn is_given(address: &Value) -> bool {
    address["metadata"]["labels"][MANAGED_BY] == ALLOCATOR
}

pub fn ip_address(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let parent = spec.get("parentRef");
    if let Some(old) = old {
        immutable(parent, &old["spec"]["parentRef"], &mut causes);
    }
    if !parent.is_set() {
        causes.push(parent.required(""));
        return causes;
    }
    if old.is_some() {
        return causes;
    }
    if !parent.get("group").is_empty() {
        named(parent.get("group"), names::subdomain, &mut causes);
    }
    need_segment(parent.get("resource"), &mut causes);
    need_segment(parent.get("name"), &mut causes);
    named(parent.get("namespace"), names::path_segment, &mut causes);
    causes
}

pub fn service_cidr(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let ranges = spec.get("cidrs");
    let Some(old) = old else {
        checked(ranges, &mut causes);
        return causes;
    };
    // A second address family may be added, and the first family stays.
    let before = old["spec"]["cidrs"].as_array().map_or(&[][..], Vec::as_slice);
    if count(ranges) != before.len() && (before.len(), count(ranges)) != (1, 2) {
        causes.push(ranges.invalid(IMMUTABLE));
        return causes;
    }
    let changed = ranges.items().zip(before).filter(|(range, before)| range.value != *before);
    causes.extend(changed.map(|(range, _)| range.invalid(IMMUTABLE)));
    if count(ranges) != before.len() {
        checked(ranges, &mut causes);
    }
    causes
}

fn checked(ranges: At, causes: &mut Causes) {
    match count(ranges) {
        0 => causes.push(ranges.required("at least one CIDR required")),
        1 | 2 => {
            for range in ranges.items() {
                canonical_cidr(range, causes);
            }
            let families: Vec<bool> = ranges
                .items()
                .filter_map(|range| network(range.text()))
                .map(|(address, _)| address.is_ipv4())
                .collect();
            if let [one, other] = families[..]
                && one == other
            {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                causes.push(ranges.invalid(detail));
            }
        }
        _ => causes.push(ranges.invalid("may only hold up to 2 values")),
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::{Value, json};

    #[test]
    fn each_rule() {
        let address = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.0.0.1"},
            "spec": {"parentRef": {"resource": "services", "name": "a", "namespace": "b"}},
        });
        check_rows(
            &address,
            &[
                ("/spec/parentRef", Value::Null, "spec.parentRef: Required value"),
                ("/spec/parentRef/resource", json!(""), "spec.parentRef.resource: Required value"),
                (
                    "/spec/parentRef/name",
                    json!("a/b"),
                    "spec.parentRef.name: Invalid value: \"a/b\": may not contain '/'",
                ),
                (
                    "/spec/parentRef/group",
                    json!("A"),
                    "spec.parentRef.group: Invalid value: \"A\": a lowercase RFC 1123",
                ),
            ],
        );
        let parent =
            "spec.parentRef: Invalid value: {\"name\":\"c\",\"namespace\":\"b\",\"resource\":\"services\"}: field is i";
        check_updates(&address, &[("/spec/parentRef/name", json!("c"), parent)]);
        let range = json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "a"},
            "spec": {"cidrs": ["10.0.0.0/16"]},
        });
        let cidrs = "/spec/cidrs";
        check_rows(
            &range,
            &[
                (cidrs, json!([]), "spec.cidrs: Required value: at least one CIDR required"),
                (cidrs, json!(["10.0.0.0/16", "fd00::/64"]), ""),
                (
                    cidrs,
                    json!(["10.0.0.0/16", "10.1.0.0/16"]),
                    "spec.cidrs: Invalid value: [\"10.0.0.0/16\",\"10.1.0.0/",
                ),
                (cidrs, json!(["10.0.0.0/8", "fd00::/64", "a"]), "spec.cidrs: Invalid value: [\"10.0.0.0/8\",\"fd00::"),
                (
                    cidrs,
                    json!(["10.0.0.1/16"]),
                    "spec.cidrs[0]: Invalid value: \"10.0.0.1/16\": must not have bits set",
                ),
            ],
        );
        check_updates(
            &range,
            &[
                (cidrs, json!(["10.0.0.0/16", "fd00::/64"]), ""),
                (cidrs, json!(["10.1.0.0/16"]), "spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable"),
                (cidrs, json!([]), "spec.cidrs: Invalid value: null: field is immutable"),
                (cidrs, json!(["10.0.0.0/16", "ten"]), "spec.cidrs[1]: Invalid value: \"ten\": must be a valid CIDR"),
            ],
        );
    }
}
