//! Creates and deletes the cloud's routes. Each pod CIDR of a node has one route, which leads to that node.
//!
//! All routes are planned under one key. The controller asks the cloud for the list of routes every
//! `--route-reconciliation-period`, and when pod CIDRs of nodes change. Missing routes are created, and routes without
//! a node are deleted, a limited number at once. Only routes of this cluster within its CIDRs are ever deleted.

use crate::planted::{Bug, planted};
use crate::{NAMESPACES, Settings, cluster, names};
use holdfast_controllers::addresses::Range;
use holdfast_controllers::subject::Subject;
use holdfast_value::json;
use holdfast_world::cloud::{CloudAnswer, CloudCall, ClusterRef, Fault, Route};
use holdfast_world::views::Condition;
use holdfast_world::views::Node;
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, Time, View, Viewed, World,
};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of calls and patches in progress at once.
const CALLS_MAX: usize = 200;
/// How long the plan waits for further changes after a change of a node, in milliseconds.
const NODES_MILLIS: i64 = 100;
const CONDITION: &str = "NetworkUnavailable";
/// The maximum number of messages that are remembered so that they are not reported again.
const TOLD_MAX: usize = 1_024;

/// The controller of routes. It plans all routes under one key.
pub struct Routes {
    settings: Settings,
    ranges: Vec<Range>,
    /// The last list of the cloud's routes, updated by the changes that were made since.
    listed: Option<Listed>,
    /// Whether nodes have changed since the last list.
    is_stale: bool,
    /// Routes that could not be created or deleted since the last list, each with the reason. They are retried after
    /// the next list.
    failed: BTreeMap<(String, String), Failed>,
    /// Why the last list failed; `None` if it succeeded.
    fault: Option<Fault>,
    /// The messages that Events have already reported.
    told: BTreeSet<String>,
}

struct Listed {
    at: Time,
    routes: BTreeSet<Route>,
}

struct Failed {
    message: String,
    is_told: bool,
}

/// A pod CIDR of a node, for which the cloud should have a route.
struct WantedRoute<'a> {
    node: Viewed<'a, Node>,
    text: &'a str,
    /// Why no route can be made; `None` if a route can be made.
    lacks: Option<String>,
}

impl Routes {
    pub fn new(settings: &Settings) -> Routes {
        Routes {
            ranges: settings.cluster_ranges.iter().filter_map(|range| Range::parse(range)).collect(),
            settings: settings.clone(),
            listed: None,
            is_stale: false,
            failed: BTreeMap::new(),
            fault: None,
            told: BTreeSet::new(),
        }
    }

    fn key() -> Key {
        Key::cluster("routes")
    }
}

