//! Creates, updates and deletes the cloud's balancer for each Service of type LoadBalancer.
//!
//! A Service gets its finalizer before the balancer is created, and loses it only when the cloud has confirmed the
//! deletion. So no balancer remains without a Service, whichever process crashes in between. The controller keeps its
//! last request for each balancer in memory, and makes a call only if the request has changed. After a restart the
//! controller makes the calls for all balancers once more, which changes nothing in the cloud.

mod balancer_spec;
mod hosts;

use crate::planted::{Bug, planted};
use crate::{NAMESPACES, Settings, cluster, names};
use holdfast_controllers::subject::{Subject, part};
use holdfast_value::{Map, Value, json};
use holdfast_world::cloud::{
    Balancer, BalancerSpec, CloudAnswer, CloudCall, ClusterRef, Fault, FaultReason, Host, Ingress,
};
use holdfast_world::views::{Node, Service};
use holdfast_world::{
    Action, BackOff, Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, StatusUpdate, Time, Verb,
    View, Viewed, World,
};
use hosts::Hosts;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const TYPE: &str = "LoadBalancer";
/// How long the plan waits for further changes after a change of a node, in milliseconds. So each balancer is updated
/// once for all changes in this time.
const HOSTS_MILLIS: i64 = 1_000;

/// The controller of balancers. It plans one Service per key.
pub struct Services {
    settings: Settings,
    hosts: Hosts,
    known: BTreeMap<Key, BalancerState>,
    /// The Events about changes of each Service. They are written with the Service's next plan.
    told: BTreeMap<Key, Vec<PlannedEvent>>,
}

/// The state of the balancer of one Service.
struct BalancerState {
    uid: String,
    /// The last request that the cloud has confirmed. While this request is kept, the cloud may have a balancer.
    made: Option<ConfirmedRequest>,
    /// The last request, whether the cloud has confirmed it or not. When the Service is gone, the request still
    /// identifies the balancer that is to be deleted.
    asked: Arc<BalancerSpec>,
    outcome: Option<CallReport>,
    /// The time before which the cloud accepts no further call.
    retry: Option<Time>,
    /// Whether the cloud has confirmed that the balancer is deleted.
    is_gone: bool,
}

struct ConfirmedRequest {
    wanted: Arc<BalancerSpec>,
    hosts: Arc<[Host]>,
    at: Time,
    /// The balancer that the cloud has made; `None` if another controller is responsible for the Service.
    balancer: Option<Balancer>,
}

/// The outcome of the last call for a balancer, until an Event reports it.
enum CallReport {
    Ensured,
    Updated,
    Deleted,
    Failed { method: &'static str, fault: Fault },
}

impl Services {
    pub fn new(settings: &Settings) -> Services {
        let settings = settings.clone();
        Services { settings, hosts: Hosts::default(), known: BTreeMap::new(), told: BTreeMap::new() }
    }
}

impl Controller for Services {
    fn name(&self) -> &'static str {
        names::SERVICE
    }

