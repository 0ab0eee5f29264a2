//! The balancer that a Service requests, and the Events about a change of the Service that changes the requested
//! balancer.

use holdfast_controllers::addresses::Range;
use holdfast_controllers::subject::{Subject, part};
use holdfast_value::Value;
use holdfast_world::cloud::{BalancerSpec, Port, ServiceRef};
use holdfast_world::views::Service;
use holdfast_world::{PlannedEvent, Viewed};

/// The old annotation for source ranges. If a Service has the field `loadBalancerSourceRanges`, too, the field counts.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
/// The default timeout of session affinity, in seconds.
const AFFINITY_SECONDS: u32 = 10_800;
/// The longest name of a balancer, in characters.
const NAME_MAX: usize = 32;

/// The balancer that a Service requests, or why the Service's spec is invalid.
pub fn of(service: Viewed<'_, Service>, spec: &Value) -> Result<BalancerSpec, String> {
    let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let affinity = match text("sessionAffinity").as_str() {
        "ClientIP" => {
            let seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_u64();
            seconds.and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(AFFINITY_SECONDS)
        }
        _ => 0,
    };
    let local = text("externalTrafficPolicy") == "Local";
    let ports = spec["ports"].as_array().into_iter().flatten().map(port).collect();
    Ok(BalancerSpec {
        name: name(&service.meta().uid),
        service: named(service),
        annotations: service.meta().annotations.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        ports,
        source_ranges: source_ranges(service, spec)?,
        address: text("loadBalancerIP"),
        external_ips: texts(&spec["externalIPs"]),
        local,
        health_check_port: if local { number(&spec["healthCheckNodePort"]) } else { 0 },
        affinity_seconds: affinity,
        families: texts(&spec["ipFamilies"]),
    })
}

/// The name of a Service's balancer: `a` and the Service's UID without dashes, cut to `NAME_MAX` characters.
pub fn name(uid: &str) -> String {
    let hex = uid.chars().filter(|letter| *letter != '-');
    std::iter::once('a').chain(hex).take(NAME_MAX).collect()
}

pub fn named(service: Viewed<'_, Service>) -> ServiceRef {
    let meta = service.meta();
    ServiceRef { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
}

fn port(port: &Value) -> Port {
    let text = |field: &str| port[field].as_str().unwrap_or_default().to_owned();
    Port {
        name: text("name"),
        protocol: port["protocol"].as_str().unwrap_or("TCP").to_owned(),
        app_protocol: text("appProtocol"),
        port: number(&port["port"]),
        node_port: number(&port["nodePort"]),
    }
}

fn number(value: &Value) -> u16 {
    value.as_u64().and_then(|number| u16::try_from(number).ok()).unwrap_or_default()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn source_ranges(service: Viewed<'_, Service>, spec: &Value) -> Result<Vec<String>, String> {
    let (field, ranges) = match texts(&spec["loadBalancerSourceRanges"]) {
        ranges if ranges.is_empty() => {
            let annotation = service.meta().annotation(SOURCE_RANGES).unwrap_or_default();
            let ranges = annotation.split(',').map(|range| range.trim().to_owned());
            (SOURCE_RANGES, ranges.filter(|range| !range.is_empty()).collect())
        }
        ranges => ("spec.loadBalancerSourceRanges", ranges),
    };
    match ranges.iter().find(|range| Range::parse(range.trim()).is_none()) {
        Some(range) => {
            Err(format!("{field}: {range:?} is not valid. Expecting a list of IP ranges. For example, 10.0.0.0/24"))
        }
        None => Ok(ranges.into_iter().map(|range: String| range.trim().to_owned()).collect()),
    }
}

/// The Events about the changes of a Service, in the wording of Kubernetes.
pub fn differences(before: Viewed<'_, Service>, after: Viewed<'_, Service>) -> Vec<PlannedEvent> {
    let subject = Subject::from(after);
    let mut notes = Vec::new();
    let (old, new) = (&before.view.spec.kind, &after.view.spec.kind);
    if old != new {
        notes.push(subject.normal("Type", format!("{old} -> {new}")));
    }
    if old != super::TYPE || new != super::TYPE {
        return notes;
    }
    let (old, new) = (part(before.object, &["spec"]), part(after.object, &["spec"]));
    let list = |spec: &Value, field: &str| format!("[{}]", texts(&spec[field]).join(" "));
    let text = |spec: &Value, field: &str| spec[field].as_str().unwrap_or_default().to_owned();
    let mut tell = |reason, old: String, new: String| {
        if old != new {
            notes.push(subject.normal(reason, format!("{old} -> {new}")));
        }
    };
    let ranges = "loadBalancerSourceRanges";
    tell("LoadBalancerSourceRanges", list(&old, ranges), list(&new, ranges));
    tell("LoadbalancerIP", text(&old, "loadBalancerIP"), text(&new, "loadBalancerIP"));
    tell("ExternalIP", list(&old, "externalIPs"), list(&new, "externalIPs"));
    let policy = "externalTrafficPolicy";
    tell("ExternalTrafficPolicy", text(&old, policy), text(&new, policy));
    tell("UID", before.meta().uid.clone(), after.meta().uid.clone());
    notes
}
