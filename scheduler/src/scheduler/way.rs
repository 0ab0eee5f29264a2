//! The binding cycle of a pod: from the choice of a node to the binding.
//!
//! Most pods are bound at once. Pods of gangs wait with a reserved node until others of their gang have nodes. Pods
//! with volumes or devices need writes to these first; the status of such a pod is written before anything else, to
//! nominate it to its node.

use super::event::Saying;
use super::order::{Ask, Purpose, bind};
use super::prepare::{Progress, Step};
use super::{Observed, Scheduler, Trying, failure};
use crate::object::device::Readiness;
use crate::object::pod::Pod;
use crate::object::{Key, Kind, Text};
use crate::plan::{Nomination, SCHEDULER_ERROR, UNSCHEDULABLE};
use crate::planted::{Bug, planted};
use crate::plugins::{dynamic_resources, marker, volume_binding};
use crate::queue::{Attempt, SECOND, Time};
use crate::snapshot::assume::Promise;
use crate::snapshot::{Event, Seen};
use crate::status::EXTENDER;
use holdfast_value::json;
use holdfast_world::{Action, Refusal};
use std::collections::{BTreeSet, VecDeque};

pub(super) struct Way {
    pub trying: Trying,
    pub node: Text,
    pub promise: Promise,
    pub stage: Stage,
    /// The steps to be written before volumes and devices are waited for; the writes of one step are sent at the same
    /// time.
    steps: VecDeque<Step>,
    /// When the wait is too long.
    deadline: Option<Time>,
    /// Claims that were seen with the chosen node in their annotation.
    pub selected: BTreeSet<Key>,
    /// The objects of other components that it waits for.
    awaited: Vec<(Kind, Key)>,
    /// Whether the pod's own events show the node.
    seen: bool,
    /// The extender that binds it.
    binder: Option<usize>,
    /// When it came to the present point.
    since: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits with a reserved node for others of its gang, since `began` and for at most `patience`.
    Waits {
        began: Time,
        patience: Time,
    },
    /// Waits until the write of its status, with the nomination, is done.
    Tells,
    /// These writes are under way.
    Prepares(BTreeSet<u64>),
    /// Waits for its volumes and devices to become ready.
    Awaits,
    /// Is bound as soon as no write of its status is under way.
    Ready,
    Binding(u64),
    /// Is bound; its own event is yet to come.
    Bound,
}

impl Way {
    /// Whether its binding was not requested yet.
    pub fn can_be_called_back(&self) -> bool {
        !matches!(self.stage, Stage::Ready | Stage::Binding(_) | Stage::Bound)
    }

    fn key(&self) -> &Key {
        &self.trying.pod.key
    }
}

/// What comes next in PreBind.
enum Next {
    Write(Vec<Action>),
    Wait,
    None,
}

/// How long a claim that was created may take to appear.
const MADE_WITHIN: Time = 120 * SECOND;

/// Why a binding cycle failed.
pub(super) struct Fall {
    message: String,
    rejectors: Vec<&'static str>,
    of_volumes: bool,
}

impl Fall {
    fn error(message: String) -> Fall {
        Fall { message, rejectors: Vec::new(), of_volumes: false }
    }

    pub fn refused(plugin: &'static str, reason: &str) -> Fall {
        Fall { message: format!("0/1 nodes are available: 1 {reason}."), rejectors: vec![plugin], of_volumes: false }
    }
}

/// One in so many passed points is reported to metrics.
const MEASURED: u64 = 10;

impl Scheduler {
    /// How many pods are being bound.
    pub fn binding(&self) -> usize {
        self.ways.values().filter(|way| matches!(way.stage, Stage::Binding(_))).count()
    }

    /// Reports how long the pod was at a point that it leaves now.
    fn pass(&mut self, key: &Key, point: &'static str, plugin: &'static str, success: bool, now: Time) {
        let Some(way) = self.ways.get_mut(key) else { return };
        let (began, profile) = (std::mem::replace(&mut way.since, now), way.trying.profile);
        self.passed += 1;
        if self.passed.is_multiple_of(MEASURED) {
            let profile = self.profile(profile).scheduler_name.clone();
            self.observed.push(Observed::Passed { profile, point, plugin, success, began, ended: now });
        }
    }

