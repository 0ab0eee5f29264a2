//! Endpoints: the addresses behind each Service, in one object of its name.

use crate::services::{self, TRIGGER, Triggers};
use crate::settings::Settings;
use crate::subject::Subject;
use holdfast_world::views::network::{Address, Subset, SubsetPort};
use holdfast_world::views::{Endpoints, Pod, Service};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Object, Plan, Refused, Resource, Seen, Stamp, Time, Verb, View, World,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses that one object holds.
const ADDRESSES_MAX: usize = 1000;

#[derive(Default)]
pub struct EndpointsController {
    batch_millis: i64,
    triggers: Triggers,
    /// Services that are gone, until their Endpoints are too.
    gone: BTreeSet<Key>,
}

impl EndpointsController {
    pub fn new(settings: &Settings) -> EndpointsController {
        EndpointsController { batch_millis: settings.services.endpoints_batch_millis, ..EndpointsController::default() }
    }
}

impl Controller for EndpointsController {
    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    fn account(&self) -> &'static str {
        "endpoint-controller"
    }

    fn component(&self) -> &'static str {
        "endpoint-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        let mut resources = services::resources();
        resources.push(Endpoints::resource().clone());
        resources
    }

    fn indexes(&self, world: &mut World) {
        services::index(world);
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Pod>() {
            return services::concerned(world, change, keys, self.batch_millis);
        }
        if change.is_of::<Service>() {
            match change.after {
                Some(_) => self.gone.remove(&change.key),
                None => self.gone.insert(change.key.clone()),
            };
            keys.add(change.key.clone());
        } else if change.after.as_ref().is_none_or(|object| is_managed(object)) {
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let known = world.get::<Endpoints>(key);
        let Some(service) = world.get::<Service>(key) else { return self.clean_up(key, known) };
        if !service.selects_pods() {
            self.triggers.forget(key);
            return Plan::default();
        }
        let pods = services::pods(world, service);
        let mut plan = Plan::default();
        let subsets = subsets(service, &pods);
        let trigger = self.triggers.changed(service, &pods);
        let (subsets, truncated) = truncate(subsets);
        plan.steps.extend(write(service, known, subsets, truncated, trigger).map(|action| vec![action]));
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let told = refused.iter().filter(|refused| !refused.refusal.is_stale());
        let note = |Refused { action, refusal }: &Refused| {
            // Of Endpoints that could not be made there is nothing to tell it of.
            let Verb::Update(_) = action.verb else { return None };
            let known = world.get::<Endpoints>(key);
            let message = format!("Failed to update endpoint {key}: {}", refusal.message);
            Some(Subject::from(known?).warning("FailedToUpdateEndpoint", message))
        };
        Plan { notes: told.filter_map(note).collect(), ..Plan::default() }
    }
}

impl EndpointsController {
    /// Of a Service that is gone nothing stays. Endpoints that never had one are none of our business.
    fn clean_up(&mut self, key: &Key, known: Option<Seen<'_, Endpoints>>) -> Plan {
        let mut plan = Plan::default();
        self.triggers.forget(key);
        match known {
            Some(known) if self.gone.contains(key) || is_managed(known.object) => {
                plan.then(Subject::from(known).delete());
            }
            _ => _ = self.gone.remove(key),
        }
        plan
    }
}

fn is_managed(object: &Object) -> bool {
    object.meta.label(MANAGED_BY) == Some(MANAGER)
}

