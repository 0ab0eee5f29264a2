use super::*;
use crate::kinds::allocate::Claims;
use crate::stamp::Stamp;
use std::sync::Arc;

struct Taken;

impl Claims for Taken {
    fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        static OTHER: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "other".into());
        (claim == "ip/10.0.0.9" || claim == "ip/fd00::9").then(|| &*OTHER)
    }
}

/// Allocates a service in a cluster with these ranges. Returns its policy, families and addresses, where allocated
/// addresses appear as `v4` and `v6`; or the causes.
fn made(ranges: &str, spec: Value, old: Option<Value>) -> Result<String, String> {
    let ranges = ranges.parse().expect("ranges");
    let allocator = Allocator {
        claims: &Taken,
        owner: "own".into(),
        service_ranges: &ranges,
        service_cidrs: &Vec::new,
        node_ports: (30000, 32767),
        stamp: Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 },
    };
    let mut service = json!({"spec": spec});
    let named = texts(service["spec"].as_object().expect("a spec"), "clusterIPs").join(",");
    let named = named + service["spec"]["clusterIP"].as_str().unwrap_or_default();
    let old = old.map(|spec| json!({"spec": spec}));
    let had = old.as_ref().map_or(String::new(), |old| old["spec"]["clusterIPs"].to_string());
    let causes = allocate(&allocator, old.as_ref(), &mut service);
    if !causes.is_empty() {
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        return Err(told.join(", "));
    }
    let spec = service["spec"].as_object().expect("a spec");
    let shown = |ip: &str| match ip {
        ip if named.contains(ip) || had.contains(ip) => ip.to_owned(),
        ip if ip.starts_with("10.0.0.") => "v4".to_owned(),
        ip => ip.strip_prefix("fd00::").map_or(ip.to_owned(), |_| "v6".to_owned()),
    };
    let addresses: Vec<String> = texts(spec, "clusterIPs").into_iter().map(shown).collect();
    assert_eq!(text(spec, "clusterIP"), texts(spec, "clusterIPs").first().copied().unwrap_or_default());
    let families = texts(spec, "ipFamilies").join(",");
    Ok(format!("{} {families} {}", text(spec, "ipFamilyPolicy"), addresses.join(",")))
}

const V4: &str = "10.0.0.0/24";
const BOTH: &str = "10.0.0.0/24,fd00::/112";

