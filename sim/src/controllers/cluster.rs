//! The simulated server: a trial cluster, which applies the core's rules, and its current objects for the oracles.

use holdfast_core::kinds::KindId;
use holdfast_core::object::meta;
use holdfast_core::state::{self, Entry};
use holdfast_value::Value;
use holdfast_world::trial::Trial;
use holdfast_world::{Action, Actor, Key, Refusal, Resource};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

pub struct Cluster {
    pub trial: Trial,
    pub commands: u64,
    /// The load of the Deployment that metrics report; `None` if there are no metrics.
    pub load: Option<i64>,
    objects: BTreeMap<String, BTreeMap<Key, Arc<Value>>>,
    /// The resource and the key of each object, by the object's UID.
    places: BTreeMap<String, (String, Key)>,
    unseen: VecDeque<state::Change>,
}

/// One change of an object, which has a version in the log.
pub struct Event {
    pub kind: KindId,
    pub plural: String,
    pub key: Key,
    pub before: Option<Arc<Value>>,
    pub after: Option<Arc<Value>>,
    pub entry: Option<Arc<Entry>>,
    pub version: u64,
}

impl Cluster {
    pub fn new() -> Cluster {
        let mut trial = Trial::new();
        trial.take_changes();
        let (objects, places, unseen) = Default::default();
        Cluster { trial, commands: 0, load: None, objects, places, unseen }
    }

    /// Carries out a request of a controller. If `actor` is `None`, the request comes from a user who may do
    /// everything.
    pub fn act(&mut self, action: &Action, actor: Option<&Actor>) -> Result<Value, Refusal> {
        self.commands += 1;
        match actor {
            Some(actor) => self.trial.act(action, actor),
            None => self.trial.user_acts(action.clone()),
        }
    }

    /// The next change that has not been read; `None` if there is none. After the call, `objects` contains the change.
    pub fn next_event(&mut self) -> Option<Event> {
        self.unseen.extend(self.trial.take_changes());
        let change = self.unseen.pop_front()?;
        let plural = self.trial.state.kind(change.kind).resource.clone();
        let (namespace, name) = meta::split_key(&change.key);
        let key = Key::new(namespace.unwrap_or_default(), name);
        let objects = self.objects.entry(plural.clone()).or_default();
        let after = (!change.deleted).then(|| Arc::new(change.entry.document()));
        let before = match &after {
            Some(after) => objects.insert(key.clone(), after.clone()),
            None => objects.remove(&key),
        };
        before.iter().for_each(|before| _ = self.places.remove(uid(before)));
        if let Some(after) = &after {
            self.places.insert(uid(after).to_owned(), (plural.clone(), key.clone()));
        }
        let entry = (!change.deleted).then_some(change.entry);
        Some(Event { kind: change.kind, plural, key, before, after, entry, version: change.offset.0 })
    }

    pub fn all<'a>(&'a self, plural: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        self.objects.get(plural).into_iter().flat_map(|objects| objects.values().map(|object| &**object))
    }

    pub fn everything(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.objects.iter().flat_map(|(plural, objects)| objects.values().map(|object| (plural.as_str(), &**object)))
    }

    pub fn get(&self, plural: &str, key: &Key) -> Option<&Value> {
        self.objects.get(plural)?.get(key).map(|object| &**object)
    }

    pub fn named(&self, plural: &str, name: &str) -> Option<&Value> {
        self.get(plural, &Key::new("default", name)).or_else(|| self.get(plural, &Key::cluster(name)))
    }

    pub fn by_uid(&self, uid: &str) -> Option<&Value> {
        let (plural, key) = self.places.get(uid)?;
        self.get(plural, key)
    }

    /// The objects of a kind whose controlling owner has the UID `by`.
    pub fn controlled<'a>(&'a self, plural: &str, by: &'a str) -> impl Iterator<Item = &'a Value> {
        self.all(plural).filter(move |object| controller(object).is_some_and(|owner| text(&owner["uid"]) == by))
    }

    /// The Deployment that owns a ReplicaSet, or owns the ReplicaSet of a pod.
    pub fn deployment_of(&self, object: &Value) -> Option<&Value> {
        let owner = controller(object)?;
        let found = self.by_uid(text(&owner["uid"]))?;
        match text(&owner["kind"]) {
            "Deployment" => Some(found),
            "ReplicaSet" => self.deployment_of(found),
            _ => None,
        }
    }
}

pub fn resource(plural: &str) -> Resource {
    let (group, kind, namespaced) = match plural {
        "pods" => ("", "Pod", true),
        "nodes" => ("", "Node", false),
        "namespaces" => ("", "Namespace", false),
        "configmaps" => ("", "ConfigMap", true),
        "persistentvolumeclaims" => ("", "PersistentVolumeClaim", true),
        "leases" => ("coordination.k8s.io", "Lease", true),
        "replicasets" => ("apps", "ReplicaSet", true),
        "deployments" => ("apps", "Deployment", true),
        "statefulsets" => ("apps", "StatefulSet", true),
        "daemonsets" => ("apps", "DaemonSet", true),
        "jobs" => ("batch", "Job", true),
        "cronjobs" => ("batch", "CronJob", true),
        _ => unreachable!("{plural} is nothing that people here work with"),
    };
    Resource::new(group, "v1", plural, kind, namespaced)
}

pub fn key(object: &Value) -> Key {
    Key::new(text(&object["metadata"]["namespace"]), name(object))
}

pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

pub fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The number in a field, or `missing` if the field has no number.
pub fn number(value: &Value, missing: i64) -> i64 {
    value.as_i64().unwrap_or(missing)
}

pub fn controller(object: &Value) -> Option<&Value> {
    items(&object["metadata"]["ownerReferences"]).find(|owner| owner["controller"] == true)
}

pub fn is_leaving(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(&object["metadata"]["finalizers"]).any(|known| known == finalizer)
}

pub fn has_condition(object: &Value, kind: &str) -> bool {
    items(&object["status"]["conditions"]).any(|known| known["type"] == kind && known["status"] == "True")
}

/// Whether a controller has acted on the newest spec of an object, according to `observedGeneration`.
pub fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

pub fn has_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

pub fn is_active(pod: &Value) -> bool {
    !is_leaving(pod) && !has_ended(pod)
}

pub fn is_available(pod: &Value) -> bool {
    is_active(pod) && has_condition(pod, "Ready")
}

pub fn image(pod_spec: &Value) -> &str {
    text(&pod_spec["containers"][0]["image"])
}

/// The number at the end of a pod's name; -1 if there is none.
pub fn ordinal(pod: &Value) -> i64 {
    name(pod).rsplit('-').next().and_then(|end| end.parse().ok()).unwrap_or(-1)
}
