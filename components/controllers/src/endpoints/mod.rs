//! The controller of Endpoints, which list the addresses of each Service in one object with the Service's name.

use crate::services::{self, TRIGGER, Triggers};
use crate::settings::Settings;
use crate::subject::Subject;
use holdfast_value::{Map, json};
use holdfast_world::views::network::{EndpointAddress, ServicePort, Subset, SubsetPort};
use holdfast_world::views::{Endpoints, Pod, Service};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Object, Plan, PlannedEvent, Refused, Resource, Stamp, Time, Verb, View,
    Viewed, World,
};
use std::collections::{BTreeMap, BTreeSet};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// How many addresses one Endpoints object has at most.
const ADDRESSES_MAX: usize = 1000;

#[derive(Default)]
pub struct EndpointsController {
    batch_millis: i64,
    triggers: Triggers,
    /// Deleted Services whose Endpoints are still to be deleted.
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

    fn queue(&self) -> &'static str {
        "endpoint"
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
        } else if change.after.is_none() {
            // Only the deletion of Endpoints causes a plan. Endpoints that another writer changes are overwritten only
            // when the Service or its pods change.
            keys.add(change.key.clone());
        }
    }

    fn begin(&mut self, world: &World, keys: &mut Keys) {
        // A Service may have been deleted while no controller ran, so Endpoints without a Service are planned at the
        // start.
        let managed = world.all::<Endpoints>().filter(|endpoints| is_managed(endpoints.object));
        let left = managed.map(|endpoints| endpoints.object.key()).filter(|key| world.get::<Service>(key).is_none());
        left.for_each(|key| keys.add(key));
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
        let subsets = match subsets(service, &pods) {
            Ok(subsets) => subsets,
            Err(why) => {
                let message = format!("Failed to update endpoint {key}: {why}");
                plan.events.push(Subject::from(service).warning("FailedToUpdateEndpoint", message));
                return plan;
            }
        };
        let trigger = self.triggers.changed(service, &pods);
        let (subsets, truncated) = truncate(subsets);
        plan.steps.extend(write(service, known, subsets, truncated, trigger).map(|action| vec![action]));
        plan
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let is_expected = |refused: &&Refused| {
            let causes = &refused.refusal.causes;
            refused.refusal.is_stale() || causes.iter().any(|cause| cause == "NamespaceTerminating")
        };
        let note = |Refused { action, refusal }: &Refused| {
            let (reason, what) = match action.verb {
                Verb::Create(_) => ("FailedToCreateEndpoint", format!("create endpoint for service {key}")),
                Verb::Update(_) => ("FailedToUpdateEndpoint", format!("update endpoint {key}")),
                _ => return None,
            };
            let (resource, known) = (Endpoints::resource().clone(), world.get::<Endpoints>(key));
            let meta = known.map(|known| (known.meta().uid.as_str(), known.meta().resource_version.as_str()));
            let (uid, version) = meta.unwrap_or_default();
            let (uid, version, message) =
                (uid.into(), version.into(), format!("Failed to {what}: {}", refusal.message));
            let (key, warning, part, host) = (key.clone(), true, String::new(), String::new());
            Some(PlannedEvent { resource, key, uid, version, warning, reason, message, part, host })
        };
        let told = refused.iter().filter(|refused| !is_expected(refused));
        Plan { events: told.filter_map(note).collect(), ..Plan::default() }
    }
}

