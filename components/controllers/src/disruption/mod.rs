//! Writes the status of PodDisruptionBudgets, from which the API server decides whether a pod may be evicted.

mod expected;

#[cfg(test)]
mod tests;

use crate::get_answers::{self, GetAnswers, NeedsGet};
use crate::planted::{Bug, planted};
use crate::subject::Subject;
use expected::ExpectedPods;
pub(crate) use expected::selector_text;
use holdfast_value::{Map, Value, json};
use holdfast_world::selector::selected_places;
use holdfast_world::views::Condition;
use holdfast_world::views::{
    Definition, Deployment, Pod, PodDisruptionBudget, ReplicaSet, ReplicationController, StatefulSet,
};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, PlannedEvent, Refusal, Resource, Stamp, Time, Verb, View, Viewed,
    World,
};
use std::collections::BTreeMap;

const ALLOWED: &str = "DisruptionAllowed";
const TARGET: &str = "DisruptionTarget";
/// An index of budgets by the pods that they select.
const SELECTORS: &str = "selectors";
/// Keys with this prefix name pods. No budget's name has the prefix, because names contain no slash.
const POD: &str = "pod/";
/// For this many seconds after the eviction of a pod the pod counts as disrupted, even if it still exists. After that
/// time it counts as a running pod again.
const DELETION_SECONDS: i64 = 120;

#[derive(Default)]
pub struct Disruption {
    answers: GetAnswers,
    /// Events about pods that several budgets select, by the key of the plan that writes them: one Event for each
    /// change of such a pod.
    several: BTreeMap<Key, Vec<PlannedEvent>>,
}