    fn queue(&self) -> &'static str {
        "service"
    }

    fn account(&self) -> &'static str {
        "service-controller"
    }

    fn component(&self) -> &'static str {
        "service-controller"
    }

    fn manager(&self) -> &'static str {
        self.name()
    }

    fn back_off(&self) -> BackOff {
        BackOff { first_ms: 5_000, last_ms: 300_000 }
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Service::resource().clone(), Node::resource().clone(), NAMESPACES.clone()]
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<Node>() {
            if self.hosts.apply(change) && !planted(Bug::HostsForgotten) {
                // A Service that is not in `known` has no balancer yet. When its balancer is created, it gets the
                // present nodes.
                self.known.keys().for_each(|key| keys.add_after(key.clone(), HOSTS_MILLIS));
            }
        } else if change.is_of::<Service>() {
            let (before, after) = (change.before::<Service>(), change.after::<Service>());
            let concerned = [before, after].iter().flatten().any(|service| is_concerned(*service));
            if !concerned && !self.known.contains_key(&change.key) {
                return;
            }
            if let (Some(before), Some(after)) = (before, after) {
                let notes = balancer_spec::differences(before, after);
                if !notes.is_empty() {
                    self.told.entry(change.key.clone()).or_default().extend(notes);
                }
            }
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan { events: self.told.remove(key).unwrap_or_default(), ..Plan::default() };
        let Some(cluster) = cluster(world, &self.settings) else {
            plan.unready = true;
            plan.skipped.push("the namespace kube-system is not there yet".into());
            return plan;
        };
        let service = world.get::<Service>(key);
        let known = self.known.get_mut(key);
        // The entry may belong to an earlier Service of this name, and the balancer of the earlier Service may still
        // exist.
        let is_another = |known: &&mut BalancerState| service.is_none_or(|service| service.meta().uid != known.uid);
        if let Some(known) = known.filter(is_another) {
            match known.outcome.take() {
                _ if known.is_gone => {}
                Some(CallReport::Failed { fault, .. }) => return waiting(plan, known, &fault, stamp),
                _ => {
                    plan.calls.push(deletion(cluster, &known.asked));
                    return plan;
                }
            }
            self.known.remove(key);
        }
        let Some(service) = service else { return plan };
        let doc = part(service.object, &["spec"]);
        let outcome = self.known.get_mut(key).and_then(|known| known.outcome.take());
        if let Some(CallReport::Failed { method, fault }) = outcome {
            plan.events.push(failure(service, method, &fault));
            return match self.known.get_mut(key) {
                Some(known) => waiting(plan, known, &fault, stamp),
                None => plan,
            };
        }
        if wants_balancer(service, &doc) {
            self.ensure_balancer(plan, service, &doc, cluster, outcome, stamp)
        } else {
            self.ensure_deleted(plan, service, cluster, outcome)
        }
    }

    fn called(&mut self, key: &Key, call: &CloudCall, answer: Result<CloudAnswer, Fault>, now: Time) {
        let Some(known) = self.known.get_mut(key) else { return };
        known.retry = None;
        let answer = match answer {
            Err(fault) if planted(Bug::DoubtDeletesBalancers) && matches!(call, CloudCall::DeleteBalancer { .. }) => {
                drop(fault);
                Ok(CloudAnswer::Done)
            }
            answer => answer,
        };
        known.outcome = match (call, answer) {
            (CloudCall::EnsureBalancer { wanted, hosts, .. }, Ok(CloudAnswer::Balancer(balancer))) => {
                let (wanted, hosts) = (wanted.clone(), hosts.clone());
                known.made = Some(ConfirmedRequest { wanted, hosts, at: now, balancer: Some(balancer) });
                Some(CallReport::Ensured)
            }
            // Another controller is responsible for the Service, which is not a failure of the call.
            (CloudCall::EnsureBalancer { wanted, hosts, .. }, Err(fault)) if fault.is(FaultReason::Elsewhere) => {
                let (wanted, hosts) = (wanted.clone(), hosts.clone());
                known.made = Some(ConfirmedRequest { wanted, hosts, at: now, balancer: None });
                None
            }
            (CloudCall::UpdateHosts { hosts, .. }, Ok(_)) => {
                known.made.iter_mut().for_each(|made| made.hosts = hosts.clone());
                Some(CallReport::Updated)
            }
            (CloudCall::DeleteBalancer { .. }, Ok(_)) => {
                (known.made, known.is_gone) = (None, true);
                Some(CallReport::Deleted)
            }
            (_, Err(fault)) => {
                // The cloud has no such balancer any more, so the next plan creates it again.
                if fault.is(FaultReason::NotFound) {
                    known.made = None;
                }
                known.retry = fault.retry_millis.map(|millis| now.plus_millis(millis));
                Some(CallReport::Failed { method: call.method(), fault })
            }
            (_, Ok(_)) => None,
        };
    }
}

