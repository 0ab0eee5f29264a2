//! The controller of EndpointSlices, which list the endpoints of each Service. By default one EndpointSlice has at most
//! a hundred endpoints.

mod hints;
pub mod mirroring;
mod packing;

#[cfg(test)]
mod tests;

use crate::planted::{Bug, planted};
use crate::services::{self, Offer, PORTS_MAX, Triggers};
use crate::settings::Settings;
use crate::subject::Subject;
use holdfast_value::Value;
use holdfast_world::views::network::{Endpoint, EndpointConditions, EndpointPort};
use holdfast_world::views::{EndpointSlice, Node, Pod, Service};
use holdfast_world::{
    BackOff, Change, Controller, Key, Keys, Meta, Plan, PlannedEvent, Refused, Resource, Stamp, Text, Verb, View,
    Viewed, World,
};
use packing::{ByPorts, Packed, Packing, Slice};
use std::collections::BTreeSet;

const SERVICE: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";
/// The index of slices by their Service and the controller that manages the slices.
const SLICES: &str = "slices";
/// The index of pods by their node.
const NODES: &str = "nodes";

pub struct EndpointSlices {
    triggers: Triggers,
    sharing: hints::Sharing,
    /// Services that changed, or whose pods changed. An Event about endpoints that are not allocated to zones is
    /// repeated only for these Services: a plan after a change of a node, or after the write of a slice, would repeat
    /// the Event without need.
    due: BTreeSet<Key>,
    max: usize,
    batch_millis: i64,
}

impl EndpointSlices {
    pub fn new(settings: &Settings) -> EndpointSlices {
        let settings = &settings.services;
        EndpointSlices {
            triggers: Triggers::default(),
            sharing: hints::Sharing::default(),
            due: BTreeSet::new(),
            max: settings.endpoints_per_slice.clamp(1, 1000),
            batch_millis: settings.slices_batch_millis,
        }
    }
}

