//! Hints in endpoints: the zones or nodes whose clients should prefer the endpoint.

use super::ZONE;
use super::packing::{Packed, Slice};
use crate::subject::Subject;
use holdfast_core::schema::quantity;
use holdfast_world::views::Condition;
use holdfast_world::views::network::{Endpoint, Hints, ZoneHint};
use holdfast_world::views::{Node, Service};
use holdfast_world::{Change, Key, Keys, Object, PlannedEvent, Viewed, World};
use std::collections::{BTreeMap, BTreeSet};

const MODE: &str = "service.kubernetes.io/topology-mode";
const OLD_MODE: &str = "service.kubernetes.io/topology-aware-hints";
/// An index of the Services whose endpoints are allocated to zones, all under one value.
const SHARED: &str = "shared among zones";
const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const INSUFFICIENT: &str = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
/// By how many percent a zone's share of the processors may exceed its share of the endpoints.
const OVERLOAD_PERCENT: i128 = 20;

pub fn index(world: &mut World) {
    world.index::<Service>(SHARED, |object| if is_shared(object) { vec!["yes".into()] } else { Vec::new() });
}

fn is_shared(service: &Object) -> bool {
    let mode = service.meta.annotation(MODE).or(service.meta.annotation(OLD_MODE));
    matches!(mode, Some("Auto" | "auto"))
}

/// The maximum number of processors of a node, in billionths. No real node has as many.
const PROCESSORS_MAX: i128 = 1 << 60;

/// Adds all Services whose endpoints are allocated to zones if a node's zone or processors changed, because that may
/// change the shares of all zones.
pub fn concerned(world: &World, change: &Change, keys: &mut Keys) {
    let [before, after] = [change.before::<Node>(), change.after::<Node>()].map(|node| node.and_then(processors));
    if before != after {
        world.indexed::<Service>(SHARED, "yes").for_each(|service| keys.add(service.object.key()));
    }
}

/// The zone of a node and its processors in billionths; `None` for nodes that serve no endpoints.
fn processors(node: Viewed<'_, Node>) -> Option<(Option<String>, i128)> {
    let is_ready = Condition::is_true(&node.view.status.conditions, "Ready");
    if !is_ready || CONTROL_PLANE.iter().any(|label| node.meta().labels.contains_key(*label)) {
        return None;
    }
    let amount = node.view.status.allocatable.get("cpu").and_then(|text| quantity::nanos(text)).unwrap_or(0);
    // A node may report any capacity, so the amount is limited: the sum over all nodes must not overflow.
    Some((node.meta().label(ZONE).map(str::to_owned), amount.min(PROCESSORS_MAX)))
}

/// The Services, each with an address family, whose endpoints this controller has allocated to zones since it started.
pub type Sharing = BTreeSet<(Key, String)>;

/// Sets the hints of all endpoints of one address family of a Service. A slice in which only hints change is written,
/// too.
pub fn apply(
    world: &World,
    service: Viewed<'_, Service>,
    family: &str,
    packed: &mut Packed<'_>,
    sharing: &mut Sharing,
) -> Option<PlannedEvent> {
    let shared = (service.object.key(), family.to_owned());
    let mut note = None;
    let mut slices: Vec<&mut Slice<'_>> =
        packed.created.iter_mut().chain(&mut packed.updated).chain(&mut packed.unchanged).collect();
    let mut endpoints: Vec<&mut Endpoint> = slices.iter_mut().flat_map(|slice| &mut slice.endpoints).collect();
    let had_hints = endpoints.iter().any(|endpoint| endpoint.hints.is_some());
    if is_shared(service.object) {
        endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None);
        match share(world, &mut endpoints) {
            Ok(()) => {
                sharing.insert(shared);
                let message = format!("Topology Aware Hints has been enabled, addressType: {family}");
                note = (!had_hints).then(|| Subject::from(service).normal("TopologyAwareHintsEnabled", message));
            }
            Err(why) => {
                sharing.remove(&shared);
                endpoints.iter_mut().for_each(|endpoint| endpoint.hints = None);
                let message = format!("{why}, addressType: {family}");
                note = Some(Subject::from(service).warning("TopologyAwareHintsDisabled", message));
            }
        }
    } else {
        if sharing.remove(&shared) {
            let message = format!("Topology Aware Hints has been disabled, addressType: {family}");
            note = Some(Subject::from(service).warning("TopologyAwareHintsDisabled", message));
        }
        let preference = service.view.spec.traffic_distribution.as_deref();
        endpoints.iter_mut().for_each(|endpoint| endpoint.hints = endpoint_hints(preference, endpoint));
    }
    let is_stale = |slice: &Slice<'_>| slice.known.is_some_and(|known| known.endpoints != slice.endpoints);
    let (stale, unchanged): (Vec<_>, Vec<_>) = std::mem::take(&mut packed.unchanged).into_iter().partition(is_stale);
    packed.unchanged = unchanged;
    packed.updated.extend(stale);
    note
}

