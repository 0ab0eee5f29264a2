//! A simulated cloud. A file describes the cloud and how often its calls fail. Two runs with the same seed and the same
//! calls are equal.
//!
//! The cloud uses no clock and no threads: the caller passes the time of each call, and waits for the time that the
//! answer takes.

mod balancers;
mod description;
mod health;

pub use description::{Description, InstanceChange, InstanceEvent, NAME};
pub use health::{BackendHealth, Backends};

use balancers::Balancers;
use holdfast_world::Time;
use holdfast_world::cloud::{CloudAnswer, CloudCall, ClusterRef, Fault, FaultReason, Instance, NodeRef, Route};
use std::collections::{BTreeMap, BTreeSet};

/// A simulated cloud.
pub struct Simulated {
    description: Description,
    began: Option<Time>,
    /// How many changes of the script were made.
    played: usize,
    /// The names of the instances about which calls fail.
    failing: BTreeSet<String>,
    balancers: Balancers,
    routes: Vec<ListedRoute>,
    /// The clusters, by the names that they have claimed.
    clusters: BTreeMap<String, ClusterRef>,
    random: u64,
    /// How many calls the throttle still allows, in thousandths of calls, and the time at which this number was
    /// computed.
    budget: Option<(i64, Time)>,
    /// The number of calls so far, by method.
    pub calls: BTreeMap<&'static str, u64>,
}

/// A route, the time from which on lists contain the route, and the time from which on they do not contain it any more.
struct ListedRoute {
    route: Route,
    shown_from: Time,
    gone_from: Option<Time>,
}

/// The answer to a call, and how long the answer takes.
#[derive(Debug)]
pub struct Answered {
    pub answer: Result<CloudAnswer, Fault>,
    pub millis: i64,
}

impl Simulated {
    pub fn new(description: Description) -> Simulated {
        Simulated {
            random: description.seed,
            balancers: Balancers::default(),
            description,
            began: None,
            played: 0,
            failing: BTreeSet::new(),
            routes: Vec::new(),
            clusters: BTreeMap::new(),
            budget: None,
            calls: BTreeMap::new(),
        }
    }

    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Replaces the description. The resources of the cloud stay as they are.
    pub fn describe(&mut self, description: Description) {
        (self.description, self.played) = (description, 0);
        self.failing.clear();
    }

    /// The number of all calls.
    pub fn called(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Answers a call like a real cloud: after a latency, sometimes with a failure, and sometimes with a failure
    /// although the call has taken effect.
    pub fn call(&mut self, call: &CloudCall, now: Time) -> Answered {
        self.play(now);
        *self.calls.entry(call.method()).or_default() += 1;
        let (least, most) = self.description.latency_millis;
        let millis = least + self.below(most - least + 1);
        if let Some(fault) = self.throttled(now) {
            return Answered { answer: Err(fault), millis };
        }
        let dice = self.below(1000);
        let failures = self.description.failures;
        let answer = match dice < failures / 2 {
            true => Err(Fault::unavailable("the cloud is not well")),
            false => self.answer(call, now),
        };
        let is_lost = (failures / 2..failures).contains(&dice);
        let answer = if is_lost { Err(Fault::unavailable("the answer of the cloud was lost")) } else { answer };
        Answered { answer, millis }
    }

    /// Answers a call at once and without random failures.
    pub fn answer(&mut self, call: &CloudCall, now: Time) -> Result<CloudAnswer, Fault> {
        let offers = self.description.offers;
        let is_offered = match call {
            CloudCall::Instance { .. } => offers.instances,
            CloudCall::Zone { .. } => offers.zones,
            CloudCall::EnsureBalancer { .. } | CloudCall::UpdateHosts { .. } | CloudCall::DeleteBalancer { .. } => {
                offers.balancers
            }
            CloudCall::Routes { .. } | CloudCall::CreateRoute { .. } | CloudCall::DeleteRoute { .. } => offers.routes,
            CloudCall::Clusters => offers.clusters,
        };
        if !is_offered {
            return Err(Fault::new(FaultReason::NotOffered, format!("this cloud does not offer {}", call.method())));
        }
        if let Some(cluster) = call.cluster()
            && !call.is_read()
        {
            self.claim(cluster)?;
        }
        match call {
            CloudCall::Instance { node, .. } => {
                self.instance(node).map(|(_, found)| CloudAnswer::Instance(found.clone()))
            }
            CloudCall::Zone { node, .. } => self.instance(node).map(|(_, found)| CloudAnswer::Zone(found.zone.clone())),
            CloudCall::EnsureBalancer { cluster, wanted, hosts } => {
                self.balancers.ensure(&self.description, cluster, wanted, hosts).map(CloudAnswer::Balancer)
            }
            CloudCall::UpdateHosts { cluster, wanted, hosts } => {
                self.balancers.update(cluster, wanted, hosts).map(|()| CloudAnswer::Done)
            }
            CloudCall::DeleteBalancer { cluster, name, .. } => {
                self.balancers.delete(cluster, name).map(|()| CloudAnswer::Done)
            }
            CloudCall::Routes { .. } => Ok(CloudAnswer::Routes(self.shown_routes(now))),
            CloudCall::CreateRoute { route, .. } => self.create_route(route, now).map(|()| CloudAnswer::Done),
            CloudCall::DeleteRoute { route, .. } => self.delete_route(route, now).map(|()| CloudAnswer::Done),
            CloudCall::Clusters => Ok(CloudAnswer::Clusters(self.clusters.values().cloned().collect())),
        }
    }

    /// The balancers, sorted by name.
    pub fn balancers(&self) -> impl Iterator<Item = &balancers::StoredBalancer> {
        self.balancers.all()
    }

    /// All existing routes, even if lists do not contain them yet.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|kept| kept.gone_from.is_none()).map(|kept| &kept.route)
    }

