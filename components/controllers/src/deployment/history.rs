//! The revisions of a Deployment. Each template has a number, and its ReplicaSet is kept until there are too many newer
//! ReplicaSets.

use super::set::{DESIRED, MAX, Set, TEMPLATE_HASH};
use super::status::{PROGRESSING, has_deadline};
use super::{Flow, GO_ON, REVISION, ROLLBACK_TO, STOP, Sync};
use crate::conditions::Conditions;
use crate::subject::Subject;
use crate::{hash, pods};
use holdfast_value::{Map, json};
use holdfast_world::views::ReplicaSet;
use holdfast_world::{Action, Key, Plan, Refused, Verb, View};
use std::collections::BTreeMap;

/// The annotation of a ReplicaSet with the revision numbers that it had before its template became the newest again.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const REVISION_HISTORY_MAX: usize = 2000;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const NAME_MAX: usize = 253;

/// Whether an annotation belongs to one object alone, and is not copied between Deployment and ReplicaSet.
pub fn is_own(annotation: &str) -> bool {
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED, MAX, ROLLBACK_TO].contains(&annotation)
}

impl Sync<'_> {
    /// The revision number of the present template: one more than the highest number of the old sets.
    fn revision(&self) -> i64 {
        self.old.iter().map(Set::revision).max().unwrap_or(0).saturating_add(1)
    }

    /// Copies the Deployment's annotations to the new set, gives the new set the highest revision number, and writes
    /// that number to the Deployment.
    pub fn set_revision(&mut self) -> Flow {
        let Some(set) = &self.new else { return GO_ON };
        let annotations = self.annotations_of(set);
        let min_ready_seconds = self.deployment.spec.min_ready_seconds;
        if annotations != *set.seen.meta().annotations || set.seen.spec.min_ready_seconds != min_ready_seconds {
            let mut document = set.seen.object.document();
            document["metadata"]["annotations"] = json!(annotations);
            document["spec"]["minReadySeconds"] = min_ready_seconds.into();
            let update = Subject::from(set.seen).update(document);
            self.then(update);
            return STOP;
        }
        let revision = set.seen.meta().annotation(REVISION).unwrap_or_default();
        let message = format!("Found new replica set \"{}\"", set.name());
        let is_found = has_deadline(&self.deployment) && !self.has_condition(PROGRESSING);
        if is_found || self.deployment.meta().annotation(REVISION) != Some(revision) {
            self.write_revision(revision, |conditions, now| {
                if is_found {
                    conditions.set(PROGRESSING, "True", "FoundNewReplicaSet", message, now);
                }
            });
        }
        GO_ON
    }

    /// The annotations that the new set should have.
    fn annotations_of(&self, set: &Set<'_>) -> BTreeMap<String, String> {
        let mut annotations = BTreeMap::clone(&set.seen.meta().annotations);
        annotations.extend(self.handed_down());
        let (known, revision) = (annotations.get(REVISION).cloned(), self.revision());
        let known_revision = known.as_deref().map_or(Some(0), |text| text.parse().ok());
        if known_revision.is_some_and(|known| known < revision) {
            annotations.insert(REVISION.into(), revision.to_string());
            if let Some(former) = known.filter(|former| !former.is_empty()) {
                let history = annotations.remove(REVISION_HISTORY).unwrap_or_default();
                annotations.insert(REVISION_HISTORY.into(), with_former(&history, &former));
            }
        }
        annotations
    }

    fn handed_down(&self) -> impl Iterator<Item = (String, String)> {
        let own = self.deployment.meta().annotations.iter();
        own.filter(|(name, _)| !is_own(name)).map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Writes the template's number as an annotation of the Deployment, in the same request as the status.
    fn write_revision(&mut self, revision: &str, change: impl FnOnce(&mut Conditions, holdfast_world::Time)) {
        if self.wrote_status {
            return;
        }
        let mut document = self.deployment.object.document();
        document["metadata"]["annotations"][REVISION] = revision.into();
        let mut status: Map = holdfast_value::from_value(document["status"].take()).unwrap_or_default();
        let mut conditions = Conditions::take(&mut status);
        change(&mut conditions, self.stamp.time);
        conditions.put(&mut status);
        document["status"] = status.into();
        self.wrote_status = true;
        let action = self.subject().update(document).subresource("status");
        self.then(action);
    }

    /// Creates a ReplicaSet for the template if there is none.
    pub fn ensure_new_set(&mut self) -> Flow {
        if self.new.is_some() {
            return GO_ON;
        }
        let collisions = self.deployment.status.collision_count.unwrap_or(0);
        let hash = hash::of(self.template(), collisions);
        let mut name = self.deployment.meta().name.clone();
        name.truncate(NAME_MAX - hash.len() - 1);
        let key = Key::new(&self.deployment.meta().namespace, &format!("{name}-{hash}"));
        if self.world.get::<ReplicaSet>(&key).is_some() {
            // The name belongs to another owner, or to another template: the next plan makes another name, with a
            // higher collision count.
            self.write_status(|status| _ = status.insert("collisionCount", collisions.saturating_add(1).into()));
            return STOP;
        }
        let (size, revision) = (self.new_size(0), self.revision());
        let creation = self.creation(key.clone(), &hash, size, revision);
        self.then(creation);
        let message = format!("Created new replica set \"{}\"", key.name);
        let tells = has_deadline(&self.deployment);
        self.write_revision(&revision.to_string(), |conditions, now| {
            if tells {
                conditions.set(PROGRESSING, "True", "NewReplicaSetCreated", message, now);
            }
        });
        STOP
    }

    fn creation(&self, key: Key, hash: &str, size: i64, revision: i64) -> Action {
        let mut annotations: BTreeMap<String, String> = self.handed_down().collect();
        annotations.insert(REVISION.into(), revision.to_string());
        annotations.insert(DESIRED.into(), self.replicas().to_string());
        annotations.insert(MAX.into(), self.max_replicas().to_string());
        let mut template = self.template().clone();
        template["metadata"]["labels"][TEMPLATE_HASH] = hash.into();
        let mut selector = crate::subject::part(self.deployment.object, &["spec", "selector"]);
        selector["matchLabels"][TEMPLATE_HASH] = hash.into();
        let document = json!({
            "apiVersion": ReplicaSet::resource().api_version(),
            "kind": ReplicaSet::resource().kind(),
            "metadata": {
                "name": &*key.name,
                "namespace": &*key.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [self.subject().reference()],
            },
            "spec": {
                "replicas": size,
                "minReadySeconds": self.deployment.spec.min_ready_seconds,
                "selector": selector,
                "template": template,
            },
        });
        let message = format!("Scaled up replica set {} from 0 to {size}", key.name);
        let action = Action::new(ReplicaSet::resource(), key, Verb::Create(document));
        if size > 0 { action.with_event(self.subject().normal("ScalingReplicaSet", message)) } else { action }
    }

    /// Deletes the oldest sets beyond the limit. A set with pods, or whose status is older than its spec, stays.
    pub fn forget_old_sets(&mut self) {
        let limit = self.deployment.spec.revision_history_limit.filter(|limit| *limit != i64::from(i32::MAX));
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return };
        let mut kept: Vec<&Set<'_>> = self.old.iter().filter(|set| !set.seen.meta().is_deleting()).collect();
        kept.sort_by_key(|set| (set.revision(), set.age()));
        kept.truncate(kept.len().saturating_sub(limit));
        let is_unused = |set: &&&Set<'_>| {
            let status = &set.seen.status;
            status.replicas == 0 && set.replicas == 0 && set.seen.meta().generation <= status.observed_generation
        };
        let deletions = kept.iter().filter(is_unused).map(|set| Subject::from(set.seen).delete()).collect();
        self.plan.together(deletions);
    }
}