impl EndpointsController {
    /// Deletes the Endpoints of a deleted Service. Endpoints that never had a Service stay.
    fn clean_up(&mut self, key: &Key, known: Option<Viewed<'_, Endpoints>>) -> Plan {
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

/// The subsets of a Service's Endpoints: addresses of pods that serve the same ports. The error names the limit that
/// the Service and its pods exceed.
fn subsets(service: Viewed<'_, Service>, pods: &[Viewed<'_, Pod>]) -> Result<Vec<Subset>, String> {
    let spec = &service.view.spec;
    let ipv6 = match spec.ip_families.first() {
        Some(family) => family == "IPv6",
        None => spec.cluster_ip.contains(':'),
    };
    let has_address = |pod: &Viewed<'_, Pod>| services::addresses(*pod, ipv6).next().is_some();
    let shown = pods.iter().copied().filter(|pod| services::is_shown(*pod, spec.publish_not_ready_addresses));
    let mut told = Vec::new();
    for offer in services::offers(service, shown.filter(has_address))? {
        if offer.ports.is_empty() && !(spec.ports.is_empty() && service.is_headless()) {
            continue;
        }
        let ports = offer.ports.iter().map(|(place, number)| {
            let ServicePort { name, protocol, app_protocol, .. } = &spec.ports[*place];
            let (name, protocol, app_protocol) = (name.clone(), protocol.clone(), app_protocol.clone());
            SubsetPort { name, port: *number, protocol, app_protocol }
        });
        let mut subset = Subset { ports: ports.collect(), ..Subset::default() };
        for pod in &offer.pods {
            let Some(ip) = services::addresses(*pod, ipv6).next() else { continue };
            let is_ready = spec.publish_not_ready_addresses || pod.is_ready();
            let side = if is_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
            side.push(services::address(*pod, service, ip));
        }
        told.push(subset);
    }
    Ok(repacked(&told))
}

/// An address with the uid of its pod or other object. If two objects have the same address, the Endpoints list both.
type AddressId<'a> = (&'a str, &'a str);

fn address_id(address: &EndpointAddress) -> AddressId<'_> {
    (address.ip.as_str(), address.target_ref.as_ref().map_or("", |target| &target.uid))
}

/// Combines subsets into their canonical form: for each port an address is listed once, and it is not ready if any
/// subset lists it as not ready. Ports with exactly the same addresses are in one subset.
pub fn repacked(subsets: &[Subset]) -> Vec<Subset> {
    let mut addresses: BTreeMap<AddressId<'_>, &EndpointAddress> = BTreeMap::new();
    // The subsets that offer each port. Ports that the same subsets offer are grouped, so that addresses are read once
    // for each group.
    let mut by_port: BTreeMap<Option<&SubsetPort>, Vec<usize>> = BTreeMap::new();
    for (number, subset) in subsets.iter().enumerate() {
        for address in subset.addresses.iter().chain(&subset.not_ready_addresses) {
            addresses.entry(address_id(address)).or_insert(address);
        }
        let none = subset.ports.is_empty().then_some(None);
        for port in subset.ports.iter().map(Some).chain(none) {
            let offering = by_port.entry(port).or_default();
            if offering.last() != Some(&number) {
                offering.push(number);
            }
        }
    }
    let mut by_subsets: BTreeMap<Vec<usize>, Vec<Option<&SubsetPort>>> = BTreeMap::new();
    for (port, offering) in by_port {
        by_subsets.entry(offering).or_default().push(port);
    }
    let mut by_addresses: BTreeMap<BTreeMap<AddressId<'_>, bool>, Vec<Option<&SubsetPort>>> = BTreeMap::new();
    for (offering, mut ports) in by_subsets {
        let mut offered: BTreeMap<AddressId<'_>, bool> = BTreeMap::new();
        for subset in offering.into_iter().map(|number| &subsets[number]) {
            let ready = subset.addresses.iter().map(|address| (address, true));
            for (address, is_ready) in ready.chain(subset.not_ready_addresses.iter().map(|address| (address, false))) {
                *offered.entry(address_id(address)).or_insert(is_ready) &= is_ready;
            }
        }
        if !offered.is_empty() {
            by_addresses.entry(offered).or_default().append(&mut ports);
        }
    }
    let subset = |(places, mut ports): (BTreeMap<AddressId<'_>, bool>, Vec<Option<&SubsetPort>>)| {
        let (ready, waiting): (Vec<_>, Vec<_>) = places.iter().partition(|(_, is_ready)| **is_ready);
        let whole =
            |places: Vec<(&AddressId<'_>, &bool)>| places.iter().map(|(place, _)| addresses[*place].clone()).collect();
        ports.sort();
        let ports = ports.into_iter().flatten().cloned().collect();
        Subset { addresses: whole(ready), not_ready_addresses: whole(waiting), ports }
    };
    by_addresses.into_iter().map(subset).collect()
}

/// Removes addresses until all subsets together have at most [`ADDRESSES_MAX`]: first addresses that are not ready, and
/// from each subset in proportion. Returns whether any address was removed.
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
    service: Viewed<'_, Service>,
    known: Option<Viewed<'_, Endpoints>>,
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

pub fn set(annotations: &mut Map, name: &str, text: Option<String>) {
    match text {
        Some(text) => annotations.insert(name.to_owned(), text.into()),
        None => annotations.remove(name),
    };
}

#[cfg(test)]
mod tests;
