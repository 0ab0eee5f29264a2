//! The usage of simulated nodes and their pods, for the API metrics.k8s.io. The usage is computed from annotations at
//! each request, and is never stored.

use crate::behaviour::{Behaviour, BehaviourSettings, PREFIX, ResourceUsage};
use crate::node::{KWOK_NODE, SIMULATED, Template};
use holdfast_core::schema::quantity;
use holdfast_core::select::{FieldSelector, LabelSelector};
use holdfast_core::state::{Entry, State};
use holdfast_value::{Map, Value, json};
use holdfast_world::{Action, Key, Resource, Time, Verb, request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashSet};

pub const GROUP: &str = "metrics.k8s.io";
pub const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// The namespace and name of the Service in the APIService. This Service does not exist: this process answers the
/// requests that the API server would send to the Service.
pub const SERVICE: (&str, &str) = ("kube-system", "simulated-metrics");
/// KWOK's annotations about the usage of each container of a pod, each with the name of the setting that has the same
/// meaning.
const KWOK_USAGE: [(&str, &str); 2] =
    [("kwok.x-k8s.io/usage-cpu", "usage-cpu"), ("kwok.x-k8s.io/usage-memory", "usage-memory")];
/// The period to which the reported usage refers. It is the shortest period that clients accept, because the usage at
/// each moment is known.
const WINDOW: &str = "1s";

/// The action that registers the API metrics.k8s.io, unless the API is registered for another server.
pub fn api_service() -> Action {
    let resource = Resource::new("apiregistration.k8s.io", "v1", "apiservices", "APIService", false);
    let name = format!("v1beta1.{GROUP}");
    let (namespace, service) = SERVICE;
    let object = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind(), "metadata": {"name": name},
        "spec": {
            "group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": {"namespace": namespace, "name": service, "port": 443},
        },
    });
    Action::new(&resource, Key::cluster(&name), Verb::Create(object))
}

/// The action that removes the API's registration, for a cluster that no longer has simulated nodes.
pub fn without(state: &State) -> Option<Action> {
    let Action { resource, key, .. } = api_service();
    let (_, entry) = request::find(state, &resource, &key)?;
    let document = entry.document();
    let service = &document["spec"]["service"];
    let is_ours = service["namespace"] == SERVICE.0 && service["name"] == SERVICE.1;
    let uid = document["metadata"]["uid"].as_str().map(Into::into);
    let verb = Verb::Delete { uid, version: None, propagation: None, grace_seconds: None };
    is_ours.then(|| Action::new(&resource, key, verb))
}

/// The part of the API metrics.k8s.io that a path names.
#[derive(Debug, PartialEq, Eq)]
enum MetricsPath<'a> {
    Group,
    Resources,
    Nodes { name: Option<&'a str> },
    Pods { namespace: Option<&'a str>, name: Option<&'a str> },
}

impl MetricsPath<'_> {
    fn of(path: &str) -> Option<MetricsPath<'_>> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let rest = parts.strip_prefix(&["apis", GROUP])?;
        Some(match rest {
            [] => MetricsPath::Group,
            ["v1beta1"] => MetricsPath::Resources,
            ["v1beta1", "nodes"] => MetricsPath::Nodes { name: None },
            ["v1beta1", "nodes", name] => MetricsPath::Nodes { name: Some(name) },
            ["v1beta1", "pods"] => MetricsPath::Pods { namespace: None, name: None },
            ["v1beta1", "namespaces", namespace, "pods"] => {
                MetricsPath::Pods { namespace: Some(namespace), name: None }
            }
            ["v1beta1", "namespaces", namespace, "pods", name] => {
                MetricsPath::Pods { namespace: Some(namespace), name: Some(name) }
            }
            _ => return None,
        })
    }
}