impl Controller for Disruption {
    fn name(&self) -> &'static str {
        "disruption-controller"
    }

    fn queue(&self) -> &'static str {
        "disruption"
    }

    fn component(&self) -> &'static str {
        "controllermanager"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            PodDisruptionBudget::resource().clone(),
            Pod::resource().clone(),
            ReplicationController::resource().clone(),
            ReplicaSet::resource().clone(),
            Deployment::resource().clone(),
            StatefulSet::resource().clone(),
            Definition::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        world.index_labels::<Pod>();
        get_answers::index(world);
        world.index::<PodDisruptionBudget>(SELECTORS, |object| match object.view::<PodDisruptionBudget>() {
            Some(budget) => selected_places(&object.meta.namespace, &budget.spec.selector),
            None => Vec::new(),
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<PodDisruptionBudget>() {
            keys.add(change.key.clone());
        } else if change.is_of::<Pod>() {
            let Some(pod) = change.newest().and_then(Viewed::<Pod>::of) else { return };
            let covering: Vec<_> = budgets(world, pod).collect();
            covering.iter().for_each(|budget| keys.add(budget.object.key()));
            // If the pod's labels did not change, the budgets that select the pod are the same as before the change.
            let moved = change.before::<Pod>().filter(|before| before.meta().labels != pod.meta().labels);
            let left = moved.into_iter().flat_map(|before| budgets(world, before));
            left.for_each(|budget| keys.add(budget.object.key()));
            let note = several_note(pod, &covering);
            if note.is_some() || change.after::<Pod>().and_then(target).is_some() {
                let key = Key::new(&change.key.namespace, &format!("{POD}{}", change.key.name));
                self.several.entry(key.clone()).or_default().extend(note);
                keys.add(key);
            }
        } else {
            owners_changed(world, change, keys);
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        if let Some(name) = key.name.strip_prefix(POD) {
            let notes = self.several.remove(key).unwrap_or_default();
            return Plan { events: notes, ..plan_pod(world, &Key::new(&key.namespace, name), stamp.time) };
        }
        let Some(budget) = world.get::<PodDisruptionBudget>(key) else {
            self.answers.forget(key);
            return Plan::default();
        };
        let pods = world.select::<Pod>(&key.namespace, &budget.spec.selector);
        match expected::expected(world, budget, &pods, self.answers.of(world, key)) {
            Err(NeedsGet(path)) => Plan { gets: vec![path], ..Plan::default() },
            Ok(expected) => {
                self.answers.forget(key);
                plan_budget(budget, &pods, expected, stamp.time)
            }
        }
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }
}

/// The budgets that select a pod.
fn budgets<'w>(world: &'w World, pod: Viewed<'w, Pod>) -> impl Iterator<Item = Viewed<'w, PodDisruptionBudget>> {
    world.selecting::<PodDisruptionBudget>(SELECTORS, pod.meta(), |budget| &budget.spec.selector).into_iter()
}

/// Adds the budgets that select the pods of a controller whose number of replicas changed, because a percentage may now
/// be another number of pods.
fn owners_changed(world: &World, change: &Change, keys: &mut Keys) {
    let replicas = |object: &Option<std::sync::Arc<holdfast_world::Object>>| {
        let object = object.as_ref()?;
        let replicas = object.view::<ReplicaSet>().and_then(|view| view.spec.replicas);
        let replicas = replicas.or_else(|| object.view::<Deployment>().and_then(|view| view.spec.replicas));
        let replicas = replicas.or_else(|| object.view::<StatefulSet>().and_then(|view| view.spec.replicas));
        replicas.or_else(|| object.view::<ReplicationController>().and_then(|view| view.spec.replicas))
    };
    let Some(object) = change.newest().filter(|_| replicas(&change.before) != replicas(&change.after)) else { return };
    let sets = world.owned::<ReplicaSet>(&object.meta.uid).map(|set| set.meta().uid.as_str());
    for uid in sets.chain([object.meta.uid.as_str()]) {
        for pod in world.owned::<Pod>(uid) {
            budgets(world, pod).for_each(|budget| keys.add(budget.object.key()));
        }
    }
}

fn plan_budget(
    budget: Viewed<'_, PodDisruptionBudget>,
    pods: &[Viewed<'_, Pod>],
    expected: ExpectedPods,
    now: Time,
) -> Plan {
    let mut plan = Plan::default();
    let subject = Subject::from(budget);
    if pods.is_empty() {
        plan.events.push(subject.normal("NoPods", "No matching pods found".into()));
    }
    let (expected, desired) = match expected {
        ExpectedPods::Counted { expected, desired, unmanaged } => {
            if unmanaged {
                plan.events.push(subject.warning("UnmanagedPods", unmanaged_message(budget)));
            }
            (expected, desired)
        }
        ExpectedPods::Unknown(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            plan.events.push(subject.warning("CalculateExpectedPodCountFailed", message));
            plan.steps.extend(fail_safe(budget, &why, now).map(|action| vec![action]));
            return plan;
        }
    };
    let disrupted = disrupted(budget, pods, now, &mut plan);
    let is_staying = |pod: &&Viewed<'_, Pod>| {
        !pod.meta().is_deleting() && !disrupted.contains_key(&pod.meta().name) || planted(Bug::EvictedPodsCount)
    };
    // A pod on a node that is lost may have the condition Ready for ever, so the pod must not have ended either.
    let is_well = |pod: &&Viewed<'_, Pod>| pod.is_ready() && !pod.is_finished() || planted(Bug::UnreadyCountsAsHealthy);
    let is_healthy = |pod: &&Viewed<'_, Pod>| is_staying(pod) && is_well(pod);
    let healthy = pods.iter().filter(is_healthy).count() as i64;
    let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
    let action = subject.status(|status| {
        let counts = [
            ("disruptionsAllowed", allowed),
            ("currentHealthy", healthy),
            ("desiredHealthy", desired),
            ("expectedPods", expected),
            ("observedGeneration", budget.meta().generation),
        ];
        status.extend(counts.map(|(field, count)| (field.to_owned(), count.into())));
        match disrupted.is_empty() {
            true => status.remove("disruptedPods"),
            false => status.insert("disruptedPods", json!(disrupted)),
        };
        let reason = if allowed > 0 { "SufficientPods" } else { "InsufficientPods" };
        set_condition(status, allowed > 0, reason, "", now);
    });
    plan.steps.extend(action.map(|action| vec![action]));
    plan
}

/// Evicted pods that still exist. A pod that should be deleted by now counts again, and is reported.
fn disrupted(
    budget: Viewed<'_, PodDisruptionBudget>,
    pods: &[Viewed<'_, Pod>],
    now: Time,
    plan: &mut Plan,
) -> BTreeMap<String, Value> {
    let mut left = BTreeMap::new();
    let known = part_of_status(budget);
    for pod in pods.iter().filter(|pod| !pod.meta().is_deleting()) {
        let name = &pod.meta().name;
        let Some(time) = budget.view.status.disrupted_pods.get(name) else { continue };
        let end = time.plus_seconds(DELETION_SECONDS);
        if end <= now {
            let meta = budget.meta();
            let message =
                format!("Pod was expected by PDB {}/{} to be deleted but it wasn't", meta.namespace, meta.name);
            plan.events.push(Subject::from(*pod).warning("NotDeleted", message));
        } else {
            plan.requeue_at(end);
            left.insert(name.clone(), known[name].clone());
        }
    }
    left
}

/// The part of a budget's status that lists the evicted pods.
fn part_of_status(budget: Viewed<'_, PodDisruptionBudget>) -> Value {
    match budget.view.status.disrupted_pods.is_empty() {
        true => Value::Null,
        false => crate::subject::part(budget.object, &["status", "disruptedPods"]),
    }
}

/// Sets the status of a budget whose number of expected pods is unknown: no pod may be evicted.
fn fail_safe(budget: Viewed<'_, PodDisruptionBudget>, why: &str, now: Time) -> Option<Action> {
    Subject::from(budget).status(|status| {
        let counts = ["currentHealthy", "desiredHealthy", "expectedPods"];
        counts.iter().for_each(|field| _ = status.entry(*field).or_insert(0.into()));
        status.insert("disruptionsAllowed", 0.into());
        set_condition(status, false, "SyncFailed", why, now);
    })
}

fn set_condition(status: &mut Map, allowed: bool, reason: &str, message: &str, now: Time) {
    let value = if allowed { "True" } else { "False" };
    let generation = status.get("observedGeneration").cloned().unwrap_or(0.into());
    let mut condition = json!({"type": ALLOWED, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": now});
    if generation != 0 {
        condition["observedGeneration"] = generation;
    }
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == ALLOWED) {
        Some(known) => {
            if known["status"] == value {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

fn unmanaged_message(budget: Viewed<'_, PodDisruptionBudget>) -> String {
    let selector = crate::subject::part(budget.object, &["spec", "selector"]);
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of \
         the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please \
         set \".spec.minAvailable\" field of the PDB to an integer value.",
        selector_text(&selector)
    )
}

/// The time at which a pod got the condition `DisruptionTarget`, which announces the pod's end. `None` if the pod does
/// not have the condition, is being deleted or has ended.
fn target(pod: Viewed<'_, Pod>) -> Option<Time> {
    let condition = Condition::find(&pod.view.status.conditions, TARGET)?;
    let is_meant = condition.status == "True" && condition.reason != "TerminationByKubelet";
    let is_open = is_meant && !pod.meta().is_deleting() && !pod.is_finished();
    // A condition without a time counts as having been set in 1970.
    is_open.then(|| condition.last_transition_time.unwrap_or(Time::from_second(0)))
}

/// The Event that reports that several budgets select a pod; the API server refuses to evict such a pod.
fn several_note(pod: Viewed<'_, Pod>, covering: &[Viewed<'_, PodDisruptionBudget>]) -> Option<PlannedEvent> {
    let [first, _, ..] = covering else { return None };
    let message = format!(
        "Pod {}/{} matches multiple PodDisruptionBudgets.  Chose {} arbitrarily.",
        Value::from(pod.meta().namespace.as_str()),
        Value::from(pod.meta().name.as_str()),
        Value::from(first.meta().name.as_str())
    );
    Some(Subject::from(pod).warning("MultiplePodDisruptionBudgets", message))
}

fn plan_pod(world: &World, key: &Key, now: Time) -> Plan {
    let mut plan = Plan::default();
    let Some(pod) = world.get::<Pod>(key) else { return plan };
    let Some(since) = target(pod) else { return plan };
    let end = since.plus_seconds(DELETION_SECONDS);
    if now < end {
        plan.requeue_at(end);
        return plan;
    }
    let condition = json!({"type": TARGET, "status": "False", "reason": null, "message": null,
        "lastTransitionTime": now});
    let meta = pod.meta();
    let patch = json!({
        "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "status": {"conditions": [condition]},
    });
    plan.then(Action::new(Pod::resource(), key.clone(), Verb::StrategicPatch(patch)).subresource("status"));
    plan
}
