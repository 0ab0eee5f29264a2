//! Copies Endpoints that users write into EndpointSlices, for clients that read only EndpointSlices.

use super::packing::{ByPorts, Packing, sorted};
use super::{MANAGED_BY, SERVICE, add_services_of_slice, index_slices, slices};
use crate::endpoints::repacked;
use crate::services::TRIGGER;
use crate::settings::Settings;
use crate::subject::Subject;
use holdfast_world::views::network::{Endpoint, EndpointAddress, EndpointConditions, EndpointPort, Subset};
use holdfast_world::views::{EndpointSlice, Endpoints, Service};
use holdfast_world::{
    BackOff, Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, View, Viewed, World,
};
use std::collections::{BTreeMap, BTreeSet};

const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub struct Mirroring {
    /// How many addresses of one subset are copied at most.
    max: usize,
    batch_millis: i64,
    /// For each Endpoints object, the version for which an Event has reported addresses that are not copied. Each
    /// version causes at most one such Event.
    reported: BTreeMap<Key, String>,
}

impl Mirroring {
    pub fn new(settings: &Settings) -> Mirroring {
        let settings = &settings.services;
        Mirroring {
            max: settings.mirrored_per_subset,
            batch_millis: settings.mirrored_batch_millis,
            reported: BTreeMap::new(),
        }
    }
}

impl Controller for Mirroring {
    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    fn queue(&self) -> &'static str {
        "endpoint_slice_mirroring"
    }

    fn account(&self) -> &'static str {
        "endpointslicemirroring-controller"
    }

    fn component(&self) -> &'static str {
        "endpoint-slice-mirroring-controller"
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 1_000, last_ms: 100_000 }
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Endpoints::resource().clone(), Service::resource().clone(), EndpointSlice::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        index_slices(world);
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<EndpointSlice>() {
            add_services_of_slice(change, MANAGER, keys, self.batch_millis);
        } else {
            keys.add_after(change.key.clone(), self.batch_millis);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let known = slices(world, key, MANAGER);
        let service = world.get::<Service>(key).filter(|service| service.spec.selector.is_nothing());
        let Some(endpoints) = world.get::<Endpoints>(key).filter(|found| service.is_some() && is_mirrored(*found))
        else {
            plan.together(known.into_iter().map(|slice| Subject::from(slice).delete()).collect());
            self.reported.remove(key);
            return plan;
        };
        let owner = Subject::from(endpoints);
        let mut labels = BTreeMap::clone(&endpoints.meta().labels);
        let mut annotations = BTreeMap::clone(&endpoints.meta().annotations);
        labels.insert(SERVICE.to_owned(), endpoints.meta().name.clone());
        labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
        // The annotation with the time of the last change describes the Endpoints object, so the slices do not get it.
        annotations.remove(TRIGGER);
        annotations.remove(LAST_APPLIED);
        let mut mirrored = Mirrored::default();
        repacked(&endpoints.subsets).iter().for_each(|subset| mirrored.add(subset, self.max));
        let mut actions = Vec::new();
        for (address_type, desired) in [("IPv4", mirrored.ipv4), ("IPv6", mirrored.ipv6)] {
            let packing = Packing {
                owner,
                address_type,
                labels: labels.clone(),
                annotations: Some(annotations.clone()),
                trigger: None,
                max: self.max,
            };
            let of_type = known.iter().filter(|slice| slice.address_type == address_type).copied();
            let (kept, surplus) = first_of_ports(of_type);
            let mut packed = packing.pack(kept, desired);
            packed.deleted.extend(surplus);
            actions.extend(packing.actions(packed));
        }
        plan.together(actions);
        let notes = notes(owner, mirrored.invalid, mirrored.surplus, self.max);
        let version = endpoints.meta().resource_version.to_string();
        if !notes.is_empty() && self.reported.insert(key.clone(), version.clone()) != Some(version) {
            plan.events = notes;
        }
        plan
    }
}

fn is_mirrored(endpoints: Viewed<'_, Endpoints>) -> bool {
    let meta = endpoints.meta();
    meta.label(SKIP) != Some("true") && meta.annotation(LEADER).is_none()
}

/// Splits slices into one slice for each set of ports, and all remaining slices. A subset never needs more than one
/// slice.
fn first_of_ports<'w>(
    slices: impl Iterator<Item = Viewed<'w, EndpointSlice>>,
) -> (Vec<Viewed<'w, EndpointSlice>>, Vec<Viewed<'w, EndpointSlice>>) {
    let mut known = BTreeSet::new();
    slices.partition(|slice| known.insert(sorted(slice.ports.clone())))
}

/// The endpoints to be copied, by address family, and the numbers of addresses that are not copied.
#[derive(Default)]
struct Mirrored {
    ipv4: ByPorts,
    ipv6: ByPorts,
    /// The number of addresses that are no IP addresses.
    invalid: usize,
    /// The number of addresses that exceed the limit of their subset.
    surplus: usize,
}

impl Mirrored {
    fn add(&mut self, subset: &Subset, max: usize) {
        let ports: Vec<EndpointPort> = subset
            .ports
            .iter()
            .map(|port| EndpointPort {
                name: Some(port.name.clone()),
                protocol: Some(port.protocol.clone()),
                port: Some(port.port),
                app_protocol: port.app_protocol.clone(),
            })
            .collect();
        let ready = subset.addresses.iter().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().map(|address| (address, false)));
        let mut count = 0;
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for (address, ready) in all {
            if count >= max {
                self.surplus += 1;
                continue;
            }
            match address.ip.parse::<std::net::IpAddr>() {
                Ok(ip) if ip.is_ipv4() => ipv4.push(endpoint(address, ready)),
                Ok(_) => ipv6.push(endpoint(address, ready)),
                Err(_) => {
                    self.invalid += 1;
                    continue;
                }
            }
            count += 1;
        }
        for (family, mut endpoints) in [(&mut self.ipv4, ipv4), (&mut self.ipv6, ipv6)] {
            if !endpoints.is_empty() {
                family.entry(ports.clone()).or_default().append(&mut endpoints);
            }
        }
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: EndpointConditions { ready: Some(ready), ..EndpointConditions::default() },
        hostname: Some(address.hostname.clone()).filter(|name| !name.is_empty()),
        target_ref: address.target_ref.clone(),
        node_name: address.node_name.clone(),
        ..Endpoint::default()
    }
}

fn notes(owner: Subject<'_>, invalid: usize, surplus: usize, max: usize) -> Vec<PlannedEvent> {
    let mut notes = Vec::new();
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        notes.push(owner.warning("InvalidIPAddress", message));
    }
    if surplus > 0 {
        let skipped = invalid + surplus;
        let message = format!(
            "A max of {max} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses \
             were skipped"
        );
        notes.push(owner.warning("TooManyAddressesToMirror", message));
    }
    notes
}
