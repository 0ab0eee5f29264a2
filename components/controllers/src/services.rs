//! What the controllers of Endpoints and of EndpointSlices share: the Services that a pod's change concerns, the fields
//! of a pod that endpoints show, and the time of the last trigger.

use holdfast_world::selector::selected_places;
use holdfast_world::views::Condition;
use holdfast_world::views::network::{EndpointAddress, TargetRef};
use holdfast_world::views::pod::Container;
use holdfast_world::views::{Pod, Service};
use holdfast_world::{Change, Key, Keys, Text, Time, View, Viewed, World, work};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The annotation with the time of a change of a Service or its pods: the earliest change that the object's last write
/// includes.
pub const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The name of the index of Services by the labels that they select.
const SELECTORS: &str = "selectors";

/// Makes the index of Services by the pods that they select, and of pods by their labels.
pub fn index(world: &mut World) {
    world.index::<Service>(SELECTORS, |object| match object.view::<Service>() {
        Some(service) if service.selects_pods() => selected_places(&object.meta.namespace, &service.spec.selector),
        _ => Vec::new(),
    });
    world.index_labels::<Pod>();
}

/// The pods that a Service selects, by name.
pub fn pods<'w>(world: &'w World, service: Viewed<'w, Service>) -> Vec<Viewed<'w, Pod>> {
    world.select(&service.meta().namespace, &service.view.spec.selector)
}

/// Adds the Services that a pod's change concerns. Their plans may wait `batch_millis` milliseconds for further
/// changes.
pub fn concerned(world: &World, change: &Change, keys: &mut Keys, batch_millis: i64) {
    let (before, after) = (change.before::<Pod>(), change.after::<Pod>());
    if let (Some(before), Some(after)) = (before, after)
        && visible(before) == visible(after)
    {
        return;
    }
    // If the labels are unchanged, the same Services selected the pod before the change.
    let before = before.filter(|before| after.is_none_or(|after| before.meta().labels != after.meta().labels));
    for pod in [before, after].into_iter().flatten() {
        of_pod(world, pod, keys, batch_millis);
    }
}

/// Adds the Services that select a pod.
pub fn of_pod(world: &World, pod: Viewed<'_, Pod>, keys: &mut Keys, batch_millis: i64) {
    for service in world.selecting::<Service>(SELECTORS, pod.meta(), |service| &service.spec.selector) {
        keys.add_after(service.object.key(), batch_millis);
    }
}

/// All fields of a pod that endpoints show; endpoints change only if these fields change.
fn visible<'a>(pod: Viewed<'a, Pod>) -> impl PartialEq + use<'a> {
    let (meta, spec, status) = (pod.meta(), &pod.view.spec, &pod.view.status);
    let ips: Vec<&str> = status.pod_ips.iter().map(|ip| ip.ip.as_str()).chain([status.pod_ip.as_str()]).collect();
    let state = (pod.is_finished(), meta.is_deleting(), pod.is_ready());
    (&meta.uid, &meta.labels, &spec.node_name, &spec.hostname, &spec.subdomain, ips, state)
}

/// Whether endpoints show a pod at all: it has an address, and has not ended. With `terminating_too` pods that are
/// being deleted are shown, too.
pub fn is_shown(pod: Viewed<'_, Pod>, terminating_too: bool) -> bool {
    let has_address = !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty();
    has_address && !pod.is_finished() && (terminating_too || !pod.meta().is_deleting())
}

/// The addresses of a pod in one address family.
pub fn addresses<'a>(pod: Viewed<'a, Pod>, ipv6: bool) -> impl Iterator<Item = &'a str> {
    let status = &pod.view.status;
    let only = status.pod_ips.is_empty().then_some(status.pod_ip.as_str());
    let all = status.pod_ips.iter().map(|ip| ip.ip.as_str()).chain(only);
    all.filter(move |ip| !ip.is_empty() && ip.contains(':') == ipv6)
}

/// The pod's host name, if the pod has a DNS name in the domain of this Service.
pub fn hostname<'a>(pod: Viewed<'a, Pod>, service: Viewed<'_, Service>) -> Option<&'a str> {
    let spec = &pod.view.spec;
    (!spec.hostname.is_empty() && spec.subdomain == service.meta().name).then_some(&spec.hostname)
}

pub fn target(pod: Viewed<'_, Pod>) -> TargetRef {
    let meta = pod.meta();
    TargetRef {
        kind: "Pod".to_owned(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..TargetRef::default()
    }
}

/// How many ports the pods of a Service may offer in total; pods that offer equal ports count once. Without a limit, a
/// Service with twenty thousand ports over pods whose ports all differ would need gigabytes of memory.
pub const PORTS_MAX: usize = 20_000;

/// A group of pods that offer the same ports of a Service.
pub struct Offer<'w> {
    /// The index of each offered port among the Service's ports, and the port's number in the pods.
    pub ports: Vec<(usize, i64)>,
    pub pods: Vec<Viewed<'w, Pod>>,
}

