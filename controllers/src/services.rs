//! What the controllers of Services share: which Services a pod concerns, what of a pod is seen behind them, and what
//! moved last.

use holdfast_world::selector::selected_places;
use holdfast_world::views::network::{Address, ServicePort, TargetRef};
use holdfast_world::views::pod::{Condition, Container};
use holdfast_world::views::{Pod, Service};
use holdfast_world::{Change, Key, Keys, Seen, Selector, Text, Time, View, World};
use std::collections::{BTreeMap, HashMap};

/// When what an object tells of changed, of all that it tells of what changed first.
pub const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// The index of Services by what they select.
const SELECTORS: &str = "selectors";

/// Lets Services be found by their pods, and pods by their Service.
pub fn index(world: &mut World) {
    world.index::<Service>(SELECTORS, |object| match object.view::<Service>() {
        Some(service) if service.selects_pods() => selected_places(&object.meta.namespace, &selector(service)),
        _ => Vec::new(),
    });
    world.index_labels::<Pod>();
}

fn selector(service: &Service) -> Selector {
    Selector::all_of(&service.spec.selector)
}

/// The pods behind a Service, by name.
pub fn pods<'w>(world: &'w World, service: Seen<'w, Service>) -> Vec<Seen<'w, Pod>> {
    world.select(&service.meta().namespace, &selector(service.view))
}

/// The Services that a change of a pod concerns; they may wait so many milliseconds for the next change.
pub fn concerned(world: &World, change: &Change, keys: &mut Keys, batch_millis: i64) {
    let (before, after) = (change.before::<Pod>(), change.after::<Pod>());
    if let (Some(before), Some(after)) = (before, after)
        && visible(before) == visible(after)
    {
        return;
    }
    // Who had these labels before is found by those that it has now.
    let before = before.filter(|before| after.is_none_or(|after| before.meta().labels != after.meta().labels));
    for pod in [before, after].into_iter().flatten() {
        of_pod(world, pod, keys, batch_millis);
    }
}

/// The Services that select a pod.
pub fn of_pod(world: &World, pod: Seen<'_, Pod>, keys: &mut Keys, batch_millis: i64) {
    let selecting = world.selecting::<Service>(SELECTORS, pod.meta());
    for service in selecting.into_iter().filter(|service| selector(service.view).matches(pod.meta())) {
        keys.add_after(service.object.key(), batch_millis);
    }
}

/// All that Services show of a pod.
fn visible<'a>(pod: Seen<'a, Pod>) -> impl PartialEq + use<'a> {
    let (meta, spec, status) = (pod.meta(), &pod.view.spec, &pod.view.status);
    let ips: Vec<&str> = status.pod_ips.iter().map(|ip| ip.ip.as_str()).chain([status.pod_ip.as_str()]).collect();
    let state = (pod.is_finished(), meta.is_deleting(), pod.is_ready());
    (&meta.uid, &meta.labels, &spec.node_name, &spec.hostname, &spec.subdomain, ips, state)
}

/// Whether a pod is to be seen behind Services at all.
pub fn is_shown(pod: Seen<'_, Pod>, terminating_too: bool) -> bool {
    let has_address = !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty();
    has_address && !pod.is_finished() && (terminating_too || !pod.meta().is_deleting())
}

/// The addresses of a pod in one family.
pub fn addresses<'a>(pod: Seen<'a, Pod>, ipv6: bool) -> impl Iterator<Item = &'a str> {
    let status = &pod.view.status;
    let only = status.pod_ips.is_empty().then_some(status.pod_ip.as_str());
    let all = status.pod_ips.iter().map(|ip| ip.ip.as_str()).chain(only);
    all.filter(move |ip| !ip.is_empty() && ip.contains(':') == ipv6)
}

/// The name that a pod has below the name of a Service.
pub fn hostname<'a>(pod: Seen<'a, Pod>, service: Seen<'_, Service>) -> Option<&'a str> {
    let spec = &pod.view.spec;
    (!spec.hostname.is_empty() && spec.subdomain == service.meta().name).then_some(&spec.hostname)
}

pub fn target(pod: Seen<'_, Pod>) -> TargetRef {
    let meta = pod.meta();
    TargetRef {
        kind: "Pod".to_owned(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..TargetRef::default()
    }
}

/// The port of a pod that a port of a Service leads to; none where no container has one of that name.
pub fn port_of(pod: Seen<'_, Pod>, port: &ServicePort) -> Option<i64> {
    let Some(name) = port.target_port.as_str() else {
        return Some(port.target_port.as_i64().filter(|number| *number != 0).unwrap_or(port.port));
    };
    let stays = |container: &&Container| container.restart_policy == "Always";
    let containers = pod.view.spec.containers.iter().chain(pod.view.spec.init_containers.iter().filter(stays));
    let is_meant =
        |protocol: &str| if protocol.is_empty() { port.protocol == "TCP" } else { protocol == port.protocol };
    let mut ports = containers.flat_map(|container| &container.ports);
    ports.find(|found| found.name == name && is_meant(&found.protocol)).map(|found| found.container_port)
}

/// An address as Endpoints have it.
pub fn address(pod: Seen<'_, Pod>, service: Seen<'_, Service>, ip: &str) -> Address {
    Address {
        ip: ip.to_owned(),
        hostname: hostname(pod, service).unwrap_or_default().to_owned(),
        node_name: Some(pod.spec.node_name.clone()),
        target_ref: Some(target(pod)),
    }
}

/// The labels of a Service that its addresses get too, with the mark of a Service that has no address itself.
pub fn labels(service: Seen<'_, Service>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::clone(&service.meta().labels);
    labels.remove(HEADLESS);
    if matches!(service.view.spec.cluster_ip.as_str(), "" | "None") {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

/// Since when Services and their pods are as they are, to tell which of them moved. It is lost at a restart, and then a
/// Service counts as just seen.
#[derive(Debug, Default)]
pub struct Triggers {
    services: HashMap<Key, Trigger>,
}

#[derive(Debug, Default)]
struct Trigger {
    service: Option<Time>,
    /// By name of the pod.
    pods: HashMap<Text, Time>,
}

impl Triggers {
    pub fn forget(&mut self, key: &Key) {
        self.services.remove(key);
    }

    /// The earliest of the changes since this was asked last.
    pub fn changed(&mut self, service: Seen<'_, Service>, pods: &[Seen<'_, Pod>]) -> Option<Time> {
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

/// The resources that all controllers of Services look at.
pub fn resources() -> Vec<holdfast_world::Resource> {
    vec![Service::resource().clone(), Pod::resource().clone()]
}