    /// Starts the binding cycle of a pod, and assumes it on the node.
    pub(super) fn set_out(&mut self, trying: Trying, node: Text, promise: Promise, now: Time) {
        let pod = trying.pod.clone();
        let steps = self.preparations(&pod, &node, &promise, now);
        if !planted(Bug::PlaceNotTaken) {
            self.snapshot.assume(&pod.key, &node, &promise);
        }
        let held = self.hold_time(&pod, trying.profile, now);
        let awaits = !promise.volumes.is_empty() || !self.awaited_devices(&pod).is_empty();
        let stage = match (&held, steps.is_empty() && !awaits) {
            (Ok(Some(patience)), _) => Stage::Waits { began: now, patience: *patience },
            (Ok(None), true) => Stage::Ready,
            _ => Stage::Tells,
        };
        let selected = BTreeSet::new();
        let made = promise.made.as_ref().map(|made| (Kind::ResourceClaim, made.claim.key.clone()));
        let way = Way {
            trying,
            node: node.clone(),
            promise,
            stage,
            steps,
            deadline: None,
            selected,
            awaited: Vec::new(),
            seen: false,
            binder: None,
            since: now,
        };
        let direct = way.stage == Stage::Ready;
        self.ways.insert(pod.key.clone(), way);
        self.await_changes(&pod.key, made.into_iter().collect());
        let waits = match held {
            Ok(patience) => patience,
            Err(why) => return self.fall(&pod.key, Fall::error(why), now),
        };
        if !direct && self.configuration.tells_expected_nodes {
            self.write_status(&pod, None, Nomination::Set(node), now);
        }
        match waits {
            Some(patience) => {
                self.wait_until(&pod.key, now + patience);
                self.activate_gang(&pod, now);
            }
            None => {
                self.go_on(&pod.key, now);
                self.let_gang_go(&pod, now);
            }
        }
    }

    /// Takes all steps of the binding cycle that can be taken now.
    pub(super) fn go_on(&mut self, key: &Key, now: Time) {
        loop {
            let quiet = self.statuses.is_quiet(key) || planted(Bug::BoundBeforeTold);
            let Some(way) = self.ways.get_mut(key) else { return };
            match &way.stage {
                Stage::Tells if quiet => {
                    way.stage = Stage::Prepares(BTreeSet::new());
                    self.queue.takes_long(key);
                }
                Stage::Prepares(open) if open.is_empty() => match self.next_step(key, now) {
                    Next::Write(actions) => self.write_down(key, actions),
                    Next::Wait => return,
                    Next::None => self.await_others(key, now),
                },
                Stage::Awaits => match self.progress(key) {
                    Progress::Waiting => return,
                    Progress::Done => {
                        self.stop_waiting(key);
                        if let Some(way) = self.ways.get_mut(key) {
                            way.stage = Stage::Ready;
                        }
                    }
                    Progress::Failed(why) => return self.fall(key, volumes_failed(&why), now),
                    Progress::DevicesFailed(why) => return self.devices_failed(key, &why, now),
                },
                Stage::Ready if quiet => {
                    if let Some(plugin) = way.promise.prepared_by() {
                        self.pass(key, "PreBind", plugin, true, now);
                    }
                    return self.bind(key, now);
                }
                _ => return,
            }
        }
    }

    fn write_down(&mut self, key: &Key, step: Vec<Action>) {
        let open = step.into_iter().map(|action| self.order(action, Purpose::Way(key.clone()))).collect();
        if let Some(way) = self.ways.get_mut(key) {
            way.stage = Stage::Prepares(open);
        }
    }

    fn next_step(&mut self, key: &Key, now: Time) -> Next {
        let Some(way) = self.ways.get(key) else { return Next::Wait };
        let (pod, promise) = (way.trying.pod.clone(), way.promise.clone());
        if matches!(way.steps.front(), Some(Step::Reserve)) && !self.is_made(&promise) {
            // The claim's uid is known only from its event; writes into the claim need it.
            if way.deadline.is_none() {
                self.wait_until(key, now + MADE_WITHIN);
            }
            return Next::Wait;
        }
        match self.ways.get_mut(key).and_then(|way| way.steps.pop_front()) {
            None => Next::None,
            Some(Step::Write(actions)) => Next::Write(actions),
            Some(Step::Reserve) => Next::Write(self.reservations(&pod, &promise, now)),
            Some(Step::Protect) => Next::Write(self.protections(&promise)),
        }
    }