/// Appends a former revision number to a set's history, and drops the oldest numbers if the history becomes too long.
fn with_former(history: &str, former: &str) -> String {
    let mut all: Vec<&str> = history.split(',').filter(|number| !number.is_empty()).chain([former]).collect();
    while all.len() > 1 && all.iter().map(|number| number.len() + 1).sum::<usize>() - 1 > REVISION_HISTORY_MAX {
        all.remove(0);
    }
    all.join(",")
}

/// Reports a refused creation of a ReplicaSet. If the set exists already, the next plan handles the existing set.
pub fn cannot_create(mut sync: Sync<'_>, creation: &Refused) -> Plan {
    sync.plan = Plan::default();
    if creation.refusal.is("AlreadyExists") || pods::is_expected(creation) {
        return sync.plan;
    }
    let (reason, name) = ("ReplicaSetCreateError", &creation.action.key.name);
    let message = format!("Failed to create new replica set \"{name}\": {}", creation.refusal.message);
    sync.plan.events.push(sync.subject().warning(reason, message.clone()));
    if has_deadline(&sync.deployment) {
        let now = sync.stamp.time;
        sync.write_conditions(|conditions| conditions.set(PROGRESSING, "False", reason, message, now));
    }
    sync.plan
}

#[cfg(test)]
mod tests {
    use super::with_former;

    #[test]
    fn the_oldest_numbers_are_dropped() {
        assert_eq!(with_former("", "1"), "1");
        assert_eq!(with_former("1,3", "5"), "1,3,5");
        let long = vec!["1000"; 400].join(",");
        assert_eq!(long.len(), 1999);
        assert_eq!(with_former(&long, "2000").len(), 1999);
        assert!(with_former(&long, "2000").ends_with("1000,2000"));
    }
}
