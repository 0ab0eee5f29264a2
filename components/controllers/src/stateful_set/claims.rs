//! The PersistentVolumeClaims of each pod of a StatefulSet, and the claims' owners.

use super::{Sync, names};
use crate::subject::{self, Subject};
use holdfast_value::{Map, Value, json};
use holdfast_world::views::{PersistentVolumeClaim, Pod, StatefulSet};
use holdfast_world::{Action, Change, Key, Keys, OwnerReference, PlannedEvent, Refused, Verb, View, Viewed, World};
use std::collections::BTreeMap;

/// The claim templates in the spec of a set.
pub fn templates(set: Viewed<'_, StatefulSet>) -> Vec<Value> {
    match subject::part(set.object, &["spec", "volumeClaimTemplates"]) {
        Value::Array(templates) => templates,
        _ => Vec::new(),
    }
}

/// Adds the sets that a claim's change concerns, if the claim was created or deleted, or its owners changed.
pub fn concerned(world: &World, change: &Change, keys: &mut Keys) {
    let owners = |object: &Option<_>| {
        object.as_ref().map(|object: &std::sync::Arc<holdfast_world::Object>| object.meta.owner_references.clone())
    };
    if owners(&change.before) == owners(&change.after) {
        return;
    }
    let sets = names::sets_of(&change.key.name).map(|set| Key::new(&change.key.namespace, set));
    sets.filter(|set| world.get::<StatefulSet>(set).is_some()).for_each(|set| keys.add(set));
}

/// Events about pods that are not created because the creation of their claims was refused, one Event for each pod. For
/// a pod that exists already there is no Event: such a pod only waits for its claims.
pub fn pod_failure_events(world: &World, set: Viewed<'_, StatefulSet>, refused: &[Refused]) -> Vec<PlannedEvent> {
    let mut faults: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for Refused { action, refusal } in refused {
        let is_claim = action.resource == *PersistentVolumeClaim::resource();
        let is_made = matches!(action.verb, Verb::Create(_)) && !refusal.is("AlreadyExists");
        let pod = names::pod_of(&action.key.name, &set.meta().name).filter(|_| is_claim && is_made);
        let absent = pod.filter(|pod| world.get::<Pod>(&Key::new(&action.key.namespace, pod)).is_none());
        if let Some(pod) = absent {
            let fault = format!("failed to create PVC {}: {}", action.key.name, refusal.message);
            faults.entry(pod).or_default().push(fault);
        }
    }
    faults.into_iter().map(|(pod, faults)| cannot_create(set, &pod, faults)).collect()
}

/// The Event that a pod is not created because of its claims.
pub fn cannot_create(set: Viewed<'_, StatefulSet>, pod: &str, mut faults: Vec<String>) -> PlannedEvent {
    let why = match faults.len() {
        1 => faults.remove(0),
        _ => format!("[{}]", faults.join(", ")),
    };
    let message = format!("Create Pod {pod} in StatefulSet {} failed error: {why}", set.meta().name);
    Subject::from(set).warning("FailedCreate", message)
}

/// Which object should own a claim, by the retention policy of the set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holder {
    Nobody,
    Set,
    Pod,
}

impl<'w> Sync<'w> {
    fn claim_keys(&self, ordinal: i64) -> impl Iterator<Item = (&Value, Key)> {
        let set = self.set.meta();
        self.claim_templates.iter().map(move |template| {
            let template_name = template["metadata"]["name"].as_str().unwrap_or_default();
            (template, Key::new(&set.namespace, &names::claim(template_name, &set.name, ordinal)))
        })
    }