/// Groups the pods of a Service by the Service's ports that they serve, in the order of the first pod of each group.
/// The work grows with the number of ports that the pods have, and not with the Service's ports times the pods. The
/// error names the limit that the Service and its pods exceed.
pub fn offers<'w>(
    service: Viewed<'_, Service>,
    pods: impl Iterator<Item = Viewed<'w, Pod>>,
) -> Result<Vec<Offer<'w>>, String> {
    let mut named: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut numbered = Vec::new();
    for (place, port) in service.view.spec.ports.iter().enumerate() {
        match port.target_port.as_str() {
            Some(name) => named.entry((name, port.protocol.as_str())).or_default().push(place),
            None => {
                numbered.push((place, port.target_port.as_i64().filter(|number| *number != 0).unwrap_or(port.port)));
            }
        }
    }
    let mut offers: Vec<Offer<'w>> = Vec::new();
    let mut known: HashMap<Vec<(usize, i64)>, usize> = HashMap::new();
    // Pods of one template share their containers, and usually follow each other in the list, so their ports are
    // computed once.
    let mut last: Option<(Viewed<'w, Pod>, usize)> = None;
    let mut count = 0;
    for pod in pods {
        let says_the_same = |other: &Viewed<'w, Pod>| {
            let (one, other) = (&pod.view.spec, &other.view.spec);
            one.containers.is_same(&other.containers) && one.init_containers.is_same(&other.init_containers)
        };
        if let Some((_, place)) = last.as_ref().filter(|(other, _)| named.is_empty() || says_the_same(other)) {
            offers[*place].pods.push(pod);
            continue;
        }
        let found = named_ports(pod, &named);
        let place = match known.get(&found) {
            Some(place) => *place,
            None => {
                let mut ports = [&*numbered, &*found].concat();
                ports.sort_unstable();
                count += ports.len();
                if count > PORTS_MAX {
                    return Err(format!("the pods behind it offer more than {PORTS_MAX} different ports of it"));
                }
                known.insert(found, offers.len());
                offers.push(Offer { ports, pods: Vec::new() });
                offers.len() - 1
            }
        };
        offers[place].pods.push(pod);
        last = Some((pod, place));
    }
    Ok(offers)
}

/// The index of each Service port whose target is a named port of the pod, with the number of that port. If two ports
/// of the pod have equal names, the first port counts.
fn named_ports(pod: Viewed<'_, Pod>, named: &HashMap<(&str, &str), Vec<usize>>) -> Vec<(usize, i64)> {
    let stays = |container: &&Container| container.restart_policy == "Always";
    let containers = pod.view.spec.containers.iter().chain(pod.view.spec.init_containers.iter().filter(stays));
    let (mut met, mut found) = (HashSet::new(), Vec::new());
    for port in containers.filter(|_| !named.is_empty()).flat_map(|container| &container.ports) {
        work::count(1);
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let name = (port.name.as_str(), protocol);
        if let Some(places) = named.get(&name).filter(|_| met.insert(name)) {
            found.extend(places.iter().map(|place| (*place, port.container_port)));
        }
    }
    found.sort_unstable();
    found
}

/// An address in the form of Endpoints.
pub fn address(pod: Viewed<'_, Pod>, service: Viewed<'_, Service>, ip: &str) -> EndpointAddress {
    EndpointAddress {
        ip: ip.to_owned(),
        hostname: hostname(pod, service).unwrap_or_default().to_owned(),
        node_name: Some(pod.spec.node_name.clone()),
        target_ref: Some(target(pod)),
    }
}

