//! Plays Stages for objects of all kinds except Pods and Nodes.
//!
//! Only Stages determine which kinds are needed, so the controller does not know the kinds at the start. It watches
//! only the metadata of objects, and for each plan reads the object in the version that its Stages name.

use crate::stage::{About, Stage};
use crate::stages::{Script, StageDecision, StagedObject, note};
use crate::template::Surroundings;
use holdfast_value::Value;
use holdfast_world::{
    Change, Controller, ExtraKinds, Key, Keys, Object, Plan, Refusal, Refused, Resource, Stamp, Text, Time, World,
};
use std::collections::{BTreeMap, HashMap};

/// The kinds for which other controllers play Stages.
const ALIVE: [&str; 2] = ["Node", "Pod"];

/// The controller that plays the Stages of all other kinds. A key consists of an API version and the UID of an object.
#[derive(Default)]
pub struct OtherKinds {
    scripts: BTreeMap<About, Script>,
    /// The kind of each Stage, by the Stage's name.
    stages: HashMap<Text, About>,
    /// The resource version of each object that is being read, and the result when it has arrived. The next plan uses
    /// and removes the result.
    read: HashMap<Key, (String, Option<Result<Value, Refusal>>)>,
    /// The time at which this process started, which templates can read.
    began: Option<Time>,
}

impl OtherKinds {
    /// Applies a change of a Stage. The objects of its kind, and of the kind that it had before, are planned again.
    fn apply_stage_change(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let name = &change.key.name;
        let stage = change.after.as_ref().and_then(|object| Stage::parse(&object.document()).ok());
        let after = stage.map(|stage| stage.about).filter(|about| !lives(about));
        let before = match &after {
            Some(about) => self.stages.insert(name.clone(), about.clone()),
            None => self.stages.remove(name),
        };
        if let Some(about) = &after {
            self.scripts.entry(about.clone()).or_insert_with(|| Script::new(about.clone()));
        }
        for about in before.iter().chain(after.iter().filter(|after| before.as_ref() != Some(after))) {
            let Some(script) = self.scripts.get_mut(about) else { continue };
            script.apply_change(change);
            if script.is_empty() {
                self.scripts.remove(about);
            }
            let resources = world.resources().filter(|resource| about.is_of(resource));
            let objects = resources.flat_map(|resource| world.objects(resource));
            objects.for_each(|object| keys.add(key_of(about, object)));
        }
    }

    /// The object of a key, and its resource in the version that its Stages name.
    fn found<'w>(world: &'w World, key: &Key) -> Option<(About, Resource, &'w Object)> {
        let (resource, object) = world.by_uid(&key.name)?;
        let about = About::new(&key.namespace, resource.kind());
        let (group, version) = about.group_version();
        let resource = Resource::new(group, version, resource.plural(), resource.kind(), resource.namespaced());
        Some((about, resource, object))
    }
}

fn lives(about: &About) -> bool {
    &*about.api_version == "v1" && ALIVE.contains(&&*about.kind)
}

fn key_of(about: &About, object: &Object) -> Key {
    Key::new(&about.api_version, &object.meta.uid)
}

/// The API path of an object.
fn path(resource: &Resource, object: &Object) -> String {
    let group = if resource.group().is_empty() { "/api" } else { "/apis" };
    let namespace = match resource.namespaced() {
        true => format!("/namespaces/{}", object.meta.namespace),
        false => String::new(),
    };
    format!("{group}/{}{namespace}/{}/{}", resource.api_version(), resource.plural(), object.meta.name)
}

impl Controller for OtherKinds {
    acts_as_kubelet!("simulated-objects");

    fn resources(&self) -> Vec<Resource> {
        vec![crate::stages::resource()]
    }