/// The objects that a request selects, by labels and fields.
#[derive(Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selection {
    /// Parses the query parameters `labelSelector` and `fieldSelector`.
    pub fn parse(labels: &str, fields: &str) -> Result<Selection, String> {
        Ok(Selection { labels: LabelSelector::parse(labels)?, fields: FieldSelector::parse(fields)? })
    }

    fn takes(&self, meta: &Meta, entry: &Entry) -> bool {
        let field = |name: &str| match name {
            "metadata.name" => meta.name.clone(),
            "metadata.namespace" => meta.namespace.clone(),
            _ => String::new(),
        };
        self.labels.matches_by(|key| entry.index.label(key)) && self.fields.matches(field)
    }
}

/// Answers a GET request with an HTTP status and a document.
pub fn answer(
    state: &State,
    template: &Template,
    path: &str,
    selection: Result<Selection, String>,
    now: Time,
) -> (u16, Value) {
    let Some(asked) = MetricsPath::of(path) else {
        return not_found("the server could not find the requested resource");
    };
    let selection = match selection {
        Ok(selection) => selection,
        Err(why) => return status(400, "BadRequest", &why),
    };
    let cluster = MeasuredCluster { state, template, selection, now };
    match asked {
        MetricsPath::Group => (200, group()),
        MetricsPath::Resources => (200, resources()),
        MetricsPath::Nodes { name } => {
            let nodes = cluster.nodes(name);
            one_or_all("NodeMetrics", nodes, name.map(|name| format!("nodes.{GROUP} \"{name}\" not found")))
        }
        MetricsPath::Pods { namespace, name } => {
            let pods = cluster.pods(namespace, name);
            let shown = |name: &str| format!("pods.{GROUP} \"{}/{name}\" not found", namespace.unwrap_or_default());
            one_or_all("PodMetrics", pods, name.map(shown))
        }
    }
}

/// The answer to a request. If the request names an object, the answer is this object, or an error if the object does
/// not exist; otherwise the answer is the list.
fn one_or_all(kind: &str, mut items: Vec<Value>, missing: Option<String>) -> (u16, Value) {
    match (missing, items.pop()) {
        (None, last) => {
            items.extend(last);
            let kind = format!("{kind}List");
            (200, json!({"kind": kind, "apiVersion": API_VERSION, "metadata": {}, "items": items}))
        }
        (Some(_), Some(mut only)) => {
            only["kind"] = kind.into();
            only["apiVersion"] = API_VERSION.into();
            (200, only)
        }
        (Some(missing), None) => not_found(&missing),
    }
}

fn not_found(message: &str) -> (u16, Value) {
    status(404, "NotFound", message)
}

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    (code, status)
}

fn group() -> Value {
    let version = json!({"groupVersion": API_VERSION, "version": "v1beta1"});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": [version], "preferredVersion": version})
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API_VERSION,
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)]})
}

/// The part of an object's metadata on which the usage depends.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    labels: Map,
    annotations: BTreeMap<String, String>,
    creation_timestamp: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: Meta,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MeasuredPod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl Node {
    fn is_simulated(&self) -> bool {
        let said = |name: &str, value: &str| self.metadata.annotations.get(name).is_some_and(|said| said == value);
        said(SIMULATED, "true") || said(KWOK_NODE.0, KWOK_NODE.1)
    }
}

impl MeasuredPod {
    /// The usage of each running container of a pod, with the container's name.
    fn usages(&self, template: &Template) -> Vec<(&str, ResourceUsage)> {
        let annotations = &self.metadata.annotations;
        let kwok = KWOK_USAGE.iter().filter_map(|(name, word)| Some((*word, annotations.get(*name)?.as_str())));
        let own = annotations.iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?, value.as_str())));
        let told = BehaviourSettings::parse(kwok.chain(own));
        let sidecars = self.spec.init_containers.iter().filter(|container| container.restart_policy == "Always");
        let running = self.spec.containers.iter().chain(sidecars);
        running
            .map(|container| {
                let behaviour = Behaviour::of(&container.name, &template.pods, &told);
                (container.name.as_str(), behaviour.usage)
            })
            .collect()
    }
}

/// The state of the cluster, and the objects that the request selects.
struct MeasuredCluster<'a> {
    state: &'a State,
    template: &'a Template,
    selection: Selection,
    now: Time,
}