#[test]
fn services_get_the_families_that_they_want() {
    let selective = |more: Value| {
        let mut spec = json!({"type": "ClusterIP", "selector": {"a": "b"}});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        spec
    };
    for (ranges, spec, expected) in [
        (V4, json!({}), Ok("SingleStack IPv4 v4")),
        (BOTH, json!({}), Ok("SingleStack IPv4 v4")),
        ("fd00::/112,10.0.0.0/24", json!({}), Ok("SingleStack IPv6 v6")),
        (V4, json!({"ipFamilyPolicy": "PreferDualStack"}), Ok("PreferDualStack IPv4 v4")),
        (BOTH, json!({"ipFamilyPolicy": "PreferDualStack"}), Ok("PreferDualStack IPv4,IPv6 v4,v6")),
        (
            BOTH,
            json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
            Ok("RequireDualStack IPv6,IPv4 v6,v4"),
        ),
        (BOTH, json!({"ipFamilies": ["IPv6"]}), Ok("SingleStack IPv6 v6")),
        (BOTH, json!({"clusterIP": "fd00::5"}), Ok("SingleStack IPv6 fd00::5")),
        (
            BOTH,
            json!({"ipFamilyPolicy": "PreferDualStack", "clusterIP": "fd00::5", "clusterIPs": ["fd00::5"]}),
            Ok("PreferDualStack IPv6,IPv4 fd00::5,v4"),
        ),
        (
            BOTH,
            json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"]}),
            Ok("RequireDualStack IPv4,IPv6 10.0.0.5,fd00::5"),
        ),
        (
            BOTH,
            json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::9"]}),
            Err(
                "spec.clusterIPs: Invalid value: [\"fd00::9\"]: failed to allocate IP fd00::9: provided IP is already allocated",
            ),
        ),
        (
            V4,
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            Err(
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
        ),
        (
            V4,
            json!({"ipFamilies": ["IPv6"]}),
            Err("spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
        ),
        (
            V4,
            json!({"clusterIP": "fd00::5"}),
            Err("spec.clusterIPs[0]: Invalid value: [\"fd00::5\"]: IPv6 is not configured on this cluster"),
        ),
        (
            BOTH,
            json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "SingleStack"}),
            Err(
                "spec.ipFamilyPolicy: Invalid value: \"SingleStack\": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
            ),
        ),
        (V4, json!({"clusterIP": "None"}), Ok("SingleStack IPv4 None")),
        (BOTH, json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"}), Ok("PreferDualStack IPv4,IPv6 None")),
    ] {
        let found = made(ranges, selective(spec.clone()), None);
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{ranges} {spec}");
    }
    // A headless service without a selector may have addresses of any family.
    assert_eq!(made(V4, json!({"clusterIP": "None"}), None), Ok("RequireDualStack IPv4,IPv6 None".into()));
}

#[test]
fn families_come_and_go_with_the_policy() {
    let dual = || {
        json!({"type": "ClusterIP", "selector": {"a": "b"}, "ipFamilyPolicy": "PreferDualStack",
            "ipFamilies": ["IPv4", "IPv6"], "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5", "fd00::5"]})
    };
    let single = || {
        json!({"type": "ClusterIP", "selector": {"a": "b"}, "ipFamilyPolicy": "SingleStack",
            "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"]})
    };
    let with = |mut spec: Value, changes: Value| {
        for (field, value) in changes.as_object().expect("a map") {
            match value {
                Value::Null => _ = spec.as_object_mut().expect("a map").remove(field),
                value => spec[field] = value.clone(),
            }
        }
        spec
    };
    for (ranges, old, changes, expected) in [
        (BOTH, single(), json!({}), "SingleStack IPv4 10.0.0.5"),
        (BOTH, single(), json!({"ipFamilyPolicy": "PreferDualStack"}), "PreferDualStack IPv4,IPv6 10.0.0.5,v6"),
        (V4, single(), json!({"ipFamilyPolicy": "PreferDualStack"}), "PreferDualStack IPv4 10.0.0.5"),
        // Fields that are left out keep their values.
        (BOTH, dual(), json!({"clusterIPs": null, "clusterIP": null}), "PreferDualStack IPv4,IPv6 10.0.0.5,fd00::5"),
        (
            BOTH,
            dual(),
            json!({"ipFamilyPolicy": null, "ipFamilies": null}),
            "PreferDualStack IPv4,IPv6 10.0.0.5,fd00::5",
        ),
        // The cluster has lost the family IPv6, and the service keeps its IPv6 address.
        (V4, dual(), json!({}), "PreferDualStack IPv4,IPv6 10.0.0.5,fd00::5"),
        (BOTH, dual(), json!({"ipFamilyPolicy": "SingleStack"}), "SingleStack IPv4 10.0.0.5"),
        (
            BOTH,
            dual(),
            json!({"ipFamilyPolicy": "SingleStack", "clusterIPs": null, "ipFamilies": null}),
            "SingleStack IPv4 10.0.0.5",
        ),
    ] {
        let found = made(ranges, with(old.clone(), changes.clone()), Some(old));
        assert_eq!(found, Ok(expected.to_owned()), "{ranges} {changes}");
    }
    let kept = with(single(), json!({"ipFamilyPolicy": "PreferDualStack"}));
    assert_eq!(made(BOTH, kept.clone(), Some(kept)), Ok("PreferDualStack IPv4 10.0.0.5".into()));
}

/// A cluster in which all addresses with this prefix (`10.0.0.`) and the claims of [`Taken`] are in use.
struct Full(&'static str);

impl Claims for Full {
    fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        let is_of = claim.strip_prefix("ip/").is_some_and(|ip| ip.starts_with(self.0));
        Taken.claimant(if is_of { "ip/10.0.0.9" } else { claim })
    }
}