    fn extra_kinds(&self) -> ExtraKinds {
        let kind = |about: &About| (about.group_version().0.into(), about.kind.clone());
        ExtraKinds::Kinds(self.scripts.keys().map(kind).collect())
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.resource == crate::stages::resource() {
            self.apply_stage_change(world, change, keys);
            return;
        }
        for (about, script) in self.scripts.iter_mut().filter(|(about, _)| about.is_of(&change.resource)) {
            let gone = change
                .before
                .as_ref()
                .filter(|before| change.after.as_ref().is_none_or(|after| after.meta.uid != before.meta.uid));
            if let Some(gone) = gone {
                let key = key_of(about, gone);
                script.forget(&key);
                self.read.remove(&key);
            }
            if let Some(object) = &change.after {
                keys.add(key_of(about, object));
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let began = *self.began.get_or_insert(stamp.time);
        let read = self.read.remove(key);
        let Some((about, resource, object)) = OtherKinds::found(world, key) else { return plan };
        let Some(script) = self.scripts.get_mut(&about) else { return plan };
        let version = &object.meta.resource_version;
        let Some(read) = read.filter(|(known, _)| known == version).and_then(|(_, read)| read) else {
            plan.gets.push(path(&resource, object));
            self.read.insert(key.clone(), (version.clone(), None));
            return plan;
        };
        match read {
            Ok(document) => {
                let seen = StagedObject { resource: &resource, key: key.clone(), object, document: &document };
                if let StageDecision::Stages(staged) =
                    script.decide(&seen, false, stamp, &TemplateData { began, stamp })
                {
                    plan = staged;
                }
                plan.events.extend(script.take_events());
                plan
            }
            // Either the object was deleted, and a change will report the deletion, or the version is not served.
            Err(refusal) if refusal.is_not_found() => plan,
            Err(refusal) => {
                let message = format!("its Stages cannot be played: {}", refusal.message);
                plan.events.push(note(&resource, &object.meta, "StageFailed", message));
                plan.unready = true;
                plan
            }
        }
    }

    fn answered(&mut self, key: &Key, _: &str, answer: Result<Value, Refusal>) {
        if let Some((_, read)) = self.read.get_mut(key) {
            *read = Some(answer);
        }
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let Some((about, resource, object)) = OtherKinds::found(world, key) else { return Plan::default() };
        let script = self.scripts.get_mut(&about);
        script.map_or_else(Plan::default, |script| script.refused(key, &resource, &object.meta, refused))
    }
}

/// The data that templates can read for an object of a kind other than Pod and Node.
struct TemplateData {
    began: Time,
    stamp: Stamp,
}

impl Surroundings for TemplateData {
    fn now(&self) -> String {
        self.stamp.time.0.to_string()
    }

    fn start_time(&self) -> String {
        self.began.to_string()
    }

    fn node_ip(&self, _: Option<&str>) -> String {
        String::new()
    }

    fn node_name(&self) -> String {
        String::new()
    }

    fn pod_ip(&self, _: Option<&str>, _: bool, _: &str) -> String {
        String::new()
    }

    fn chance(&self) -> u64 {
        self.stamp.seed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reports;
    use holdfast_core::object::yaml;
    use holdfast_value::json;
    use holdfast_world::Trial;

    fn cluster() -> Trial {
        let mut trial = Trial::new();
        trial.create(crate::stage::definition());
        trial.step();
        trial.with(OtherKinds::default()).with(Reports)
    }

    fn stage(trial: &mut Trial, name: &str, spec: &str) {
        let spec: Value = yaml::read(spec).expect("YAML");
        trial.create(json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name},
            "spec": spec}));
    }

    fn define(trial: &mut Trial, subresources: Value) {
        trial.create(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}));
        trial.run();
    }

    fn widget(name: &str, annotations: Value) -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "annotations": annotations}})
    }

    const READY: &str = r#"
resourceRef: {apiGroup: example.com/v1, kind: Widget}
selector:
  matchExpressions:
  - {key: '.status.phase', operator: DoesNotExist}
  - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
delay:
  durationMilliseconds: 5000
  durationFrom: {expressionFrom: '.metadata.annotations["ready-after"]'}
next:
  finalizers: {add: [{value: example.com/kept}]}
  event: {type: Normal, reason: Assembled, message: it is whole}
  statusTemplate: |
    phase: Ready
    name: {{ .metadata.name | Quote }}
"#;
    const GONE: &str = r#"