impl Controller for Routes {
    fn name(&self) -> &'static str {
        names::ROUTE
    }

    fn account(&self) -> &'static str {
        "route-controller"
    }

    fn component(&self) -> &'static str {
        "route_controller"
    }

    fn manager(&self) -> &'static str {
        self.name()
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone(), NAMESPACES.clone()]
    }

    fn begin(&mut self, _: &World, keys: &mut Keys) {
        keys.add(Routes::key());
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if !change.is_of::<Node>() {
            if &*change.key.name == "kube-system" {
                keys.add(Routes::key());
            }
            return;
        }
        let matters = |node: Option<Viewed<'_, Node>>| {
            let node = node.map(|node| (node.meta().uid.clone(), node.view.spec.pod_cidrs.clone(), state(node)));
            node.unwrap_or_default()
        };
        let (before, after) = (matters(change.before()), matters(change.after()));
        if before != after {
            self.is_stale |= (&before.0, &before.1) != (&after.0, &after.1);
            keys.add_after(Routes::key(), NODES_MILLIS);
        }
    }

    fn plan(&mut self, world: &World, _: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(cluster) = cluster(world, &self.settings) else { return plan };
        let is_due = |listed: &Listed| stamp.time >= listed.at.plus_millis(self.settings.routes_millis);
        if let Some(fault) = self.fault.take() {
            plan.skipped.push(format!("routes cannot be listed: {fault}"));
            plan.events.extend(
                self.list_failure_event(world, &format!("Error listing routes of cluster {}: {fault}", cluster.name)),
            );
            plan.requeue_at(stamp.time.plus_millis(self.settings.routes_millis));
            return plan;
        }
        if self.listed.as_ref().is_none_or(is_due) || self.is_stale {
            plan.calls.push(CloudCall::Routes { cluster });
            return plan;
        }
        let Some(listed) = &self.listed else { return plan };
        plan.requeue_at(listed.at.plus_millis(self.settings.routes_millis));
        let wanted = wanted(world, &self.ranges);
        let own = |route: &&Route| route.cluster == cluster;
        let there: BTreeSet<(&str, &str)> =
            listed.routes.iter().filter(own).filter(|route| !route.blackhole).map(pair).collect();
        let pairs: BTreeSet<(&str, &str)> = wanted
            .iter()
            .filter(|want| want.lacks.is_none())
            .map(|want| (want.node.object.meta.name.as_str(), want.text))
            .collect();
        let failed = |node: &str, range: &str| self.failed.contains_key(&(node.to_owned(), range.to_owned()));
        let unwanted = listed.routes.iter().filter(own).filter(|route| {
            let within =
                Range::parse(&route.destination).is_some_and(|range| self.ranges.iter().any(|own| own.covers(&range)));
            within && (route.blackhole || !pairs.contains(&pair(route))) && !failed(&route.node, &route.destination)
        });
        let delete: Vec<CloudCall> = match planted(Bug::RoutesStay) {
            true => Vec::new(),
            false => unwanted
                .map(|route| CloudCall::DeleteRoute { cluster: cluster.clone(), route: route.clone() })
                .take(CALLS_MAX)
                .collect(),
        };
        if !delete.is_empty() {
            // Routes are deleted before routes are created, because a CIDR of a deleted route may belong to another
            // node now.
            plan.calls = delete;
            return plan;
        }
        let missing = wanted.iter().filter(|want| {
            let name = want.node.object.meta.name.as_str();
            want.lacks.is_none() && !there.contains(&(name, want.text)) && !failed(name, want.text)
        });
        plan.calls = missing.map(|want| creation(&cluster, want, stamp)).take(CALLS_MAX).collect();
        if plan.calls.is_empty() {
            let patches = conditions(world, &wanted, &there, stamp.time);
            patches.chunks(CALLS_MAX).for_each(|patches| plan.together(patches.to_vec()));
            plan.events.extend(self.failures(&wanted));
        }
        plan
    }

    fn called(&mut self, _: &Key, call: &CloudCall, answer: Result<CloudAnswer, Fault>, now: Time) {
        match (call, answer) {
            (CloudCall::Routes { .. }, Ok(CloudAnswer::Routes(routes))) => {
                self.listed = Some(Listed { at: now, routes: routes.into_iter().collect() });
                self.is_stale = false;
                self.failed.clear();
            }
            (CloudCall::Routes { .. }, Err(fault)) => self.fault = Some(fault),
            (CloudCall::CreateRoute { route, .. }, Ok(_)) => {
                self.listed.iter_mut().for_each(|listed| _ = listed.routes.insert(route.clone()));
            }
            (CloudCall::DeleteRoute { route, .. }, Ok(_)) => {
                self.listed.iter_mut().for_each(|listed| _ = listed.routes.remove(route));
            }
            (CloudCall::CreateRoute { route, .. } | CloudCall::DeleteRoute { route, .. }, Err(fault)) => {
                let what = if matches!(call, CloudCall::CreateRoute { .. }) { "create" } else { "delete" };
                let Route { name, destination, node, .. } = route;
                let message = format!("Could not {what} route {name} {destination} for node {node}: {fault}");
                self.failed.insert((node.clone(), destination.clone()), Failed { message, is_told: false });
            }
            _ => {}
        }
    }
}