fn service_cidr(cidrs: &[&str], status: Option<&str>) -> Value {
    let conditions: Vec<Value> = status.into_iter().map(|status| json!({"type": "Ready", "status": status})).collect();
    json!({"metadata": {"name": "more"}, "spec": {"cidrs": cidrs}, "status": {"conditions": conditions}})
}

/// The addresses of a service in a cluster with these ServiceCIDRs and with these ranges of
/// `--service-cluster-ip-range`.
fn addresses(
    ranges: &str,
    service_cidrs: &[Value],
    claims: &dyn Claims,
    (old, spec): (Value, Value),
    seed: u64,
) -> Result<String, String> {
    let allocator = Allocator {
        claims,
        owner: "own".into(),
        service_ranges: &ranges.parse().expect("ranges"),
        service_cidrs: &|| service_cidrs.to_vec(),
        node_ports: (30000, 32767),
        stamp: Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed },
    };
    let mut service = json!({"spec": {"type": "ClusterIP", "selector": {"a": "b"}}});
    service["spec"].as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let old = old.is_object().then(|| json!({"spec": old}));
    let causes = allocate(&allocator, old.as_ref(), &mut service);
    match causes.is_empty() {
        true => Ok(texts(service["spec"].as_object().expect("a spec"), "clusterIPs").join(",")),
        false => Err(causes.iter().map(|cause| cause.message.clone()).collect::<Vec<_>>().join(", ")),
    }
}

const OUTSIDE: &str = "the provided network does not match the current range";

