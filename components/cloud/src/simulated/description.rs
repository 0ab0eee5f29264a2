//! The file that describes a simulated cloud. Each fault, including unknown fields, is reported with the path of its
//! field.

use holdfast_controllers::addresses::Range;
use holdfast_core::object::reader::{Reader, read};
use holdfast_core::object::yaml;
use holdfast_value::Value;
use holdfast_world::cloud::{Instance, NodeAddress, Offers, Zone};
use std::collections::BTreeMap;

/// The name of the provider, which is also the scheme of its provider IDs.
pub const NAME: &str = "simulated";
/// The maximum number of instances in a description.
const INSTANCES_MAX: usize = 100_000;
/// The maximum, in milliseconds, of a latency and of the delay until lists are up to date.
const MILLIS_MAX: i64 = 3_600_000;

/// The properties of a simulated cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub seed: u64,
    pub offers: Offers,
    /// The address ranges from which balancers get their addresses.
    pub pool: Vec<Range>,
    pub ip_mode: String,
    /// Whether a balancer may have ports of several protocols.
    pub mixed_protocols: bool,
    pub quotas: Quotas,
    /// The shortest and the longest time that an answer takes, in milliseconds.
    pub latency_millis: (i64, i64),
    /// How many calls a second the cloud answers, and how many calls in a burst. Further calls are throttled.
    pub throttle: Option<(i64, i64)>,
    /// How long, in milliseconds, lists do not contain a new object, and still contain a deleted object.
    pub consistency_millis: i64,
    /// How many calls in a thousand fail. Half of the failed calls have taken effect although they fail.
    pub failures: i64,
    /// The instances by name.
    pub instances: BTreeMap<String, Instance>,
    /// The HTTP statuses with which health-check node ports answer, by the name of the instance and by `NAMESPACE/NAME`
    /// of the Service. A health-check node port without an entry answers 200.
    pub health_checks: BTreeMap<String, BTreeMap<String, u16>>,
    pub script: Vec<InstanceChange>,
}

/// The maximum numbers of resources in the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quotas {
    pub balancers: i64,
    pub routes: i64,
}

/// A change of an instance at a given time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceChange {
    /// The time of the change since the first call to the cloud, in milliseconds.
    pub at_millis: i64,
    pub instance: String,
    pub what: InstanceEvent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceEvent {
    ShutDown,
    Start,
    Vanish,
    /// From now on, calls about the instance fail.
    Fail,
    Heal,
}

const WHAT: [(&str, InstanceEvent); 5] = [
    ("shutDown", InstanceEvent::ShutDown),
    ("start", InstanceEvent::Start),
    ("vanish", InstanceEvent::Vanish),
    ("fail", InstanceEvent::Fail),
    ("heal", InstanceEvent::Heal),
];

impl Default for Description {
    fn default() -> Description {
        Description {
            seed: 0,
            offers: Offers { instances: true, zones: true, balancers: true, routes: true, clusters: true },
            pool: Range::parse("192.0.2.0/24").into_iter().collect(),
            ip_mode: "VIP".into(),
            mixed_protocols: true,
            quotas: Quotas { balancers: i64::MAX, routes: i64::MAX },
            latency_millis: (0, 0),
            throttle: None,
            consistency_millis: 0,
            failures: 0,
            instances: BTreeMap::new(),
            health_checks: BTreeMap::new(),
            script: Vec::new(),
        }
    }
}

impl Description {
    /// Reads a description in YAML or JSON. The error lists all faults of the description.
    pub fn parse(text: &str) -> Result<Description, Vec<String>> {
        let document: Value = yaml::read(text).map_err(|error| vec![error.to_string()])?;
        if document.is_null() {
            return Ok(Description::default());
        }
        read(&document, Description::read)
    }