    /// Adds a route that no controller has requested.
    pub fn put_route(&mut self, route: Route, now: Time) {
        self.routes.push(ListedRoute { route, shown_from: now, gone_from: None });
    }

    /// Changes an instance as if somebody had changed it in the cloud.
    pub fn change(&mut self, instance: &str, what: InstanceEvent) {
        match what {
            InstanceEvent::Vanish => _ = self.description.instances.remove(instance),
            InstanceEvent::Fail => _ = self.failing.insert(instance.to_owned()),
            InstanceEvent::Heal => _ = self.failing.remove(instance),
            InstanceEvent::ShutDown | InstanceEvent::Start => {
                if let Some(found) = self.description.instances.get_mut(instance) {
                    found.is_shut_down = what == InstanceEvent::ShutDown;
                }
            }
        }
    }

    /// Makes the changes of the script whose time is not after `now`.
    fn play(&mut self, now: Time) {
        let began = *self.began.get_or_insert(now);
        while let Some(scene) = self.description.script.get(self.played).cloned()
            && now.millis_since(began) >= scene.at_millis
        {
            self.played += 1;
            self.change(&scene.instance, scene.what);
        }
    }

    /// Claims a name for a cluster; fails if another cluster has claimed the name.
    fn claim(&mut self, cluster: &ClusterRef) -> Result<(), Fault> {
        let known = self.clusters.entry(cluster.name.clone()).or_insert_with(|| cluster.clone());
        if known == cluster {
            return Ok(());
        }
        let message = format!(
            "the name {} belongs to another cluster, {}: this one, {}, needs a --cluster-name of its own",
            cluster.name, known.uid, cluster.uid
        );
        Err(Fault::new(FaultReason::Conflict, message))
    }

    /// The instance behind a node, with its name.
    fn instance(&self, node: &NodeRef) -> Result<(&str, &Instance), Fault> {
        let by_id = |(_, found): &(&String, &Instance)| found.provider_id == node.provider_id;
        let found = match node.provider_id.is_empty() {
            true => self.description.instances.get_key_value(&node.name),
            false => {
                let named = self.description.instances.get_key_value(&node.name);
                named.filter(by_id).or_else(|| self.description.instances.iter().find(by_id))
            }
        };
        match found {
            _ if self.failing.contains(&node.name) => {
                Err(Fault::unavailable(format!("instance {} does not answer", node.name)))
            }
            Some((name, instance)) => Ok((name, instance)),
            None => Err(Fault::new(FaultReason::NotFound, "instance not found")),
        }
    }

    fn shown_routes(&self, now: Time) -> Vec<Route> {
        let is_shown = |kept: &&ListedRoute| kept.shown_from <= now && kept.gone_from.is_none_or(|gone| gone > now);
        self.routes.iter().filter(is_shown).map(|kept| kept.route.clone()).collect()
    }

    fn create_route(&mut self, route: &Route, now: Time) -> Result<(), Fault> {
        let later = now.plus_millis(self.description.consistency_millis);
        let there =
            self.routes.iter().find(|kept| kept.gone_from.is_none() && kept.route.destination == route.destination);
        match there {
            Some(kept) if kept.route.node == route.node && kept.route.cluster == route.cluster => return Ok(()),
            Some(kept) => {
                let Route { name, node, cluster, .. } = &kept.route;
                let message = format!("route {name} leads there already: to node {node} of cluster {}", cluster.name);
                return Err(Fault::new(FaultReason::Conflict, message));
            }
            None => {}
        }
        let count = self.routes().count();
        if i64::try_from(count).unwrap_or(i64::MAX) >= self.description.quotas.routes {
            return Err(Fault::new(FaultReason::Exhausted, format!("the quota of {count} routes is used up")));
        }
        self.routes.push(ListedRoute { route: route.clone(), shown_from: later, gone_from: None });
        Ok(())
    }

    fn delete_route(&mut self, route: &Route, now: Time) -> Result<(), Fault> {
        let later = now.plus_millis(self.description.consistency_millis);
        self.routes.retain(|kept| kept.gone_from.is_none_or(|gone| gone > now));
        for kept in &mut self.routes {
            let Route { cluster, node, destination, .. } = &kept.route;
            if (cluster, node, destination) == (&route.cluster, &route.node, &route.destination) {
                kept.gone_from.get_or_insert(later);
            }
        }
        Ok(())
    }

    fn throttled(&mut self, now: Time) -> Option<Fault> {
        let (a_second, burst) = self.description.throttle?;
        let full = burst.saturating_mul(1000);
        let (left, since) = self.budget.unwrap_or((full, now));
        let left = left.saturating_add(now.millis_since(since).max(0).saturating_mul(a_second)).min(full);
        if left < 1000 {
            self.budget = Some((left, now));
            let retry_millis = Some((1000 - left).div_euclid(a_second).max(1));
            return Some(Fault { retry_millis, ..Fault::new(FaultReason::Exhausted, "too many calls") });
        }
        self.budget = Some((left - 1000, now));
        None
    }

    /// A random number from 0 to `bound` - 1, made by splitmix64, which gives the same numbers on every machine.
    fn below(&mut self, bound: i64) -> i64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        i64::try_from((mixed ^ (mixed >> 31)) >> 1).unwrap_or(0).rem_euclid(bound.max(1))
    }
}