#[test]
fn an_address_may_be_asked_for_in_any_range_that_is_ready() {
    let ready = || service_cidr(&["10.91.0.0/24", "fd91::/112"], Some("True"));
    let mut deleted = ready();
    deleted["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
    let unready = || service_cidr(&["10.91.0.0/24", "fd91::/112"], Some("False"));
    let own = |status| service_cidr(&["10.0.0.0/24"], status);
    for (service_cidrs, wanted, is_granted) in [
        (vec![ready()], "10.91.0.7", true),
        (vec![ready()], "fd91::7", true),
        (vec![ready()], "10.0.0.7", true),
        (vec![ready()], "10.92.0.7", false),
        (vec![ready()], "10.91.0.0", false),
        (vec![ready()], "10.91.0.255", false),
        // A ServiceCIDR without a condition counts as ready, so its addresses can be allocated.
        (vec![service_cidr(&["10.91.0.0/24"], None)], "10.91.0.7", true),
        (vec![], "10.91.0.7", false),
        (vec![service_cidr(&["10.91.0.0/24"], Some("Unknown"))], "10.91.0.7", false),
        (vec![unready()], "10.91.0.7", false),
        (vec![unready()], "fd91::7", false),
        (vec![deleted.clone()], "10.91.0.7", false),
        // If several ServiceCIDRs contain the address, it suffices that one of them is ready.
        (vec![unready(), ready()], "10.91.0.7", true),
        (vec![ready(), deleted.clone()], "10.91.0.7", true),
        (vec![deleted, service_cidr(&["10.88.0.0/13"], Some("True"))], "10.91.0.0", true),
        // A ServiceCIDR that lists a range of `--service-cluster-ip-range` decides whether that range is ready.
        (vec![own(Some("True"))], "10.0.0.7", true),
        (vec![own(None)], "10.0.0.7", true),
        (vec![own(Some("False"))], "10.0.0.7", false),
        (vec![own(Some("False")), service_cidr(&["10.0.0.0/25"], Some("True"))], "10.0.0.7", true),
    ] {
        let found = addresses(BOTH, &service_cidrs, &Taken, (Value::Null, json!({"clusterIP": wanted})), 1);
        let expected = match is_granted {
            true => Ok(wanted.to_owned()),
            false => Err(format!("failed to allocate IP {wanted}: {OUTSIDE}")),
        };
        let told = found.map_err(|told| told.rsplit_once("]: ").map_or(told.clone(), |(_, why)| why.to_owned()));
        assert_eq!(told, expected, "{wanted} {service_cidrs:?}");
    }
    // ServiceCIDRs add no address family that `--service-cluster-ip-range` lacks, so the IPv6 address is refused.
    let spec = json!({"clusterIP": "fd91::7"});
    let told = addresses(V4, &[ready()], &Taken, (Value::Null, spec), 1).expect_err("IPv6");
    assert!(told.contains("IPv6 is not configured on this cluster"), "{told}");
    // Overlapping ranges share their addresses: an address that is taken in one range is taken in the other range,
    // whichever spelling the client uses.
    let overlapping = [service_cidr(&["10.0.0.0/16"], Some("True"))];
    for taken in ["10.0.0.9", "fd00:0::0009"] {
        let spec = json!({"clusterIP": taken});
        let told = addresses(BOTH, &overlapping, &Taken, (Value::Null, spec), 1).expect_err("taken");
        assert!(told.ends_with(&format!("failed to allocate IP {taken}: provided IP is already allocated")), "{told}");
    }
}

#[test]
fn an_address_is_claimed_once_however_it_is_written() {
    let spec = json!({"clusterIP": "fd00:0::0005", "clusterIPs": ["fd00::5", "10.0.0.5"]});
    assert_eq!(claims(&json!({"spec": spec})), ["ip/10.0.0.5", "ip/fd00::5"]);
    for none in [json!({"clusterIP": "None", "clusterIPs": ["None"]}), json!({"clusterIP": ""}), json!({})] {
        assert!(claims(&json!({"spec": none})).is_empty(), "{none}");
    }
}

#[test]
fn the_next_range_is_tried_when_one_is_full() {
    const NONE: &str = "no network";
    let more = |status: &str| service_cidr(&["10.91.0.0/24", "fd91::/112"], Some(status));
    let dual = json!({"ipFamilyPolicy": "RequireDualStack"});
    let single = json!({"type": "ClusterIP", "selector": {"a": "b"}, "ipFamilyPolicy": "SingleStack",
        "ipFamilies": ["IPv4"], "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"]});
    let outside = json!({"type": "ExternalName", "externalName": "a.example"});
    for (service_cidrs, full, old, spec, expected) in [
        (vec![more("True")], NONE, Value::Null, json!({}), Some("10.0.0.")),
        (vec![more("True")], "10.0.0.", Value::Null, json!({}), Some("10.91.0.")),
        (vec![more("True")], "10.", Value::Null, json!({}), None),
        (vec![], "10.0.0.", Value::Null, json!({}), None),
        (vec![more("False")], "10.0.0.", Value::Null, json!({}), None),
        (vec![more("True")], "fd00::", Value::Null, dual.clone(), Some("10.0.0.*,fd91::")),
        (vec![more("False")], "fd00::", Value::Null, dual.clone(), None),
        (
            vec![service_cidr(&["10.0.0.0/24"], Some("False")), more("True")],
            NONE,
            Value::Null,
            json!({}),
            Some("10.91.0."),
        ),
        (vec![more("True")], "fd00::", single.clone(), dual.clone(), Some("10.0.0.5,fd91::")),
        (vec![more("True")], "10.0.0.", outside, json!({}), Some("10.91.0.")),
        // A service keeps its address even if no range contains it any longer.
        (vec![service_cidr(&["10.0.0.0/24"], Some("False"))], NONE, single, json!({}), Some("10.0.0.5")),
    ] {
        let found = addresses(BOTH, &service_cidrs, &Full(full), (old.clone(), spec.clone()), 1);
        let Some(parts) = expected else {
            let told = found.expect_err("a full range");
            assert!(told.contains("failed to allocate a serviceIP: range is full"), "{told}");
            continue;
        };
        let found = found.expect("an address");
        let mut rest = found.as_str();
        for part in parts.split('*') {
            rest =
                &rest[rest.find(part).unwrap_or_else(|| panic!("{found}: no {part} ({spec}, {old})")) + part.len()..];
        }
    }
}

