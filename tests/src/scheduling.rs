//! Plays recorded scenarios in a small cluster against a server with a scheduler, and compares the outcomes of the
//! pods.
//!
//! No other component runs: this player acts as the volume controller, and as the kubelet that removes victims.

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The kinds in scenarios, with the paths of their objects, and whether they are in namespaces.
const KINDS: [(&str, &str, bool); 22] = [
    ("Node", "api/v1/nodes", false),
    ("Pod", "api/v1/pods", true),
    ("Service", "api/v1/services", true),
    ("Namespace", "api/v1/namespaces", false),
    ("ReplicationController", "api/v1/replicationcontrollers", true),
    ("ServiceAccount", "api/v1/serviceaccounts", true),
    ("PersistentVolume", "api/v1/persistentvolumes", false),
    ("PersistentVolumeClaim", "api/v1/persistentvolumeclaims", true),
    ("ReplicaSet", "apis/apps/v1/replicasets", true),
    ("StatefulSet", "apis/apps/v1/statefulsets", true),
    ("StorageClass", "apis/storage.k8s.io/v1/storageclasses", false),
    ("CSINode", "apis/storage.k8s.io/v1/csinodes", false),
    ("CSIDriver", "apis/storage.k8s.io/v1/csidrivers", false),
    ("CSIStorageCapacity", "apis/storage.k8s.io/v1/csistoragecapacities", true),
    ("VolumeAttachment", "apis/storage.k8s.io/v1/volumeattachments", false),
    ("PodDisruptionBudget", "apis/policy/v1/poddisruptionbudgets", true),
    ("PriorityClass", "apis/scheduling.k8s.io/v1/priorityclasses", false),
    ("RuntimeClass", "apis/node.k8s.io/v1/runtimeclasses", false),
    ("DeviceClass", "apis/resource.k8s.io/v1/deviceclasses", false),
    ("ResourceSlice", "apis/resource.k8s.io/v1/resourceslices", false),
    ("ResourceClaim", "apis/resource.k8s.io/v1/resourceclaims", true),
    ("ResourceClaimTemplate", "apis/resource.k8s.io/v1/resourceclaimtemplates", true),
];
const PROTECTED: [&str; 3] = ["PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"];
const PAUSE: Duration = Duration::from_millis(20);
/// How long a decision may take before it counts as missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for a decision that may never come.
const SHORT: Duration = Duration::from_secs(3);

/// The kind, namespace and name of an object.
type ObjectId = (String, String, String);

fn path(place: &ObjectId) -> String {
    let (kind, namespace, name) = place;
    let (_, path, namespaced) = KINDS.iter().find(|row| row.0 == kind).unwrap_or_else(|| panic!("{kind} is unknown"));
    let (group, plural) = path.rsplit_once('/').expect("a plural");
    let scope = if *namespaced { format!("/namespaces/{namespace}") } else { String::new() };
    let slash = if name.is_empty() { "" } else { "/" };
    format!("/{group}{scope}/{plural}{slash}{name}")
}