impl MeasuredCluster<'_> {
    /// The objects of a kind whose keys have this prefix, or the object that has this key.
    fn objects<'s, T: DeserializeOwned>(
        &'s self,
        plural: &str,
        within: &'s str,
        key: Option<&str>,
    ) -> Vec<(T, &'s Entry)> {
        let Some((kind, _)) = self.state.registry.find("", "v1", plural) else { return Vec::new() };
        let read =
            |entry: &'s std::sync::Arc<Entry>| Some((serde_json::from_slice(&entry.json()).ok()?, entry.as_ref()));
        match key {
            Some(key) => self.state.get(kind, key).and_then(read).into_iter().collect(),
            None => self.state.scan(kind, within, None).filter_map(|(_, entry)| read(entry)).collect(),
        }
    }

    fn pods(&self, namespace: Option<&str>, name: Option<&str>) -> Vec<Value> {
        let simulated = self.simulated();
        let within = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
        let key = name.map(|name| format!("{within}{name}"));
        let mut found = Vec::new();
        for (pod, entry) in self.objects::<MeasuredPod>("pods", &within, key.as_deref()) {
            if pod.status.phase != "Running"
                || !simulated.contains(&pod.spec.node_name)
                || !self.selection.takes(&pod.metadata, entry)
            {
                continue;
            }
            let usages = pod.usages(self.template);
            let containers: Vec<Value> =
                usages.iter().map(|(name, usage)| json!({"name": name, "usage": shown(*usage)})).collect();
            let mut item = self.item(pod.metadata);
            item["containers"] = containers.into();
            found.push(item);
        }
        found
    }

    fn nodes(&self, name: Option<&str>) -> Vec<Value> {
        let mut used: BTreeMap<String, ResourceUsage> = BTreeMap::new();
        for (pod, _) in self.objects::<MeasuredPod>("pods", "", None) {
            if pod.status.phase == "Running" && name.is_none_or(|name| name == pod.spec.node_name) {
                let sum = used.entry(pod.spec.node_name.clone()).or_default();
                pod.usages(self.template).into_iter().for_each(|(_, usage)| sum.add(usage));
            }
        }
        let mut found = Vec::new();
        for (node, entry) in self.objects::<Node>("nodes", "", name) {
            if node.is_simulated() && self.selection.takes(&node.metadata, entry) {
                let usage = used.get(&node.metadata.name).copied().unwrap_or_default();
                let mut item = self.item(node.metadata);
                item["usage"] = shown(usage);
                found.push(item);
            }
        }
        found
    }

    /// The names of the simulated nodes.
    fn simulated(&self) -> HashSet<String> {
        let nodes = self.objects::<Node>("nodes", "", None).into_iter();
        nodes.filter(|(node, _)| node.is_simulated()).map(|(node, _)| node.metadata.name).collect()
    }

    fn item(&self, of: Meta) -> Value {
        let mut meta = json!({"name": of.name, "creationTimestamp": of.creation_timestamp});
        if !of.namespace.is_empty() {
            meta["namespace"] = of.namespace.into();
        }
        if !of.labels.is_empty() {
            meta["labels"] = of.labels.into();
        }
        json!({"metadata": meta, "timestamp": self.now, "window": WINDOW})
    }
}