    /// Makes a pod wait for its volumes and devices.
    fn await_others(&mut self, key: &Key, now: Time) {
        self.stop_waiting(key);
        let Some(way) = self.ways.get(key) else { return };
        let (pod, profile, node) = (way.trying.pod.clone(), way.trying.profile, way.node.clone());
        let volumes: Vec<Key> = if way.promise.volumes.is_empty() {
            Vec::new()
        } else {
            pod.volume_claims().map(|(claim, _)| claim).collect()
        };
        let devices = self.awaited_devices(&pod);
        let stage = if volumes.is_empty() && devices.is_empty() { Stage::Ready } else { Stage::Awaits };
        let patience = |name: &str| {
            let seconds = self.profile(profile).plugin(name).and_then(|plugin| plugin.patience_seconds()).unwrap_or(0);
            Time::from(seconds) * SECOND
        };
        let for_volumes = (!volumes.is_empty()).then(|| now.saturating_add(patience(volume_binding::NAME)));
        let for_devices = devices.iter().map(|claim| {
            let since = claim.allocation.as_ref().and_then(|allocation| allocation.since).unwrap_or(now);
            since.saturating_add(patience(dynamic_resources::NAME))
        });
        let deadline = for_devices.chain(for_volumes).min();
        if !devices.is_empty() {
            let note = format!("waiting for binding conditions for device on node {node}");
            let reporter = self.profile(profile).scheduler_name.clone();
            let (reason, action) = ("BindingConditionsPending", "Scheduling");
            self.tell(Saying { pod, warning: false, reason, action, note, related: None, reporter }, now);
        }
        let volumes = volumes.into_iter().map(|claim| (Kind::PersistentVolumeClaim, claim));
        let devices = devices.iter().map(|claim| (Kind::ResourceClaim, claim.key.clone()));
        self.await_changes(key, volumes.chain(devices).collect());
        if let Some(way) = self.ways.get_mut(key) {
            way.stage = stage;
        }
        if let Some(deadline) = deadline {
            self.wait_until(key, deadline);
        }
    }

    /// Continues the pod's binding cycle when one of these objects changes.
    fn await_changes(&mut self, key: &Key, awaited: Vec<(Kind, Key)>) {
        for place in &awaited {
            self.awaited.entry(place.clone()).or_default().insert(key.clone());
        }
        if let Some(way) = self.ways.get_mut(key) {
            way.awaited = awaited;
        }
    }

    fn wait_until(&mut self, key: &Key, until: Time) {
        if let Some(way) = self.ways.get_mut(key) {
            way.deadline = Some(until);
            self.deadlines.insert((until, key.clone()));
        }
    }

    /// An object changed: continues the binding cycles that wait for it.
    pub(super) fn awaited_changed(&mut self, kind: Kind, object: &Key, now: Time) {
        let Some(pods) = self.awaited.get(&(kind, object.clone())) else { return };
        for key in pods.clone() {
            if kind == Kind::PersistentVolumeClaim
                && let Some(claim) = self.snapshot.volume_claims.get(object)
                && let Some(way) = self.ways.get_mut(&key)
                && claim.selected_node.as_ref() == Some(&way.node)
            {
                way.selected.insert(object.clone());
            }
            self.go_on(&key, now);
        }
    }

    fn stop_waiting(&mut self, key: &Key) {
        self.forget_deadline(key);
        let Some(way) = self.ways.get_mut(key) else { return };
        for place in std::mem::take(&mut way.awaited) {
            if let Some(pods) = self.awaited.get_mut(&place) {
                pods.remove(key);
                if pods.is_empty() {
                    self.awaited.remove(&place);
                }
            }
        }
    }

    pub(super) fn forget_deadline(&mut self, key: &Key) {
        if let Some(until) = self.ways.get_mut(key).and_then(|way| way.deadline.take()) {
            self.deadlines.remove(&(until, key.clone()));
        }
    }

    fn bind(&mut self, key: &Key, now: Time) {
        let Some(way) = self.ways.get(key) else { return };
        self.statuses.forget(key);
        let (pod, node) = (way.trying.pod.clone(), way.node.clone());
        let binder = self.binder(&pod, way.binder);
        let ask = match binder {
            Some(extender) => {
                let body = json!({
                    "PodName": &*pod.key.name, "PodNamespace": &*pod.key.namespace, "PodUID": &*pod.uid, "Node": &*node,
                });
                let verb = self.configuration.extenders[extender].bind_verb.clone();
                Ask::Extender { extender, verb, body }
            }
            None => Ask::Api(bind(key, &pod.uid, &node)),
        };
        let order = self.ask(ask, Purpose::Way(key.clone()));
        if let Some(way) = self.ways.get_mut(key) {
            way.stage = Stage::Binding(order);
            way.binder = binder;
            way.since = now;
        }
    }