/// The addresses of the pods behind a Service, those that offer the same ports together.
fn subsets(service: Seen<'_, Service>, pods: &[Seen<'_, Pod>]) -> Vec<Subset> {
    let spec = &service.view.spec;
    let ipv6 = match spec.ip_families.first() {
        Some(family) => family == "IPv6",
        None => spec.cluster_ip.contains(':'),
    };
    // Each address with whether it is ready, and the ports that it offers.
    let mut offers: BTreeMap<(Address, bool), BTreeSet<Option<SubsetPort>>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| services::is_shown(**pod, spec.publish_not_ready_addresses)) {
        let Some(ip) = services::addresses(*pod, ipv6).next() else { continue };
        let is_ready = spec.publish_not_ready_addresses || pod.is_ready();
        let address = (services::address(*pod, service, ip), is_ready);
        if spec.ports.is_empty() && service.is_headless() {
            offers.entry(address.clone()).or_default().insert(None);
        }
        for port in &spec.ports {
            let Some(number) = services::port_of(*pod, port) else { continue };
            offers.entry(address.clone()).or_default().insert(Some(SubsetPort {
                name: port.name.clone(),
                port: number,
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol.clone(),
            }));
        }
    }
    let mut by_ports: BTreeMap<Vec<Option<SubsetPort>>, Subset> = BTreeMap::new();
    for ((address, is_ready), ports) in offers {
        let subset = by_ports.entry(ports.into_iter().collect()).or_default();
        if is_ready { subset.addresses.push(address) } else { subset.not_ready_addresses.push(address) }
    }
    let with_ports = |(ports, subset): (Vec<Option<SubsetPort>>, Subset)| Subset {
        ports: ports.into_iter().flatten().collect(),
        ..subset
    };
    by_ports.into_iter().map(with_ports).collect()
}

/// Cuts subsets, each by its share, until they hold no more than one object may: first what is not ready. Answers whether
/// something was cut.
fn truncate(mut subsets: Vec<Subset>) -> (Vec<Subset>, bool) {
    let ready: usize = subsets.iter().map(|subset| subset.addresses.len()).sum();
    let waiting: usize = subsets.iter().map(|subset| subset.not_ready_addresses.len()).sum();
    if ready + waiting <= ADDRESSES_MAX {
        return (subsets, false);
    }
    let cuts_ready = ready > ADDRESSES_MAX;
    let (total, space) = if cuts_ready { (ready, ADDRESSES_MAX) } else { (waiting, ADDRESSES_MAX - ready) };
    let mut left = space;
    for subset in &mut subsets {
        let addresses = if cuts_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        addresses.truncate((addresses.len() * space).div_ceil(total).min(left));
        left -= addresses.len();
        if cuts_ready {
            subset.not_ready_addresses.clear();
        }
    }
    (subsets, true)
}

fn write(
    service: Seen<'_, Service>,
    known: Option<Seen<'_, Endpoints>>,
    subsets: Vec<Subset>,
    truncated: bool,
    trigger: Option<Time>,
) -> Option<Action> {
    let mut labels = services::labels(service);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let is_marked = known.is_some_and(|known| known.meta().annotation(OVER_CAPACITY).is_some());
    if known.is_some_and(|known| known.subsets == subsets && *known.meta().labels == labels && is_marked == truncated) {
        return None;
    }
    let mut document = match known {
        Some(known) => known.object.document(),
        None => json!({"apiVersion": "v1", "kind": "Endpoints",
            "metadata": {"name": service.meta().name, "namespace": service.meta().namespace}}),
    };
    document["subsets"] = json!(subsets);
    document["metadata"]["labels"] = json!(labels);
    let mut annotations = document["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    set(&mut annotations, TRIGGER, trigger.map(|time| time.to_string()));
    set(&mut annotations, OVER_CAPACITY, truncated.then(|| "truncated".to_owned()));
    document["metadata"]["annotations"] = annotations.into();
    let verb = if known.is_some() { Verb::Update(document) } else { Verb::Create(document) };
    Some(Action::new(Endpoints::resource(), service.object.key(), verb))
}

pub fn set(annotations: &mut Map<String, Value>, name: &str, text: Option<String>) {
    match text {
        Some(text) => annotations.insert(name.to_owned(), text.into()),
        None => annotations.remove(name),
    };
}

#[cfg(test)]
mod tests;