fn shown(usage: ResourceUsage) -> Value {
    let written = |text: String| quantity::canonical(&text).unwrap_or(text);
    let ResourceUsage { cpu_nanos, memory_bytes } = usage;
    json!({"cpu": written(format!("{cpu_nanos}n")), "memory": written(format!("{}Ki", memory_bytes.div_ceil(1024)))})
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    fn trial() -> Trial {
        let mut trial = Trial::new();
        for (name, annotation) in [("real", "other"), ("node-0", SIMULATED)] {
            trial.create(json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "annotations": {annotation: "true"}}}));
        }
        let mut pod = |name: &str, node: &str, annotations: Value| {
            trial.create(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": name}, "annotations": annotations},
                "spec": {"nodeName": node, "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}}));
            trial.patch_status("pods", name, json!({"phase": "Running"}));
        };
        pod("quiet", "node-0", json!({}));
        pod("kwok", "node-0", json!({"kwok.x-k8s.io/usage-cpu": "200m", "kwok.x-k8s.io/usage-memory": "many"}));
        pod(
            "own",
            "node-0",
            json!({
            "kwok.x-k8s.io/usage-cpu": "7", "simulate.holdfast.dev/usage-cpu": "250m",
            "simulate.holdfast.dev/usage-memory.b": "1Gi", "simulate.holdfast.dev/usage-cpu.b": "-1"}),
        );
        pod("elsewhere", "real", json!({}));
        trial
    }

    fn ask(trial: &Trial, path: &str, labels: &str) -> (u16, Value) {
        let template = Template::parse("pods: {usage-memory: 2Mi}").expect("a template");
        answer(&trial.state, &template, path, Selection::parse(labels, ""), trial.now())
    }

    fn usages(item: &Value) -> Vec<(&str, &str)> {
        let containers = item["containers"].as_array().expect("containers").iter();
        containers
            .map(|container| {
                let usage = &container["usage"];
                (usage["cpu"].as_str().expect("text"), usage["memory"].as_str().expect("text"))
            })
            .collect()
    }

    #[test]
    fn what_annotations_tell_is_used() {
        let trial = trial();
        let (code, list) = ask(&trial, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods", "");
        let items = list["items"].as_array().expect("items");
        let names: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        assert_eq!((code, names), (200, vec!["kwok", "own", "quiet"]), "of nodes that are simulated");
        assert_eq!(usages(&items[0]), [("200m", "2Mi"), ("200m", "2Mi")], "what is not understood is not heeded");
        assert_eq!(usages(&items[1]), [("250m", "2Mi"), ("250m", "1Gi")]);
        assert_eq!(usages(&items[2]), [("1m", "2Mi"), ("1m", "2Mi")]);
        let (_, list) = ask(&trial, "/apis/metrics.k8s.io/v1beta1/pods", "app in (own)");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_node_uses_what_its_pods_use() {
        let trial = trial();
        let (_, list) = ask(&trial, "/apis/metrics.k8s.io/v1beta1/nodes", "");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
        let (code, node) = ask(&trial, "/apis/metrics.k8s.io/v1beta1/nodes/node-0", "");
        assert_eq!((code, &node["usage"]), (200, &json!({"cpu": "902m", "memory": "1034Mi"})));
        assert_eq!(node["kind"], "NodeMetrics");
    }

    #[test]
    fn the_api_goes_with_the_nodes_that_it_was_for() {
        let mut trial = Trial::new();
        assert!(without(&trial.state).is_none());
        trial.user_acts(api_service()).expect("it is made");
        let action = without(&trial.state).expect("it is taken away");
        trial.user_acts(action).expect("it goes");
        assert!(without(&trial.state).is_none());
        let mut other = api_service();
        if let Verb::Create(object) = &mut other.verb {
            object["spec"]["service"]["name"] = "metrics-server".into();
        }
        trial.user_acts(other).expect("another server's is made");
        assert!(without(&trial.state).is_none(), "that one stays");
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let trial = trial();
        for (path, labels, expected, why) in [
            ("/apis/metrics.k8s.io/v1beta1/nodes/real", "", 404, "nodes.metrics.k8s.io \"real\" not found"),
            (
                "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/x",
                "",
                404,
                "pods.metrics.k8s.io \"default/x\" not found",
            ),
            ("/apis/metrics.k8s.io/v1beta1/leases", "", 404, "could not find the requested resource"),
            ("/openapi/v2", "", 404, "could not find the requested resource"),
            ("/apis/metrics.k8s.io/v1beta1/pods", "a in", 400, "unable to parse requirement"),
        ] {
            let (code, status) = ask(&trial, path, labels);
            let message = status["message"].as_str().unwrap_or_default();
            assert!(code == expected && message.contains(why), "{path}: {code} {message}");
        }
        assert_eq!(ask(&trial, "/apis/metrics.k8s.io/v1beta1/", "").1["kind"], "APIResourceList");
        assert_eq!(ask(&trial, "/apis/metrics.k8s.io", "").1["kind"], "APIGroup");
    }
}