#[test]
fn the_first_addresses_are_for_those_who_name_them() {
    let host = |claims: &dyn Claims, seed| -> u8 {
        let found = addresses(V4, &[], claims, (Value::Null, json!({})), seed).expect("an address");
        host_of(&found)
    };
    for seed in 0..200 {
        let found = host(&Taken, seed);
        assert!((17..=254).contains(&found), "{found}");
    }
    // When all other addresses are taken, the reserved addresses are allocated too.
    assert_eq!(host(&Beyond(16), 1), 1);
}

/// A cluster in which all addresses whose last number is higher than this number are in use.
struct Beyond(u8);

impl Claims for Beyond {
    fn claimant(&self, claim: &str) -> Option<&Arc<str>> {
        Taken.claimant(if host_of(claim) > self.0 { "ip/10.0.0.9" } else { claim })
    }
}

fn host_of(address: &str) -> u8 {
    address.rsplit('.').next().and_then(|host| host.parse().ok()).expect("an address of IPv4")
}

#[test]
fn only_who_needs_an_address_reads_the_ranges() {
    let read = std::cell::Cell::new(0);
    let made = |old: Option<Value>, spec: Value| {
        let allocator = Allocator {
            claims: &Taken,
            owner: "own".into(),
            service_ranges: &BOTH.parse().expect("ranges"),
            service_cidrs: &|| {
                read.set(read.get() + 1);
                Vec::new()
            },
            node_ports: (30000, 32767),
            stamp: Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 },
        };
        let mut service = json!({"spec": spec});
        assert!(allocate(&allocator, old.as_ref(), &mut service).is_empty());
        (service, read.take())
    };
    let (service, reads) = made(None, json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}));
    assert_eq!(reads, 1);
    assert_eq!(made(Some(service.clone()), service["spec"].clone()).1, 0);
    assert_eq!(made(None, json!({"type": "ClusterIP", "clusterIP": "None"})).1, 0);
    assert_eq!(made(None, json!({"type": "ExternalName"})).1, 0);
}

#[test]
fn a_node_port_stays_with_the_name_of_its_port() {
    let ports = |old: Value, new: Value| {
        let ranges = V4.parse().expect("ranges");
        let allocator = Allocator {
            claims: &Taken,
            owner: "own".into(),
            service_ranges: &ranges,
            service_cidrs: &Vec::new,
            node_ports: (30000, 32767),
            stamp: Stamp { time: jiff::Timestamp::UNIX_EPOCH, seed: 1 },
        };
        let service = |ports: Value| json!({"spec": {"type": "NodePort", "clusterIP": "10.0.0.5", "ports": ports}});
        let mut new = service(new);
        let causes = allocate(&allocator, Some(&service(old)), &mut new);
        assert!(causes.is_empty(), "{causes:?}");
        let ports = new["spec"]["ports"].as_array().expect("ports");
        ports.iter().map(|port| port["nodePort"].as_i64().expect("a number")).collect::<Vec<_>>()
    };
    let old = || json!([{"name": "a", "port": 80, "nodePort": 32001}, {"name": "b", "port": 81, "nodePort": 32002}]);
    let two = |first: Value, second: Value| ports(old(), json!([first, second]));
    // The port `a` keeps its node port although its other fields change.
    let kept = two(json!({"name": "a", "port": 81, "protocol": "UDP"}), json!({"name": "b", "port": 80}));
    assert_eq!(kept, [32001, 32002]);
    // The port `a` is renamed to `c`, so it gets another node port.
    let renamed = two(json!({"name": "c", "port": 80}), json!({"name": "b", "port": 81}));
    assert_ne!(renamed[0], 32001);
    assert_eq!(renamed[1], 32002);
    // The port `b` requests the node port of the port `a`, so the port `a` gets a new node port.
    let asked = two(json!({"name": "a", "port": 80}), json!({"name": "b", "port": 81, "nodePort": 32001}));
    assert_ne!(asked[0], 32001);
    assert_eq!(asked[1], 32001);
}