    fn pass_binding(&mut self, key: &Key, success: bool, now: Time) {
        let by_extender = self.ways.get(key).is_some_and(|way| way.binder.is_some());
        self.pass(key, "Bind", if by_extender { EXTENDER } else { marker::DEFAULT_BINDER }, success, now);
    }

    fn binding_failed(&mut self, key: &Key, why: &str, now: Time) {
        match self.ways.get(key).and_then(|way| way.binder) {
            // If an ignorable extender fails to bind, the next binder is tried.
            Some(extender) if self.configuration.extenders[extender].ignorable => self.bind(key, now),
            Some(_) => self.fall(key, Fall::error(why.to_owned()), now),
            None => {
                let name = marker::DEFAULT_BINDER;
                self.fall(key, Fall::error(format!("running Bind plugin \"{name}\": {why}")), now);
            }
        }
    }

    pub(super) fn way_answered(&mut self, key: &Key, number: u64, refusal: Option<Refusal>, now: Time) {
        let Some(way) = self.ways.get_mut(key) else { return };
        // The step behind the claim's creation is `Reserve`, so this answer is the one to the creation.
        let makes = way.promise.made.is_some() && matches!(way.steps.front(), Some(Step::Reserve));
        if makes && matches!(&way.stage, Stage::Prepares(open) if open.contains(&number)) {
            self.observed.push(Observed::ClaimMade { success: refusal.is_none() });
        }
        match (&mut way.stage, refusal) {
            (Stage::Binding(order), None) if *order == number => {
                self.pass_binding(key, true, now);
                self.bound(key, now);
            }
            (Stage::Binding(order), Some(refusal)) if *order == number => {
                self.pass_binding(key, false, now);
                self.binding_failed(key, &refusal.message, now);
            }
            (Stage::Prepares(open), refusal) => match (open.remove(&number), refusal) {
                (false, _) => {}
                (true, None) => self.go_on(key, now),
                (true, Some(refusal)) => self.fall(key, self.preparation_failed(key, &refusal), now),
            },
            _ => {}
        }
    }

    fn preparation_failed(&self, key: &Key, refusal: &Refusal) -> Fall {
        let of_volumes = self
            .ways
            .get(key)
            .is_some_and(|way| way.trying.pod.template.claims.is_empty() && way.promise.made.is_none());
        match of_volumes {
            true => volumes_failed(&refusal.message),
            false => devices_failed(&refusal.message),
        }
    }

    fn bound(&mut self, key: &Key, now: Time) {
        let Some(way) = self.ways.get_mut(key) else { return };
        way.stage = Stage::Bound;
        let (trying, node, seen) = (way.trying.clone(), way.node.clone(), way.seen);
        let Trying { pod, profile, attempt, began } = trying;
        self.observe_attempt(profile, "scheduled", began, now);
        let Attempt { attempts, first_active, flushed } = attempt;
        self.observed.push(Observed::Bound { attempts, first_active, flushed, at: now });
        let note = format!("Successfully assigned {key} to {node}");
        let reporter = self.profile(profile).scheduler_name.clone();
        let (reason, action) = ("Scheduled", "Binding");
        self.tell(Saying { pod, warning: false, reason, action, note, related: None, reporter }, now);
        if seen {
            self.ways.remove(key);
        }
    }