impl Services {
    /// Plans a Service that has a balancer, or should have one.
    fn ensure_balancer(
        &mut self,
        mut plan: Plan,
        service: Viewed<'_, Service>,
        doc: &Value,
        cluster: ClusterRef,
        outcome: Option<CallReport>,
        stamp: Stamp,
    ) -> Plan {
        let subject = Subject::from(service);
        match &outcome {
            Some(CallReport::Ensured) => {
                plan.events.push(subject.normal("EnsuredLoadBalancer", "Ensured load balancer".into()))
            }
            Some(CallReport::Updated) => {
                plan.events.push(subject.normal("UpdatedLoadBalancer", "Updated load balancer with new hosts".into()))
            }
            _ => {}
        }
        if !service.meta().has_finalizer(FINALIZER) && !planted(Bug::FinalizerAfterwards) {
            plan.then(with_finalizers(service, true));
            return plan;
        }
        let wanted = match balancer_spec::of(service, doc) {
            Ok(wanted) => wanted,
            Err(why) => {
                plan.events.push(failure(service, "EnsureBalancer", &Fault::new(FaultReason::Invalid, why)));
                plan.unready = true;
                return plan;
            }
        };
        let hosts = self.hosts.all();
        let key = service.object.key();
        let resync = self.settings.resync_millis;
        let known = self.known.entry(key).or_insert_with(|| BalancerState::new(&service.meta().uid, &wanted));
        if let Some(retry) = known.retry.filter(|retry| stamp.time < *retry) {
            plan.requeue_at(retry);
            return plan;
        }
        let made =
            known.made.as_ref().filter(|made| *made.wanted == wanted && stamp.time < made.at.plus_millis(resync));
        let no_hosts =
            || subject.warning("UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer".into());
        let Some(made) = made else {
            let wanted = Arc::new(wanted);
            (known.asked, known.is_gone) = (wanted.clone(), false);
            plan.events.push(subject.normal("EnsuringLoadBalancer", "Ensuring load balancer".into()));
            plan.events.extend(hosts.is_empty().then(no_hosts));
            plan.calls.push(CloudCall::EnsureBalancer { cluster, wanted, hosts });
            return plan;
        };
        // The requests are sent again at different times, because each time has a random delay of up to one period.
        let jitter = i64::try_from(stamp.seed >> 1).unwrap_or(0).rem_euclid(resync.max(1));
        plan.requeue_at(made.at.plus_millis(resync.saturating_add(jitter)));
        let Some(balancer) = &made.balancer else { return plan };
        if !Arc::ptr_eq(&made.hosts, &hosts) && made.hosts != hosts {
            plan.events.extend(hosts.is_empty().then(no_hosts));
            plan.calls.push(CloudCall::UpdateHosts { cluster, wanted: made.wanted.clone(), hosts });
            return plan;
        }
        plan.together(status(service, &balancer.ingress).into_iter().collect());
        plan
    }

    /// Plans a Service that should have no balancer any more.
    fn ensure_deleted(
        &mut self,
        mut plan: Plan,
        service: Viewed<'_, Service>,
        cluster: ClusterRef,
        outcome: Option<CallReport>,
    ) -> Plan {
        let (subject, key) = (Subject::from(service), service.object.key());
        let has_finalizer = service.meta().has_finalizer(FINALIZER);
        if !has_finalizer && !self.known.contains_key(&key) {
            return plan;
        }
        if matches!(outcome, Some(CallReport::Deleted)) {
            plan.events.push(subject.normal("DeletedLoadBalancer", "Deleted load balancer".into()));
        }
        let known = self.known.entry(key.clone()).or_insert_with(|| {
            let named = BalancerSpec {
                name: balancer_spec::name(&service.meta().uid),
                service: balancer_spec::named(service),
                ..BalancerSpec::default()
            };
            BalancerState::new(&service.meta().uid, &named)
        });
        if !known.is_gone && !planted(Bug::FinalizerFirst) {
            plan.events.push(subject.normal("DeletingLoadBalancer", "Deleting load balancer".into()));
            plan.calls.push(deletion(cluster, &known.asked));
            return plan;
        }
        if planted(Bug::FinalizerForEver) && !service.meta().is_deleting() {
            return plan;
        }
        match has_finalizer {
            true => plan.then(with_finalizers(service, false)),
            false => {
                self.known.remove(&key);
                plan.together(status(service, &[]).into_iter().collect());
            }
        }
        plan
    }
}

impl BalancerState {
    fn new(uid: &str, asked: &BalancerSpec) -> BalancerState {
        let asked = Arc::new(asked.clone());
        BalancerState { uid: uid.to_owned(), made: None, asked, outcome: None, retry: None, is_gone: false }
    }
}

/// Whether a Service has, or may have had, a balancer.
fn is_concerned(service: Viewed<'_, Service>) -> bool {
    service.view.spec.kind == TYPE || service.meta().has_finalizer(FINALIZER)
}