resourceRef: {apiGroup: example.com/v1, kind: Widget}
selector: {matchExpressions: [{key: '.metadata.deletionTimestamp', operator: Exists}]}
steps:
- finalizers: {empty: true}
- delete: true
"#;

    #[test]
    fn objects_of_a_custom_kind_live_by_their_stages() {
        let mut trial = cluster();
        stage(&mut trial, "ready", READY);
        stage(&mut trial, "gone", GONE);
        define(&mut trial, json!({"status": {}}));
        trial.create(widget("a", json!({})));
        trial.create(widget("b", json!({"ready-after": "60s"})));
        let phase = |trial: &Trial, name: &str| trial.get("widgets.example.com", name)["status"]["phase"].clone();
        trial.run_for(4);
        assert_eq!((phase(&trial, "a"), phase(&trial, "b")), (Value::Null, Value::Null));
        trial.run_for(2);
        assert_eq!((phase(&trial, "a"), phase(&trial, "b")), (json!("Ready"), Value::Null));
        trial.run_for(60);
        let b = trial.get("widgets.example.com", "b");
        assert_eq!(b["status"], json!({"phase": "Ready", "name": "b"}));
        assert_eq!(b["metadata"]["finalizers"], json!(["example.com/kept"]));
        let told: Vec<Value> =
            trial.list("events").iter().map(|event| event["involvedObject"]["kind"].clone()).collect();
        assert_eq!(told, ["Widget", "Widget"]);
        trial.delete("widgets.example.com", "a");
        trial.run();
        assert_eq!(trial.names("widgets.example.com"), ["b"]);
        // When the last finalizer was removed, the server deleted the widget. So further writes may only be refused
        // because the widget does not exist.
        assert!(trial.take_refused().iter().all(|refused| refused.refusal.is_not_found()));
    }

    #[test]
    fn what_the_server_refuses_is_told_and_tried_less_and_less() {
        let mut trial = cluster();
        define(&mut trial, json!({}));
        trial.create(widget("a", json!({})));
        let patching = |root: &str, template: &str| {
            let patch = json!({"root": root, "template": template});
            json!({"spec": {"resourceRef": {"apiGroup": "example.com/v1", "kind": "Widget"}, "next": {"patches": [patch]},
                "selector": {"matchExpressions": [{"key": ".ready", "operator": "DoesNotExist"}]}}})
        };
        stage(&mut trial, "s", &patching("metadata", "labels: {a: '!'}")["spec"].to_string());
        trial.run_for(1000);
        let (told, refused) = (trial.take_event_texts(), trial.take_refused());
        assert!(told[0].starts_with("Warning StageFailed Stage s cannot be played: "), "{told:?}");
        assert!((5..25).contains(&refused.len()), "{}", refused.len());
        // A Stage that changes nothing is reported once. It is played again after pauses that grow like the pauses
        // after a refusal.
        trial.patch("stages.kwok.x-k8s.io", "s", patching("metadata", "labels: {}"));
        trial.delete("widgets.example.com", "a");
        trial.create(widget("a", json!({})));
        trial.run_for(2000);
        assert_eq!(trial.take_event_texts(), ["Warning StageFailed Stage s was played, and the object is as it was"]);
        trial.patch("stages.kwok.x-k8s.io", "s", patching("ready", "since: now"));
        trial.run_for(2000);
        assert_eq!(trial.get("widgets.example.com", "a")["ready"], json!({"since": "now"}));
    }

    #[test]
    fn stages_of_several_kinds_and_versions_stand_side_by_side() {
        let mut trial = cluster();
        let available = r#"
resourceRef: {apiGroup: apps/v1, kind: Deployment}
selector: {matchLabels: {play: "yes"}, matchExpressions: [{cel: {expression: '!has(self.status.readyReplicas)'}}]}
next:
  statusTemplate: |
    readyReplicas: {{ .spec.replicas }}
    replicas: {{ .spec.replicas }}
"#;
        let slice = r#"
resourceRef: {kind: ConfigMap}
selector: {matchLabels: {play: "yes"}, matchExpressions: [{jq: {key: .data.done, operator: DoesNotExist}}]}
steps:
- apply:
    template: |
      apiVersion: v1
      kind: Secret
      metadata: {name: {{ .metadata.name }}-twin, namespace: {{ .metadata.namespace }}}
- patch: {type: json, template: '[{"op": "add", "path": "/data", "value": {"done": "yes"}}]'}
"#;
        stage(&mut trial, "available", available);
        stage(&mut trial, "slice", slice);
        let labels = json!({"play": "yes"});
        trial.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": labels}}));
        trial.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}));
        trial.create(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": labels},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "d"}}, "template": {
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
        );
        trial.run();
        assert_eq!(trial.get("deployments.apps", "d")["status"]["readyReplicas"], 3);
        assert_eq!(trial.get("configmaps", "c")["data"]["done"], "yes");
        assert_eq!(trial.names("secrets"), ["c-twin"]);
        assert!(trial.get("configmaps", "other")["data"].is_null());
        let extra_kinds = |trial: &Trial| trial.names("stages.kwok.x-k8s.io").len();
        assert_eq!(extra_kinds(&trial), 2);
        assert!(trial.take_refused().is_empty());
    }

    #[test]
    fn what_is_seen_goes_with_the_stages() {
        let mut others = OtherKinds::default();
        let (mut world, mut keys) = (World::default(), Keys::default());
        let mut tell = |others: &mut OtherKinds, kind: Option<&str>| {
            let spec = kind
                .map(|kind| json!({"resourceRef": {"apiGroup": "apps/v1", "kind": kind}, "selector": {}, "next": {}}));
            let bytes =
                spec.map(|spec| json!({"metadata": {"name": "s", "uid": "s"}, "spec": spec}).to_string().into());
            let change = world.apply(&crate::stages::resource(), Key::cluster("s"), bytes, 1, Time::from_second(1));
            others.concerns(&world, &change, &mut keys);
        };
        assert!(others.extra_kinds().is_none());
        tell(&mut others, Some("Deployment"));
        assert!(
            others.extra_kinds().covers("apps", "Deployment") && !others.extra_kinds().covers("apps", "ReplicaSet")
        );
        tell(&mut others, Some("ReplicaSet"));
        assert!(
            !others.extra_kinds().covers("apps", "Deployment") && others.extra_kinds().covers("apps", "ReplicaSet")
        );
        tell(&mut others, None);
        assert!(others.extra_kinds().is_none());
    }
}