    /// The binding cycle failed: frees the node, and puts the pod back into the queue.
    pub(super) fn fall(&mut self, key: &Key, fall: Fall, now: Time) {
        self.stop_waiting(key);
        let Some(way) = self.ways.remove(key) else { return };
        let Way { trying: Trying { profile, began, pod: before, .. }, node, promise, stage, .. } = way;
        let assumed = self.snapshot.pod(key).filter(|_| self.snapshot.is_assumed(key)).cloned();
        if !planted(Bug::PlaceKept) {
            self.snapshot.forget(key);
        }
        if !matches!(stage, Stage::Waits { .. } | Stage::Tells) {
            self.unreserve(&before, &promise);
        }
        let Some(pod) = self.snapshot.pod(key).filter(|pod| pod.uid == before.uid && pod.node_name.is_none()).cloned()
        else {
            return self.queue.done(key);
        };
        let (result, reason) = match fall.rejectors.is_empty() {
            true => ("error", SCHEDULER_ERROR),
            false => ("unschedulable", UNSCHEDULABLE),
        };
        self.observe_attempt(profile, result, began, now);
        self.observed.extend(fall.of_volumes.then_some(Observed::VolumesFailed));
        self.tell_failure(&pod, profile, &fall.message, now);
        self.write_status(&pod, Some((reason, fall.message)), Nomination::Clear, now);
        match planted(Bug::RefusedForgotten) {
            true => self.queue.done(key),
            false => self.requeue(key, failure(fall.rejectors), now),
        }
        // For waiting pods this is as if the pod had been on the node and gone.
        if let Some(mut gone) = assumed.map(|pod| Pod::clone(&pod)) {
            gone.node_name = Some(node);
            let event = Event { kind: Kind::Pod, key: key.clone(), seen: Seen::Pod(Some(gone.into()), None) };
            let world = crate::queue::World { snapshot: &self.snapshot, configuration: &self.configuration };
            self.queue.hear(world, event, now);
        }
    }

    /// A pod of higher priority preempts this one before its binding was requested.
    pub(super) fn call_back(&mut self, key: &Key, why: &str, now: Time) {
        self.fall(key, Fall::refused(crate::plugins::default_preemption::NAME, why), now);
    }

    /// Ends waits that are too long.
    pub(super) fn overdue(&mut self, now: Time) {
        while let Some((_, key)) = self.deadlines.first().filter(|(at, _)| *at <= now).cloned() {
            self.deadlines.pop_first();
            match self.ways.get(&key).map(|way| way.stage.clone()) {
                Some(Stage::Waits { began, patience }) => self.waited_in_vain(&key, began, patience, now),
                Some(Stage::Awaits) => match self.late_devices(&key, now) {
                    Some(why) => self.devices_failed(&key, &why, now),
                    None => self.fall(&key, volumes_failed("timed out waiting for the condition"), now),
                },
                Some(Stage::Prepares(open)) if open.is_empty() => {
                    self.fall(&key, devices_failed("the claim for extended resources did not appear"), now);
                }
                _ => {}
            }
        }
    }

    /// The message if the pod waited for its devices too long; `None`: it waits for something else.
    fn late_devices(&self, key: &Key, now: Time) -> Option<String> {
        let way = self.ways.get(key)?;
        let plugin = self.profile(way.trying.profile).plugin(dynamic_resources::NAME);
        let patience = Time::from(plugin.and_then(|plugin| plugin.patience_seconds()).unwrap_or(0)) * SECOND;
        let mut claims = self.awaited_devices(&way.trying.pod).into_iter();
        let late = claims.find(|claim| {
            let since = claim.allocation.as_ref().and_then(|allocation| allocation.since);
            claim.readiness() == Readiness::Waiting && since.is_none_or(|since| since.saturating_add(patience) <= now)
        });
        late.map(|claim| format!("claim {} binding timeout", claim.key.name))
    }

    /// The devices did not become ready: releases them, so that others can be found.
    fn devices_failed(&mut self, key: &Key, why: &str, now: Time) {
        if let Some(pod) = self.ways.get(key).map(|way| way.trying.pod.clone()) {
            self.give_up_devices(&pod);
        }
        self.fall(key, devices_failed(why), now);
    }

    /// The pod itself changed: its binding cycle ends when the pod is gone or its own events show a node.
    pub(super) fn own_way(&mut self, key: &Key, now: Time) {
        let Some(way) = self.ways.get_mut(key) else { return };
        let same = self.snapshot.pod(way.key()).is_some_and(|pod| pod.uid == way.trying.pod.uid);
        if same && self.snapshot.is_assumed(key) {
            return;
        }
        if same && matches!(way.stage, Stage::Binding(_)) {
            // The answer to the binding is yet to come, and tells whether this scheduler bound it.
            way.seen = true;
            return;
        }
        self.stop_waiting(key);
        let Some(way) = self.ways.remove(key) else { return };
        if !same {
            self.let_gang_go(&way.trying.pod, now);
        }
    }
}

fn volumes_failed(why: &str) -> Fall {
    let message = format!("running PreBind plugin \"{}\": binding volumes: {why}", volume_binding::NAME);
    Fall { of_volumes: true, ..Fall::error(message) }
}

fn devices_failed(why: &str) -> Fall {
    Fall::error(format!("running PreBind plugin \"{}\": {why}", dynamic_resources::NAME))
}