/// Whether a Service should have a balancer of this cloud. A Service with a load balancer class belongs to another
/// controller.
fn wants_balancer(service: Viewed<'_, Service>, spec: &Value) -> bool {
    service.view.spec.kind == TYPE && !service.meta().is_deleting() && spec["loadBalancerClass"].is_null()
}

fn deletion(cluster: ClusterRef, asked: &BalancerSpec) -> CloudCall {
    CloudCall::DeleteBalancer { cluster, name: asked.name.clone(), service: asked.service.clone() }
}

/// Plans the next try at the time that the cloud has named, or with back-off if the cloud has named no time.
fn waiting(mut plan: Plan, known: &BalancerState, fault: &Fault, stamp: Stamp) -> Plan {
    plan.skipped.push(fault.message.clone());
    match known.retry {
        Some(retry) => plan.requeue_at(retry.max(stamp.time)),
        None => plan.unready = true,
    }
    plan
}

/// The Event about a failed call, in the wording of Kubernetes.
fn failure(service: Viewed<'_, Service>, method: &str, fault: &Fault) -> PlannedEvent {
    let subject = Subject::from(service);
    match method {
        "UpdateHosts" => {
            subject.warning("UpdateLoadBalancerFailed", format!("Error updating load balancer with new hosts: {fault}"))
        }
        method => {
            let what = if method == "DeleteBalancer" {
                "failed to delete load balancer"
            } else {
                "failed to ensure load balancer"
            };
            subject.warning("SyncLoadBalancerFailed", format!("Error syncing load balancer: {what}: {fault}"))
        }
    }
}

/// Adds or removes the finalizer through the `status` subresource, because this controller may write no other part of a
/// Service. The patch replaces the whole list, so it contains the resource version from which the list was read. If the
/// Service has changed since, the server refuses the patch.
fn with_finalizers(service: Viewed<'_, Service>, add: bool) -> Action {
    let meta = service.meta();
    let kept = meta.finalizers.iter().filter(|finalizer| *finalizer != FINALIZER).map(String::as_str);
    let finalizers: Vec<&str> = kept.chain(add.then_some(FINALIZER)).collect();
    let metadata = json!({"resourceVersion": meta.resource_version, "uid": meta.uid, "finalizers": finalizers});
    let mut patch = json!({"metadata": metadata});
    if !add {
        // The patch also clears the addresses: a Service that is not of type LoadBalancer must not have any, and
        // validation would refuse the write.
        patch["status"] = json!({"loadBalancer": {"ingress": null}});
    }
    let patch = Verb::MergePatch(patch);
    Action::new(Service::resource(), service.object.key(), patch).subresource("status")
}

/// Sets the ingress addresses in a Service's status to the addresses of its balancer; `None` if the status has them
/// already.
fn status(service: Viewed<'_, Service>, ingress: &[Ingress]) -> Option<Action> {
    let old = part(service.object, &["status"]);
    let shown: Vec<Value> = ingress.iter().map(shown).collect();
    let mut balancer = Map::new();
    if !shown.is_empty() {
        balancer.insert("ingress", shown.into());
    }
    let is_same = old["loadBalancer"].as_object().map_or(balancer.is_empty(), |old| *old == balancer);
    (!is_same).then(|| {
        let mut status = old.as_object().cloned().unwrap_or_default();
        status.insert("loadBalancer", Value::Object(balancer));
        let restated = StatusUpdate { object: service.object.clone(), status: Value::Object(status) };
        let update = Verb::UpdateStatus(restated);
        Action::new(Service::resource(), service.object.key(), update).subresource("status")
    })
}

fn shown(ingress: &Ingress) -> Value {
    let mut shown = Map::new();
    // Validation accepts `ipMode` only together with an IP.
    let mode = if ingress.ip.is_empty() { "" } else { ingress.ip_mode.as_str() };
    for (field, text) in [("hostname", ingress.hostname.as_str()), ("ip", &ingress.ip), ("ipMode", mode)] {
        if !text.is_empty() {
            shown.insert(field, text.into());
        }
    }
    let ports = ingress.ports.iter().map(|port| {
        let mut shown = json!({"port": port.port, "protocol": port.protocol});
        if !port.error.is_empty() {
            shown["error"] = port.error.as_str().into();
        }
        shown
    });
    let ports: Vec<Value> = ports.collect();
    if !ports.is_empty() {
        shown.insert("ports", ports.into());
    }
    Value::Object(shown)
}