fn place(object: &Value, kind: &Value) -> ObjectId {
    let text = |value: &Value, usual: &str| value.as_str().unwrap_or(usual).to_owned();
    (text(kind, ""), text(&object["namespace"], "default"), text(&object["name"], ""))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub struct Player {
    client: Client,
    uids: BTreeMap<String, String>,
    made: Vec<ObjectId>,
}

/// The parts of a pod's outcome that are compared.
#[derive(Debug, Default)]
struct PodOutcome {
    node: Value,
    reason: Value,
    message: Value,
    nominated: Value,
    victims: BTreeSet<String>,
    then: Value,
}

impl Player {
    /// A player on a server with the objects that all scenarios need.
    pub async fn new(client: Client, fixtures: &Value) -> Player {
        let mut player = Player { client, uids: BTreeMap::new(), made: Vec::new() };
        for object in list(fixtures) {
            player.create(object).await;
            if object["kind"] == "Namespace" {
                let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": object["metadata"]["name"]}});
                player.create(&account).await;
            }
        }
        player.made.clear();
        player
    }

    /// Plays a scenario, and returns the differences from the recorded outcomes.
    pub async fn play(&mut self, scenario: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        for object in list(&scenario["objects"]) {
            self.create(object).await;
        }
        let mut outcomes = list(&scenario["outcomes"]);
        for step in list(&scenario["steps"]) {
            let Some(got) = self.step(step, scenario).await else { continue };
            let Some(wanted) = outcomes.next() else {
                differences.push("one outcome too many".into());
                break;
            };
            differences.extend(compare(wanted, &got));
            // If another one of the best nodes was chosen, later outcomes cannot be compared.
            if wanted["node"].is_string() && wanted["node"] != got.node {
                break;
            }
        }
        self.clean().await;
        differences
    }

    async fn step(&mut self, step: &Value, scenario: &Value) -> Option<PodOutcome> {
        let waited = step["pod"].as_str().map(|name| {
            let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
            ("Pod".to_owned(), namespace.to_owned(), name.to_owned())
        });
        match step["op"].as_str().expect("an operation") {
            "schedule" => {
                let mut others = BTreeMap::new();
                for one in self.made.clone().iter().filter(|one| one.0 == "Pod") {
                    if let Some(pod) = self.get(one).await {
                        others.insert(one.clone(), pod["metadata"]["deletionTimestamp"].is_string());
                    }
                }
                let pod = place(&self.create(&step["object"]).await["metadata"], &"Pod".into());
                let decided = self.decided(&pod, None, PATIENCE).await;
                let prioritized = list(&scenario["objects"])
                    .chain([&step["object"]])
                    .any(|object| object["spec"]["priorityClassName"].is_string());
                return Some(match prioritized && decided["status"]["nominatedNodeName"].is_string() {
                    true if decided["spec"]["nodeName"].is_null() => self.preempted(&pod, decided, others).await,
                    _ => outcome(&decided),
                });
            }
            "create" => _ = self.create(&step["object"]).await,
            op => {
                let before = match &waited {
                    Some(pod) => self.get(pod).await,
                    None => None,
                };
                let place = place(step, &step["kind"]);
                if op == "delete" {
                    let keep = step["keepFinalizers"] == true;
                    let grace = if step.get("grace").is_some_and(Value::is_null) {
                        None
                    } else {
                        step["grace"].as_i64().or(Some(0))
                    };
                    self.delete(&place, grace, keep).await;
                } else {
                    let subresource = if step["status"] == true { "/status" } else { "" };
                    let patch = self.filled(&step["patch"]);
                    let form = step["type"].as_str().unwrap_or("application/merge-patch+json");
                    let (code, answer) =
                        self.send(Method::PATCH, &(path(&place) + subresource), Some(&patch), form).await;
                    assert!(code < 300, "{answer}");
                }
                return self.woken(waited?, before).await;
            }
        }
        let before = self.get(waited.as_ref()?).await;
        self.woken(waited?, before).await
    }

    /// The outcome of a waiting pod after an event.
    async fn woken(&mut self, pod: ObjectId, before: Option<Value>) -> Option<PodOutcome> {
        let before = before?;
        if before["spec"]["nodeName"].is_string() {
            return None;
        }
        Some(outcome(&self.decided(&pod, Some(&condition(&before)), SHORT).await))
    }

    /// The pod once it is bound, once its condition differs from `before`, or once `patience` is over.
    async fn decided(&mut self, pod: &ObjectId, before: Option<&Value>, patience: Duration) -> Value {
        let began = Instant::now();
        let (mut turn, mut gated_turns) = (0, 0);
        loop {
            let Some(now) = self.get(pod).await else { return Value::Null };
            let condition = condition(&now);
            if now["spec"]["nodeName"].is_string() || began.elapsed() > patience {
                return now;
            }
            if condition["status"] == "False" {
                gated_turns += usize::from(condition["reason"] == "SchedulingGated");
                let given_back = "deallocation of ResourceClaim completed";
                let goes_on = condition["message"].as_str().is_some_and(|text| text.contains(given_back)) && turn < 100;
                match condition["reason"] == "SchedulingGated" {
                    true if gated_turns > 10 => return now,
                    false if !goes_on && before.is_none_or(|before| *before != condition) => return now,
                    _ => {}
                }
            }
            turn += 1;
            if turn % 5 == 0 {
                self.bind_volumes().await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The outcome for a pod that preempts others: its victims, and its node after the victims are gone.
    async fn preempted(&mut self, pod: &ObjectId, decided: Value, others: BTreeMap<ObjectId, bool>) -> PodOutcome {
        let mut outcome = outcome(&decided);
        let mut victims: BTreeSet<ObjectId> = BTreeSet::new();
        let (began, mut quiet) = (Instant::now(), 0);
        while began.elapsed() < SHORT && quiet < 6 {
            let known = victims.len();
            for (other, _) in others.iter().filter(|(_, goes)| !**goes) {
                if self.get(other).await.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string()) {
                    victims.insert(other.clone());
                }
            }
            quiet = if victims.is_empty() || victims.len() > known { 0 } else { quiet + 1 };
            tokio::time::sleep(PAUSE).await;
        }
        for victim in &victims {
            outcome.victims.insert(format!("{}/{}", victim.1, victim.2));
            self.delete(victim, Some(0), false).await;
        }
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let Some(now) = self.get(pod).await else { break };
            outcome.then = now["spec"]["nodeName"].clone();
            if outcome.then.is_string() {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        outcome
    }

    /// Acts as the volume controller for claims whose pods have a node.
    async fn bind_volumes(&mut self) {
        let claims: Vec<ObjectId> = self.made.iter().filter(|one| one.0 == "PersistentVolumeClaim").cloned().collect();
        for place in claims {
            let Some(claim) = self.get(&place).await.filter(|claim| claim["spec"]["volumeName"].is_null()) else {
                continue;
            };
            let (_, volumes) = self.send(Method::GET, "/api/v1/persistentvolumes", None, "").await;
            let is_held = |volume: &&Value| {
                let (holder, annotations) = (&volume["spec"]["claimRef"], &volume["metadata"]["annotations"]);
                holder["name"] == *place.2
                    && holder["namespace"] == *place.1
                    && annotations["pv.kubernetes.io/bound-by-controller"].is_string()
            };
            let mut volume = list(&volumes["items"]).find(is_held).cloned();
            if volume.is_none() && claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string() {
                let holder = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": place.1, "name": place.2,
                    "uid": claim["metadata"]["uid"]});
                let made = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("made-for-{}", place.2)},
                    "spec": {"capacity": claim["spec"]["resources"]["requests"], "accessModes": claim["spec"]["accessModes"],
                    "storageClassName": claim["spec"]["storageClassName"], "claimRef": holder,
                    "csi": {"driver": "made.example.com", "volumeHandle": format!("made-{}", place.2)}}});
                volume = Some(self.create(&made).await);
            }
            let Some(volume) = volume else { continue };
            let name = &volume["metadata"]["name"];
            let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": name}});
            self.merge(&path(&place), &bound).await;
            let status = json!({"status": {"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": volume["spec"]["capacity"]}});
            self.merge(&(path(&place) + "/status"), &status).await;
            let volume = ("PersistentVolume".into(), String::new(), name.as_str().unwrap_or_default().to_owned());
            self.merge(&(path(&volume) + "/status"), &json!({"status": {"phase": "Bound"}})).await;
        }
    }

    /// Replaces texts that stand for an object's UID.
    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match text.strip_prefix("@uid:") {
                Some(name) => self.uids.get(name).map_or("00000000-0000-0000-0000-000000000001", String::as_str).into(),
                None => value.clone(),
            },
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), self.filled(value))).collect())
            }
            other => other.clone(),
        }
    }

    async fn create(&mut self, object: &Value) -> Value {
        let mut object = self.filled(object);
        let place = place(&object["metadata"], &object["kind"]);
        let status = object["status"].clone();
        if place.0 != "Node"
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        let whole = path(&(place.0.clone(), place.1.clone(), String::new()));
        let version = whole.trim_start_matches("/apis/").trim_start_matches("/api/");
        let version = version.split("/namespaces/").next().unwrap_or_default();
        let (group, _) =
            if whole.contains("/namespaces/") { (version, "") } else { version.rsplit_once('/').expect("a plural") };
        object["apiVersion"] = group.into();
        let (mut code, mut made) = self.send(Method::POST, &whole, Some(&object), "application/json").await;
        if code == 409 {
            self.delete(&place, Some(0), false).await;
            (code, made) = self.send(Method::POST, &whole, Some(&object), "application/json").await;
        }
        assert!(code < 300 || code == 409, "{place:?}: {made}");
        let namespaced = KINDS.iter().any(|row| row.0 == place.0 && row.2);
        let scope = if namespaced { format!("{}/", place.1) } else { String::new() };
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.uids.insert(format!("{}/{scope}{}", place.0, place.2), uid);
        self.made.push(place.clone());
        if place.0 == "Node" {
            let taints = object["spec"]["taints"].clone();
            let wanted = if taints.is_null() { json!([]) } else { taints };
            if object["spec"]["unschedulable"] != true {
                self.merge(&path(&place), &json!({"spec": {"taints": wanted}})).await;
            }
        } else if !status.is_null() {
            self.merge(&(path(&place) + "/status"), &json!({"status": status})).await;
        }
        made
    }

    async fn delete(&mut self, place: &ObjectId, grace: Option<i64>, keep: bool) {
        let unprotected = json!({"metadata": {"finalizers": null}});
        let is_protected = PROTECTED.contains(&place.0.as_str()) && !keep;
        if is_protected {
            self.merge(&path(place), &unprotected).await;
        }
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        if let Some(grace) = grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        self.send(Method::DELETE, &path(place), Some(&options), "application/json").await;
        if is_protected {
            self.merge(&path(place), &unprotected).await;
        }
    }

    /// Deletes all created objects, pods first.
    async fn clean(&mut self) {
        let mut made = std::mem::take(&mut self.made);
        made.sort_by_key(|place| place.0 != "Pod");
        for place in &made {
            self.delete(place, Some(0), false).await;
        }
        self.uids.clear();
    }

    async fn get(&self, place: &ObjectId) -> Option<Value> {
        let (code, object) = self.send(Method::GET, &path(place), None, "").await;
        (code == 200).then_some(object)
    }

    async fn merge(&self, path: &str, patch: &Value) {
        self.send(Method::PATCH, path, Some(patch), "application/merge-patch+json").await;
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>, form: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("Content-Type", form);
        let body = body.map(ToString::to_string).unwrap_or_default();
        let request = request.body(Body::from(body.into_bytes())).expect("a request");
        let response: Response<Body> = self.client.send(request).await.expect("an answer");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }
}