impl Routes {
    /// The Events about routes that could not be created or deleted. A route gets one Event for each new reason.
    fn failures(&mut self, wanted: &[WantedRoute<'_>]) -> Vec<PlannedEvent> {
        let mut notes = Vec::new();
        for want in wanted {
            let name = &want.node.object.meta.name;
            let subject = Subject::from(want.node);
            if let Some(failed) = self.failed.get_mut(&(name.clone(), want.text.to_owned()))
                && !std::mem::replace(&mut failed.is_told, true)
            {
                notes.push(subject.warning("FailedToCreateRoute", failed.message.clone()));
            }
            if let Some(why) = &want.lacks {
                let message =
                    format!("Could not create route {} {} for node {name}: {why}", want.node.meta().uid, want.text);
                if self.told.len() < TOLD_MAX && self.told.insert(message.clone()) {
                    notes.push(subject.warning("FailedToCreateRoute", message));
                }
            }
        }
        notes
    }

    /// Reports a failed list of routes in an Event about the first node, because no object stands for all routes.
    fn list_failure_event(&mut self, world: &World, message: &str) -> Option<PlannedEvent> {
        let node = world.all::<Node>().next()?;
        let is_new = self.told.len() < TOLD_MAX && self.told.insert(message.to_owned());
        is_new.then(|| Subject::from(node).warning("FailedToListRoutes", message.to_owned()))
    }
}

fn pair(route: &Route) -> (&str, &str) {
    (&route.node, &route.destination)
}

fn creation(cluster: &ClusterRef, want: &WantedRoute<'_>, stamp: Stamp) -> CloudCall {
    let hint = &want.node.object.meta.uid;
    let name = if planted(Bug::RoutesTwice) { format!("{hint}-{}", stamp.seed) } else { hint.clone() };
    let mut cluster_of_route = cluster.clone();
    if planted(Bug::RoutesTwice) {
        cluster_of_route.uid.push('x');
    }
    let node = want.node.object.meta.name.clone();
    let route = Route { name, cluster: cluster_of_route, node, destination: want.text.to_owned(), blackhole: false };
    CloudCall::CreateRoute { cluster: cluster.clone(), route }
}

/// The pod CIDRs of all nodes. A CIDR that overlaps a CIDR of an older node gets no route, because the route's
/// destination would be ambiguous.
fn wanted<'a>(world: &'a World, ranges: &[Range]) -> Vec<WantedRoute<'a>> {
    let mut nodes: Vec<Viewed<'a, Node>> = world.all::<Node>().filter(|node| !node.meta().is_deleting()).collect();
    nodes.sort_by_key(|node| (node.meta().creation_timestamp, node.meta().name.as_str()));
    // The CIDRs that are taken so far do not overlap each other, so an overlapping CIDR is found by its first address.
    let mut taken: BTreeMap<Range, &str> = BTreeMap::new();
    let mut wanted = Vec::new();
    for node in nodes {
        for text in &node.view.spec.pod_cidrs {
            let lacks = match Range::parse(text) {
                None => Some(format!("{text:?} is not a range of addresses")),
                Some(range) if !ranges.is_empty() && !ranges.iter().any(|own| own.covers(&range)) => {
                    Some("it is outside of --cluster-cidr".to_owned())
                }
                Some(range) => match overlapping(&taken, range) {
                    Some(other) => Some(format!("it overlaps the range of node {other}")),
                    None => {
                        taken.insert(range, node.object.meta.name.as_str());
                        None
                    }
                },
            };
            wanted.push(WantedRoute { node, text, lacks });
        }
    }
    wanted
}

/// The node whose CIDR overlaps `range`. Taken CIDRs do not overlap each other, so only the two CIDRs next to `range`
/// can overlap it.
fn overlapping<'a>(taken: &BTreeMap<Range, &'a str>, range: Range) -> Option<&'a str> {
    let below = taken.range(..=range).next_back();
    let above = taken.range(range..).next();
    below.into_iter().chain(above).find(|(other, _)| other.overlaps(&range)).map(|(_, node)| *node)
}

/// The status and the reason of a node's condition NetworkUnavailable; `None` if the node has no such condition.
fn state(node: Viewed<'_, Node>) -> Option<(String, String)> {
    let condition = Condition::find(&node.view.status.conditions, CONDITION)?;
    Some((condition.status.clone(), condition.reason.clone()))
}

/// The actions that set the condition NetworkUnavailable of each node.
fn conditions(world: &World, wanted: &[WantedRoute<'_>], there: &BTreeSet<(&str, &str)>, now: Time) -> Vec<Action> {
    let mut lacking: BTreeMap<&str, bool> = BTreeMap::new();
    for want in wanted {
        let name = want.node.object.meta.name.as_str();
        *lacking.entry(name).or_default() |= want.lacks.is_some() || !there.contains(&(name, want.text));
    }
    let patch = |node: Viewed<'_, Node>| {
        let (status, reason, message) = match lacking.get(node.object.meta.name.as_str()) {
            Some(false) => ("False", "RouteCreated", "RouteController created a route"),
            Some(true) => ("True", "NoRouteCreated", "RouteController failed to create a route"),
            None => ("True", "NoRouteCreated", "Node has no range of pod addresses"),
        };
        let is_so = state(node).is_some_and(|(is, why)| is == status && why == reason);
        (!is_so && !node.meta().is_deleting()).then(|| {
            let condition = json!({
                "type": CONDITION, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
            });
            Subject::from(node).strategic_patch(json!({"status": {"conditions": [condition]}})).subresource("status")
        })
    };
    world.all::<Node>().filter_map(patch).collect()
}