impl Controller for EndpointSlices {
    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    fn queue(&self) -> &'static str {
        "endpoint_slice"
    }

    fn component(&self) -> &'static str {
        "endpoint-slice-controller"
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 1_000, last_ms: 1_000_000 }
    }

    fn resources(&self) -> Vec<Resource> {
        let mut resources = services::resources();
        resources.extend([Node::resource().clone(), EndpointSlice::resource().clone()]);
        resources
    }

    fn indexes(&self, world: &mut World) {
        services::index(world);
        index_slices(world);
        hints::index(world);
        world.index::<Pod>(NODES, |object| match object.view::<Pod>() {
            Some(pod) if !pod.spec.node_name.is_empty() => vec![pod.spec.node_name.as_str().into()],
            _ => Vec::new(),
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Pod>() {
            let mut concerned = Keys::default();
            services::concerned(world, change, &mut concerned, self.batch_millis);
            self.due.extend(concerned.now.iter().chain(concerned.later.keys()).cloned());
            keys.now.append(&mut concerned.now);
            keys.later.append(&mut concerned.later);
        } else if change.is_of::<Service>() {
            self.due.insert(change.key.clone());
            keys.add(change.key.clone());
        } else if change.is_of::<EndpointSlice>() {
            add_services_of_slice(change, MANAGER, keys, self.batch_millis);
        } else {
            let zone = |object: &Meta| object.label(ZONE).map(str::to_owned);
            let zones = [&change.before, &change.after].map(|node| node.as_ref().map(|node| zone(&node.meta)));
            if zones[0] != zones[1] {
                world.indexed::<Pod>(NODES, &change.key.name).for_each(|pod| services::of_pod(world, pod, keys, 0));
            }
            hints::concerned(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let is_due = self.due.remove(key);
        let service = world.get::<Service>(key).filter(|service| service.selects_pods());
        let Some(service) = service else {
            // The garbage collector deletes the slices of a deleted Service. The slices of a Service that no longer
            // selects pods stay.
            self.triggers.forget(key);
            self.sharing.retain(|(of, _)| of != key);
            return Plan::default();
        };
        let pods = services::pods(world, service);
        let known = slices(world, key, MANAGER);
        let (mut plan, mut actions) = (Plan::default(), Vec::new());
        let trigger = self.triggers.changed(service, &pods);
        let families = families(service);
        let shown = pods.iter().copied().filter(|pod| services::is_shown(*pod, true));
        let offers = services::offers(service, shown).and_then(|offers| within_bounds(offers, self.max));
        let offers = match offers {
            Ok(offers) => offers,
            Err(why) => return Plan { events: fault_note(service, &[why]).into_iter().collect(), ..plan },
        };
        for family in &families {
            let (desired, faults) = endpoints(world, service, &offers, family);
            if plan.events.is_empty() {
                plan.events.extend(fault_note(service, &faults));
            }
            let packing = Packing {
                owner: Subject::from(service),
                address_type: family,
                labels: labels(service),
                annotations: None,
                trigger,
                max: self.max,
            };
            let of_family = known.iter().filter(|slice| slice.address_type == *family).copied().collect();
            let mut packed = packing.pack(of_family, desired);
            keep_one(&packing, &mut packed);
            let note = hints::apply(world, service, family, &mut packed, &mut self.sharing);
            let writes = packing.actions(packed);
            plan.events.extend(note.filter(|_| is_due || !writes.is_empty()));
            actions.extend(writes);
        }
        let foreign = known.iter().filter(|slice| !families.contains(&slice.address_type.as_str()));
        actions.extend(foreign.map(|slice| Subject::from(*slice).delete()));
        plan.together(actions);
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let Some(service) = world.get::<Service>(key) else { return Plan::default() };
        let is_expected = |refused: &&Refused| {
            let causes = &refused.refusal.causes;
            refused.refusal.is_stale() || causes.iter().any(|cause| cause == "NamespaceTerminating")
        };
        // The first refused write ends the rest of the plan for its address family, so one refusal for each family is
        // reported.
        let mut families = BTreeSet::new();
        let mut faults: Vec<String> = Vec::new();
        for Refused { action, refusal } in refused.iter().filter(|refused| !is_expected(refused)) {
            let (what, body) = match &action.verb {
                Verb::Create(body) => ("create".to_owned(), body),
                Verb::Update(body) => (format!("update {}", action.key.name), body),
                _ => (format!("delete {}", action.key.name), &Value::Null),
            };
            let fault = format!("failed to {what} EndpointSlice for Service {key}: {}", refusal.message);
            if (body.is_null() || families.insert(body["addressType"].to_string())) && !faults.contains(&fault) {
                faults.push(fault);
            }
        }
        Plan { events: fault_note(service, &faults).into_iter().collect(), ..Plan::default() }
    }
}

pub(crate) fn index_slices(world: &mut World) {
    world.index::<EndpointSlice>(SLICES, |object| match (object.meta.label(MANAGED_BY), object.meta.label(SERVICE)) {
        (Some(manager), Some(service)) => vec![slices_place(manager, &object.meta.namespace, service)],
        _ => Vec::new(),
    });
}

fn slices_place(manager: &str, namespace: &str, service: &str) -> Text {
    format!("{manager}/{namespace}/{service}").into()
}

/// The slices of a Service that one controller manages.
fn slices<'w>(world: &'w World, service: &Key, manager: &str) -> Vec<Viewed<'w, EndpointSlice>> {
    let place = slices_place(manager, &service.namespace, &service.name);
    world.indexed(SLICES, &place).filter(|slice: &Viewed<'_, EndpointSlice>| !slice.meta().is_deleting()).collect()
}

/// Adds the Services to which a slice belonged before a change and belongs after it.
fn add_services_of_slice(change: &Change, manager: &str, keys: &mut Keys, batch_millis: i64) {
    for object in [&change.before, &change.after].into_iter().flatten() {
        if let (Some(manages), Some(service)) = (object.meta.label(MANAGED_BY), object.meta.label(SERVICE))
            && manages == manager
        {
            keys.add_after(Key::new(&change.key.namespace, service), batch_millis);
        }
    }
}

fn fault_note(service: Viewed<'_, Service>, faults: &[String]) -> Option<PlannedEvent> {
    let (meta, first) = (service.meta(), faults.first()?);
    let all = if faults.len() == 1 { first.clone() } else { format!("[{}]", faults.join(", ")) };
    let message = format!("Error updating Endpoint Slices for Service {}/{}: {all}", meta.namespace, meta.name);
    Some(Subject::from(service).warning("FailedToUpdateEndpointSlices", message))
}

/// The families in which a Service has addresses.
fn families(service: Viewed<'_, Service>) -> Vec<&'static str> {
    let spec = &service.view.spec;
    let known = ["IPv4", "IPv6"];
    let named: Vec<_> =
        known.into_iter().filter(|known| spec.ip_families.iter().any(|family| family == known)).collect();
    match named.is_empty() {
        false => named,
        true if service.is_headless() => known.to_vec(),
        true => vec![if spec.cluster_ip.contains(':') { "IPv6" } else { "IPv4" }],
    }
}

fn labels(service: Viewed<'_, Service>) -> std::collections::BTreeMap<String, String> {
    let mut labels = services::labels(service);
    labels.insert(SERVICE.to_owned(), service.meta().name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// The groups of pods, unless their slices would list too many ports in total: each slice lists all ports of its
/// endpoints.
fn within_bounds(offers: Vec<Offer<'_>>, max: usize) -> Result<Vec<Offer<'_>>, String> {
    let told = offers.iter().map(|offer| offer.ports.len().saturating_mul(offer.pods.len().div_ceil(max)));
    match told.fold(0usize, usize::saturating_add) {
        0..=PORTS_MAX => Ok(offers),
        _ => Err(format!("its slices would have more than {PORTS_MAX} ports")),
    }
}

/// The endpoints of one address family by their ports, and the reasons why pods have no endpoint.
fn endpoints(
    world: &World,
    service: Viewed<'_, Service>,
    offers: &[Offer<'_>],
    family: &str,
) -> (ByPorts, Vec<String>) {
    let (mut desired, mut faults) = (ByPorts::new(), Vec::new());
    for offer in offers {
        let mut of_ports = Vec::new();
        for pod in &offer.pods {
            let name = &pod.spec.node_name;
            let node = world.get::<Node>(&Key::cluster(name));
            if node.is_none() && !service.spec.publish_not_ready_addresses {
                let (meta, pod) = (service.meta(), &pod.meta().name);
                let fault =
                    format!("skipping Pod {pod} for Service {}/{}: Node {name} Not Found", meta.namespace, meta.name);
                faults.push(fault);
                continue;
            }
            let endpoint = endpoint(service, *pod, node, family);
            if !endpoint.addresses.is_empty() {
                of_ports.push(endpoint);
            }
        }
        desired.entry(ports(service, offer)).or_default().append(&mut of_ports);
    }
    (desired, faults)
}

/// The ports that the pods of a group offer, in the form of EndpointSlices.
fn ports(service: Viewed<'_, Service>, offer: &Offer<'_>) -> Vec<EndpointPort> {
    let told = offer.ports.iter().map(|(place, number)| {
        let port = &service.view.spec.ports[*place];
        EndpointPort {
            name: Some(port.name.clone()),
            protocol: Some(port.protocol.clone()),
            port: Some(*number),
            app_protocol: port.app_protocol.clone(),
        }
    });
    told.collect()
}

fn endpoint(
    service: Viewed<'_, Service>,
    pod: Viewed<'_, Pod>,
    node: Option<Viewed<'_, Node>>,
    family: &str,
) -> Endpoint {
    let (serving, terminating) = (pod.is_ready(), pod.meta().is_deleting());
    let serves = serving || planted(Bug::LeadsToUnready);
    let ready = service.spec.publish_not_ready_addresses || serves && !terminating;
    let zone = node.and_then(|node| node.meta().label(ZONE)).filter(|zone| !zone.is_empty());
    Endpoint {
        addresses: services::addresses(pod, family == "IPv6").map(str::to_owned).collect(),
        conditions: EndpointConditions { ready: Some(ready), serving: Some(serving), terminating: Some(terminating) },
        hostname: services::hostname(pod, service).map(str::to_owned),
        target_ref: Some(services::target(pod)),
        node_name: Some(pod.spec.node_name.clone()).filter(|name| !name.is_empty()),
        zone: zone.map(str::to_owned),
        hints: None,
    }
}

/// Ensures that each family has at least one slice, even if the Service has no endpoints.
fn keep_one(packing: &Packing<'_>, packed: &mut Packed<'_>) {
    if !packed.created.is_empty() || !packed.updated.is_empty() || !packed.unchanged.is_empty() {
        return;
    }
    let is_empty = |slice: &Viewed<'_, EndpointSlice>| {
        slice.endpoints.is_empty()
            && slice.ports.is_empty()
            && *slice.meta().labels == packing.labels
            && slice.meta().is_controlled_by(&packing.owner.object.meta.uid)
    };
    match packed.deleted[..] {
        [only] if is_empty(&only) => packed.deleted.clear(),
        _ => packed.created.push(Slice { known: None, ports: Vec::new(), endpoints: Vec::new() }),
    }
}