    fn claim(&self, key: &Key) -> Option<Viewed<'w, PersistentVolumeClaim>> {
        self.world.get(key)
    }

    /// The writes that create a pod's missing claims, and the names of those of its claims that are being deleted.
    pub fn missing_claims(&self, ordinal: i64) -> (Vec<Action>, Vec<String>) {
        let (mut missing, mut leaving) = (Vec::new(), Vec::new());
        for (template, key) in self.claim_keys(ordinal) {
            match self.claim(&key) {
                Some(claim) if claim.meta().is_deleting() => leaving.push(claim.meta().name.clone()),
                Some(_) => {}
                None => missing.push(self.create_claim(template, key, ordinal)),
            }
        }
        (missing, leaving)
    }

    fn create_claim(&self, template: &Value, key: Key, ordinal: i64) -> Action {
        let mut claim = template.clone();
        let mut labels: Map = claim["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let selected =
            self.claim_labels.get_or_init(|| subject::part(self.set.object, &["spec", "selector", "matchLabels"]));
        labels.extend(selected.as_object().cloned().unwrap_or_default());
        claim["apiVersion"] = PersistentVolumeClaim::resource().api_version().into();
        claim["kind"] = PersistentVolumeClaim::resource().kind().into();
        claim["metadata"]["name"] = (*key.name).into();
        claim["metadata"]["namespace"] = (*key.namespace).into();
        claim["metadata"]["labels"] = labels.into();
        let (pod, set) = (self.pod_name(ordinal), &self.set.meta().name);
        let message = format!("Create Claim {} Pod {pod} in StatefulSet {set} success", key.name);
        let note = self.subject().normal("SuccessfulCreate", message);
        Action::new(PersistentVolumeClaim::resource(), key, Verb::Create(claim)).with_event(note)
    }

    /// Whether a claim for this ordinal belongs to an earlier pod and will be deleted with that pod. The pod to be
    /// created has no uid yet, so any pod that owns the claim is an earlier pod.
    pub fn has_stale_claims(&self, ordinal: i64) -> bool {
        let pod = self.pod_name(ordinal);
        let is_stale = |claim: Viewed<'_, PersistentVolumeClaim>| {
            claim.meta().owner_references.iter().any(|owner| is_pod(owner, &pod))
        };
        self.set.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete"
            && self.claim_keys(ordinal).any(|(_, key)| self.claim(&key).is_some_and(is_stale))
    }

    /// Sets the owner of a pod's claims by the retention policy: the set, the pod if it is no longer wanted, or no
    /// owner. If an Event `told` is given, it is written with the last update of a claim.
    pub fn set_claim_owners(&mut self, ordinal: i64, pod: Viewed<'w, Pod>, told: Option<PlannedEvent>) {
        let holder = self.holder(ordinal);
        let mut updates: Vec<Action> = Vec::new();
        let keys: Vec<Key> = self.claim_keys(ordinal).map(|(_, key)| key).collect();
        for claim in keys.iter().filter_map(|key| self.world.get::<PersistentVolumeClaim>(key)) {
            let (ours, others): (Vec<&OwnerReference>, Vec<&OwnerReference>) =
                claim.meta().owner_references.iter().partition(|owner| self.is_ours(owner, pod));
            let has_other_keeper = others.iter().any(|owner| {
                owner.controller || is_pod(owner, &pod.meta().name) || self.has_the_name_of_the_set(owner)
            });
            let wanted = match holder {
                _ if has_other_keeper => None,
                Holder::Nobody => None,
                Holder::Set => Some(self.subject()),
                Holder::Pod => Some(Subject::from(pod)),
            };
            let is_settled = match (&ours[..], wanted) {
                ([], None) => true,
                ([only], Some(wanted)) => only.controller && only.uid == wanted.object.meta.uid,
                _ => false,
            };
            // If the claim's owner stays as it is, an Event reports the conflict only while the pod is pending.
            let is_looked_at = !is_settled || pod.status.phase == "Pending";
            if has_other_keeper && is_looked_at && self.retains_nothing_always() {
                let message = format!(
                    "PersistentVolumeClaim {} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim",
                    claim.meta().name
                );
                self.plan.events.push(self.subject().warning("ConflictingController", message));
            }
            if !is_settled {
                updates.push(self.with_owner(claim, pod, wanted));
            }
        }
        if let Some(last) = updates.last_mut() {
            last.event = told;
        }
        updates.into_iter().for_each(|update| self.plan.then(update));
    }

    fn with_owner(
        &self,
        claim: Viewed<'w, PersistentVolumeClaim>,
        pod: Viewed<'w, Pod>,
        wanted: Option<Subject<'_>>,
    ) -> Action {
        let mut document = claim.object.document();
        let mut owners = document["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.retain(|owner| owner["uid"] != self.set.meta().uid && owner["uid"] != pod.meta().uid);
        owners.extend(wanted.map(|wanted| wanted.reference()));
        document["metadata"]["ownerReferences"] = if owners.is_empty() { Value::Null } else { json!(owners) };
        Subject::from(claim).update(document)
    }

    fn holder(&self, ordinal: i64) -> Holder {
        let policy = &self.set.spec.persistent_volume_claim_retention_policy;
        let is_condemned = !self.pods.ordinals().contains(&ordinal);
        match (policy.when_scaled.as_str(), policy.when_deleted.as_str()) {
            ("Delete", _) if is_condemned => Holder::Pod,
            (_, "Delete") => Holder::Set,
            _ => Holder::Nobody,
        }
    }

    fn retains_nothing_always(&self) -> bool {
        let policy = &self.set.spec.persistent_volume_claim_retention_policy;
        policy.when_scaled == "Delete" || policy.when_deleted == "Delete"
    }

    fn is_ours(&self, owner: &OwnerReference, pod: Viewed<'_, Pod>) -> bool {
        owner.uid == self.set.meta().uid || owner.uid == pod.meta().uid
    }

    fn has_the_name_of_the_set(&self, owner: &OwnerReference) -> bool {
        crate::claim::names_kind::<StatefulSet>(owner) && owner.name == self.set.meta().name
    }
}

fn is_pod(owner: &OwnerReference, name: &str) -> bool {
    crate::claim::names_kind::<Pod>(owner) && owner.name == name
}