/// The pod's condition PodScheduled.
fn condition(pod: &Value) -> Value {
    let found = list(&pod["status"]["conditions"]).find(|one| one["type"] == "PodScheduled");
    found
        .map_or(Value::Null, |one| json!({"status": one["status"], "reason": one["reason"], "message": one["message"]}))
}

fn outcome(pod: &Value) -> PodOutcome {
    let condition = condition(pod);
    PodOutcome {
        node: pod["spec"]["nodeName"].clone(),
        reason: condition["reason"].clone(),
        message: if condition["status"] == "False" { condition["message"].clone() } else { Value::Null },
        nominated: pod["status"]["nominatedNodeName"].clone(),
        ..PodOutcome::default()
    }
}

/// The differences between a recorded outcome and the outcome of a pod.
fn compare(wanted: &Value, got: &PodOutcome) -> Vec<String> {
    let condition = &wanted["condition"];
    let message = if condition["status"] == "False" { &condition["message"] } else { &Value::Null };
    let victims: BTreeSet<String> =
        list(&wanted["victims"]).map(|one| one["pod"].as_str().unwrap_or_default().to_owned()).collect();
    // Any node with the best score is accepted.
    let one_of =
        |own: &Value, best: &str, one: &str| *own == wanted[one] || list(&wanted[best]).any(|best| best == own);
    let same_victims = got.nominated == wanted["nominated"];
    let checks = [
        ("node", one_of(&got.node, "best", "node"), &wanted["node"], &got.node),
        ("message", *message == got.message, message, &got.message),
        ("reason", condition["reason"] == got.reason, &condition["reason"], &got.reason),
        ("nominated", one_of(&got.nominated, "nominatedBest", "nominated"), &wanted["nominated"], &got.nominated),
        ("then", !same_victims || wanted["then"]["node"] == got.then, &wanted["then"]["node"], &got.then),
    ];
    let told = checks.into_iter().filter(|(_, same, ..)| !same);
    let mut differences: Vec<String> =
        told.map(|(what, _, wanted, got)| format!("{what}: {wanted}, not {got}")).collect();
    if same_victims && victims != got.victims {
        differences.push(format!("victims: {victims:?}, not {:?}", got.victims));
    }
    differences
}