    fn read(reader: &Reader<'_>) -> Description {
        let seed = reader.int("seed").unwrap_or_default().unsigned_abs();
        let mut description = Description { seed, ..Description::default() };
        if let Some(offers) = reader.child("offers") {
            let read = |field: &str, to: &mut bool| *to = offers.bool(field).unwrap_or(*to);
            let to = &mut description.offers;
            read("instances", &mut to.instances);
            read("zones", &mut to.zones);
            read("balancers", &mut to.balancers);
            read("routes", &mut to.routes);
            read("clusters", &mut to.clusters);
        }
        if let Some(pool) = reader.texts("addresses") {
            description.pool = pool
                .iter()
                .enumerate()
                .filter_map(|(at, text)| {
                    let range = Range::parse(text);
                    if range.is_none() {
                        reader.invalid(
                            &format!("addresses[{at}]"),
                            format!("{text:?}"),
                            "must be a range of addresses",
                        );
                    }
                    range
                })
                .collect();
        }
        if let Some(mode) = reader.text("ipMode") {
            match mode {
                "VIP" | "Proxy" => description.ip_mode = mode.to_owned(),
                _ => reader.invalid("ipMode", format!("{mode:?}"), "must be VIP or Proxy"),
            }
        }
        description.mixed_protocols = reader.bool("mixedProtocols").unwrap_or(true);
        if let Some(quotas) = reader.child("quotas") {
            let quota = |field| quotas.int_within(field, 0, i64::MAX).unwrap_or(i64::MAX);
            description.quotas = Quotas { balancers: quota("balancers"), routes: quota("routes") };
        }
        if let Some(latency) = reader.child("latency") {
            let least = millis(&latency, "least").unwrap_or(0);
            let most = millis(&latency, "most").unwrap_or(least);
            if most < least {
                latency.invalid("most", most, "must be no less than least");
            }
            description.latency_millis = (least, most.max(least));
        }
        if let Some(throttle) = reader.child("throttle") {
            let a_second = throttle.int_within("perSecond", 1, 1_000_000);
            let burst = throttle.int_within("burst", 1, 1_000_000).or(a_second);
            if a_second.is_none() {
                throttle.required("perSecond", "how many calls a second are answered");
            }
            description.throttle = a_second.zip(burst);
        }
        description.consistency_millis = millis(reader, "consistency").unwrap_or(0);
        description.failures = reader.int_within("failuresPerThousand", 0, 1000).unwrap_or(0);
        for item in reader.list("instances").into_iter().flatten().take(INSTANCES_MAX) {
            let checks = health_checks(&item);
            let Some((name, instance)) = instance(&item) else { continue };
            if !checks.is_empty() {
                description.health_checks.insert(name.clone(), checks);
            }
            if description.instances.insert(name.clone(), instance).is_some() {
                item.fault("name", format!("Duplicate value: {name:?}"));
            }
        }
        let scenes = reader.list("script").unwrap_or_default();
        description.script = scenes.iter().filter_map(|item| scene(item, &description.instances)).collect();
        description.script.sort_by_key(|scene| scene.at_millis);
        description
    }
}

fn millis(reader: &Reader<'_>, field: &str) -> Option<i64> {
    let millis = (reader.seconds(field)? * 1000.0) as i64;
    if !(0..=MILLIS_MAX).contains(&millis) {
        reader.invalid(field, format!("{millis}ms"), "must be from 0 to 1h");
    }
    Some(millis.clamp(0, MILLIS_MAX))
}