/// The labels that the endpoints of a Service get from it, with the headless label if the Service has no cluster IP.
pub fn labels(service: Viewed<'_, Service>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::clone(&service.meta().labels);
    labels.remove(HEADLESS);
    if matches!(service.view.spec.cluster_ip.as_str(), "" | "None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// The times at which Services and their pods last changed, from which the trigger of a write is found. The times are
/// lost at a restart; then a Service counts as new.
#[derive(Debug, Default)]
pub struct Triggers {
    services: HashMap<Key, Trigger>,
}

#[derive(Debug, Default)]
struct Trigger {
    service: Option<Time>,
    /// The times at which pods last changed, by the name of the pod.
    pods: HashMap<Text, Time>,
}

impl Triggers {
    pub fn forget(&mut self, key: &Key) {
        self.services.remove(key);
    }

    /// The earliest change of a Service or its pods since the last call; `None` if nothing has changed.
    pub fn changed(&mut self, service: Viewed<'_, Service>, pods: &[Viewed<'_, Pod>]) -> Option<Time> {
        let key = service.object.key();
        let known = self.services.get(&key);
        let created = service.meta().creation_timestamp;
        let mut now = Trigger { service: created, pods: HashMap::new() };
        let mut first = created.filter(|_| known.is_none_or(|known| created > known.service));
        for pod in pods {
            let ready = Condition::find(&pod.view.status.conditions, "Ready");
            let Some(moved) = ready.and_then(|ready| ready.last_transition_time) else { continue };
            let name: Text = pod.meta().name.as_str().into();
            if known.is_some_and(|known| known.pods.get(&name).is_none_or(|before| *before < moved)) {
                first = Some(first.map_or(moved, |first| first.min(moved)));
            }
            now.pods.insert(name, moved);
        }
        self.services.insert(key, now);
        first
    }
}

/// The resources that every controller of endpoints needs.
pub fn resources() -> Vec<holdfast_world::Resource> {
    vec![Service::resource().clone(), Pod::resource().clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};

    const PODS: usize = 400;

    fn world(targets: impl Iterator<Item = Value>, ports_of: impl Fn(usize) -> Value) -> World {
        let mut world = World::default();
        world.track::<Service>();
        world.track::<Pod>();
        index(&mut world);
        let ports: Vec<Value> = targets.enumerate().map(|(place, target)| {
            json!({"name": format!("p{place}"), "port": place + 1, "protocol": "TCP", "targetPort": target})
        }).collect();
        let service = json!({"metadata": {"name": "s", "namespace": "n", "uid": "s"},
            "spec": {"selector": {"app": "a"}, "ports": ports}});
        let mut show = |resource: &holdfast_world::Resource, name: &str, object: Value| {
            world.apply(resource, Key::new("n", name), Some(object.to_string().into()), 1, Time::from_second(0));
        };
        show(Service::resource(), "s", service);
        for number in 0..PODS {
            let name = format!("pod-{number:04}");
            let pod = json!({"metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"app": "a"}},
                "spec": {"containers": [{"name": format!("c{number}"), "ports": ports_of(number)}]}});
            show(Pod::resource(), &name, pod);
        }
        world
    }

    /// The numbers of ports and pods of each offer of the Service `s`, and the amount of work that finding the offers
    /// took.
    fn offered(world: &World) -> (Result<Vec<(usize, usize)>, String>, u64) {
        let service = world.get::<Service>(&Key::new("n", "s")).expect("a service");
        let pods = pods(world, service);
        let (found, work) = work::limited(u64::MAX, || offers(service, pods.into_iter()));
        let counts =
            |offers: Vec<Offer<'_>>| offers.iter().map(|offer| (offer.ports.len(), offer.pods.len())).collect();
        (found.expect("no panic").map(counts), work)
    }

    #[test]
    fn named_ports_cost_what_the_pods_have_of_them() {
        let named = || (0..15_000).map(|place| json!(format!("n{place}")));
        let one = |_: usize| json!([{"name": "n7", "containerPort": 8080, "protocol": "TCP"}]);
        let (offers, work) = offered(&world(named(), one));
        assert_eq!((offers, work), (Ok(vec![(1, PODS)]), PODS as u64));
        let (offers, work) = offered(&world((0..15_000).map(|_| json!(0)), one));
        assert_eq!((offers, work), (Ok(vec![(15_000, PODS)]), 0));
    }

    #[test]
    fn ports_that_every_pod_offers_otherwise_are_bounded() {
        let targets = || (0..15_000).map(|place| if place == 0 { json!("own") } else { json!(place) });
        let other = |number: usize| json!([{"name": "own", "containerPort": number + 1, "protocol": "TCP"}]);
        let (offers, _) = offered(&world(targets(), other));
        assert_eq!(offers, Err("the pods behind it offer more than 20000 different ports of it".to_owned()));
    }

    #[test]
    fn the_first_port_of_a_name_and_protocol_is_meant() {
        let targets = ["a", "b", "c"].map(Value::from).into_iter().chain([json!(80)]);
        let ports = |number: usize| match number % 2 {
            0 => {
                json!([{"name": "a", "containerPort": 1, "protocol": "TCP"}, {"name": "a", "containerPort": 2, "protocol": "TCP"},
                {"name": "b", "containerPort": 3, "protocol": "UDP"}, {"name": "c", "containerPort": 4}])
            }
            _ => Value::Null,
        };
        let world = world(targets, ports);
        let service = world.get::<Service>(&Key::new("n", "s")).expect("a service");
        let offers = offers(service, pods(&world, service).into_iter()).expect("few");
        let found: Vec<_> = offers.iter().map(|offer| (offer.ports.clone(), offer.pods.len())).collect();
        assert_eq!(found, [(vec![(0, 1), (2, 4), (3, 80)], PODS / 2), (vec![(3, 80)], PODS / 2)]);
    }
}