fn named(name: &Option<String>) -> Vec<ZoneHint> {
    name.iter().map(|name| ZoneHint { name: name.clone() }).collect()
}

/// The hints of an endpoint by the Service's `trafficDistribution`; `None` if the endpoint is not ready or the Service
/// has no such preference.
fn endpoint_hints(preference: Option<&str>, endpoint: &Endpoint) -> Option<Hints> {
    let hints = match preference.filter(|_| endpoint.conditions.ready == Some(true))? {
        "PreferClose" | "PreferSameZone" => Hints { for_zones: named(&endpoint.zone), for_nodes: Vec::new() },
        "PreferSameNode" => Hints { for_zones: named(&endpoint.zone), for_nodes: named(&endpoint.node_name) },
        _ => return None,
    };
    (hints != Hints::default()).then_some(hints)
}

/// Allocates the ready endpoints to zones, in proportion to the processors of the zones' nodes. A zone with too few
/// endpoints gets some endpoints of another zone.
fn share(world: &World, endpoints: &mut [&mut Endpoint]) -> Result<(), String> {
    let mut by_zone: BTreeMap<String, i128> = BTreeMap::new();
    for (zone, amount) in world.all::<Node>().filter_map(processors) {
        let Some(zone) = zone.filter(|_| amount > 0) else { return Err(INSUFFICIENT.into()) };
        *by_zone.entry(zone).or_default() += amount;
    }
    let is_ready = |endpoint: &&mut Endpoint| endpoint.conditions.ready != Some(false);
    let mut ready: Vec<&mut Endpoint> = endpoints.iter_mut().map(|endpoint| &mut **endpoint).filter(is_ready).collect();
    let (zones, count) = (by_zone.len(), ready.len());
    if zones < 2 {
        // If only one zone exists, the error has the message for nodes without a zone, as in Kubernetes.
        return Err(INSUFFICIENT.into());
    }
    if zones > count {
        return Err(format!("Insufficient number of endpoints ({count} endpoints, {zones} zones)"));
    }
    if ready.iter().any(|endpoint| endpoint.zone.is_none()) {
        return Err("One or more endpoints do not have a zone specified".into());
    }
    let total: i128 = by_zone.values().sum();
    // The minimum number of endpoints that a zone with `amount` of processors needs so that it is not overloaded.
    let least = |amount: i128| {
        let (share, parts) = (amount * count as i128 * 100, total * (100 + OVERLOAD_PERCENT));
        usize::try_from((share + parts - 1) / parts).unwrap_or(0)
    };
    let least: BTreeMap<String, usize> = by_zone.into_iter().map(|(zone, amount)| (zone, least(amount))).collect();
    if least.values().sum::<usize>() > count {
        return Err(format!(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold ({count} \
             endpoints, {zones} zones)"
        ));
    }
    let own = ready.iter().map(|endpoint| endpoint.zone.clone().filter(|zone| least.contains_key(zone)));
    let served = help_out(&least, own.collect());
    for (endpoint, zone) in ready.iter_mut().zip(served) {
        endpoint.hints = Some(Hints { for_zones: named(&zone), for_nodes: Vec::new() });
    }
    Ok(())
}

/// The zone that each endpoint serves: the zone that it is in, unless another zone lacks endpoints. The first endpoints
/// that are moved to such a zone are endpoints of zones without nodes, then endpoints of the zone with the largest
/// surplus.
fn help_out(least: &BTreeMap<String, usize>, own: Vec<Option<String>>) -> Vec<Option<String>> {
    let mut free = Vec::new();
    let mut served: BTreeMap<&str, Vec<usize>> = least.keys().map(|zone| (zone.as_str(), Vec::new())).collect();
    for (at, zone) in own.iter().enumerate() {
        match zone.as_deref().and_then(|zone| served.get_mut(zone)) {
            Some(endpoints) => endpoints.push(at),
            None => free.push(at),
        }
    }
    for (zone, needed) in least {
        while served[zone.as_str()].len() < *needed {
            let spare = |zone: &str, endpoints: &[usize]| endpoints.len().saturating_sub(least[zone]);
            let richest = served.iter().max_by_key(|(zone, endpoints)| spare(zone, endpoints)).map(|(zone, _)| *zone);
            let lent = free.pop().or_else(|| served.get_mut(richest?)?.pop());
            let (Some(at), Some(endpoints)) = (lent, served.get_mut(zone.as_str())) else { break };
            endpoints.push(at);
        }
    }
    for at in free {
        if let Some(fewest) = served.values_mut().min_by_key(|endpoints| endpoints.len()) {
            fewest.push(at);
        }
    }
    let mut zones = vec![None; own.len()];
    for (zone, endpoints) in served {
        endpoints.into_iter().for_each(|at| zones[at] = Some(zone.to_owned()));
    }
    zones
}