fn instance(reader: &Reader<'_>) -> Option<(String, Instance)> {
    let text = |field: &str| reader.text(field).unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() {
        reader.required("name", "");
        return None;
    }
    let id = reader.text("id").unwrap_or(&name);
    let mut addresses = Vec::new();
    for item in reader.list("addresses").unwrap_or_default() {
        let text = |field: &str| item.text(field).unwrap_or_default().to_owned();
        let address = NodeAddress { kind: text("type"), address: text("address") };
        if !matches!(address.kind.as_str(), "Hostname" | "InternalIP" | "ExternalIP" | "InternalDNS" | "ExternalDNS") {
            item.invalid("type", format!("{:?}", address.kind), "is no type of address that nodes have");
        }
        if address.address.is_empty() {
            item.required("address", "");
        }
        addresses.push(address);
    }
    let mut labels = BTreeMap::new();
    if let Some(map) = reader.get("labels").and_then(Value::as_object) {
        labels.extend(map.iter().filter_map(|(name, value)| Some((name.to_string(), value.as_str()?.to_owned()))));
    }
    let instance = Instance {
        provider_id: format!("{NAME}://{id}"),
        kind: text("type"),
        zone: Zone { zone: text("zone"), region: text("region") },
        addresses,
        labels,
        is_shut_down: reader.bool("shutDown").unwrap_or(false),
    };
    Some((name, instance))
}

fn health_checks(reader: &Reader<'_>) -> BTreeMap<String, u16> {
    let mut checks = BTreeMap::new();
    let Some(value) = reader.get("healthChecks") else { return checks };
    let Some(map) = value.as_object() else {
        reader.invalid("healthChecks", value, "must be a status for each NAMESPACE/NAME of a Service");
        return checks;
    };
    for (service, status) in map {
        let field = format!("healthChecks[{service}]");
        let is_named =
            service.split_once('/').is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
        if !is_named {
            reader.fault(&field, "must be NAMESPACE/NAME of a Service");
        }
        match status.as_i64().and_then(|status| u16::try_from(status).ok()).filter(|status| (100..600).contains(status))
        {
            Some(status) => _ = checks.insert(service.to_string(), status),
            None => reader.invalid(&field, status, "must be a status from 100 to 599"),
        }
    }
    checks
}

fn scene(reader: &Reader<'_>, instances: &BTreeMap<String, Instance>) -> Option<InstanceChange> {
    let (at_millis, instance) = (millis(reader, "at"), reader.text("instance"));
    let what = reader.text("do");
    if let Some(name) = instance.filter(|name| !instances.contains_key(*name)) {
        reader.invalid("instance", format!("{name:?}"), "there is no such instance");
    }
    let known = what.and_then(|what| WHAT.iter().find(|(word, _)| *word == what));
    if known.is_none() {
        let words: Vec<&str> = WHAT.iter().map(|(word, _)| *word).collect();
        reader.fault("do", format!("Unsupported value: {:?}: supported values: {words:?}", what.unwrap_or_default()));
    }
    let instance = instance?.to_owned();
    Some(InstanceChange { at_millis: at_millis.unwrap_or(0), instance, what: known?.1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_wrong_is_told_with_its_place() {
        let text = "
            addresses: [10.0.0.0/33]
            ipMode: Any
            latency: {least: 2s, most: 1s}
            throttle: {burst: 3}
            colour: red
            instances:
            - {name: a, typo: x, healthChecks: {web: 200, n/web: yes}}
            - {name: a, addresses: [{type: IP, address: 1.2.3.4}]}
            script:
            - {at: 5s, instance: b, do: explode}
        ";
        let faults = Description::parse(text).expect_err("faulty");
        for part in [
            "addresses[0]: Invalid value: \"10.0.0.0/33\"",
            "ipMode",
            "latency.most",
            "throttle.perSecond",
            "unknown field \"colour\"",
            "unknown field \"instances[0].typo\"",
            "instances[0].healthChecks[web]: must be NAMESPACE/NAME",
            "instances[0].healthChecks[n/web]: Invalid value",
            "instances[1].name: Duplicate value: \"a\"",
            "instances[1].addresses[0].type",
            "script[0].instance",
            "script[0].do",
        ] {
            assert!(faults.iter().any(|fault| fault.contains(part)), "{part} in {faults:#?}");
        }
    }

    #[test]
    fn nothing_is_a_cloud_without_instances() {
        assert_eq!(Description::parse("").expect("a description"), Description::default());
    }
}
