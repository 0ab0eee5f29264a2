//! Watches everything in a server, and plays the nodes of scenarios.

use super::resources::{RESOURCES, ResourceInfo, now, running};
use crate::wire::HttpClient;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The field manager under which scenarios write.
pub const AGENT: &str = "controllers-diff";

pub type ObjectPath = (String, String);

/// A change received by a watch.
#[derive(Clone)]
pub struct SeenChange {
    pub version: u64,
    pub resource: ResourceInfo,
    pub deleted: bool,
    pub place: ObjectPath,
    pub before: Option<Arc<Value>>,
    pub object: Arc<Value>,
}

/// A watched cluster, shared by all scenarios.
pub struct Cluster {
    wire: HttpClient,
    sender: tokio::sync::Mutex<Option<SendRequest<Full<Bytes>>>>,
    shown: Mutex<Shown>,
    nodes: Mutex<HashMap<String, PlayedNode>>,
}

#[derive(Default)]
struct Shown {
    objects: HashMap<ResourceInfo, BTreeMap<ObjectPath, Arc<Value>>>,
    log: Vec<SeenChange>,
    listed: HashSet<ResourceInfo>,
}

/// A node that a scenario has created. [`Cluster::live`] sends its heartbeats.
struct PlayedNode {
    alive: bool,
    runs: bool,
    number: usize,
    pods: usize,
    beat: Instant,
}

impl Cluster {
    /// Watches everything in a server with controllers, a scheduler and nodes.
    pub async fn watch(wire: HttpClient) -> Arc<Cluster> {
        let cluster = Arc::new(Cluster {
            wire,
            sender: tokio::sync::Mutex::default(),
            shown: Mutex::default(),
            nodes: Mutex::default(),
        });
        for resource in RESOURCES {
            let cluster = cluster.clone();
            tokio::spawn(async move { cluster.follow(*resource).await });
        }
        let started = Instant::now();
        while cluster.shown().listed.len() < RESOURCES.len() {
            assert!(started.elapsed() < Duration::from_secs(60), "not everything can be watched");
            sleep(Duration::from_millis(50)).await;
        }
        tokio::spawn({
            let cluster = cluster.clone();
            async move { cluster.live().await }
        });
        cluster
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn played(&self) -> MutexGuard<'_, HashMap<String, PlayedNode>> {
        self.nodes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sends a request; the code is 0 if there was no answer.
    pub async fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        content: &str,
        more: &Value,
    ) -> (u16, Value) {
        for again in [true, true, false] {
            match self.attempt(method, path, body, content, more).await {
                Ok((429, retry, _)) if retry && again && !path.ends_with("/eviction") => {
                    sleep(Duration::from_secs(1)).await
                }
                Ok((code, _, body)) => return (code, serde_json::from_slice(&body).unwrap_or_default()),
                Err(_) => *self.sender.lock().await = None,
            }
        }
        (0, Value::Null)
    }

    async fn attempt(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        content: &str,
        more: &Value,
    ) -> Result<(u16, bool, Bytes), Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::new(Full::new(body.map(|body| body.to_string().into()).unwrap_or_default()));
        *request.method_mut() = Method::from_bytes(method.as_bytes())?;
        *request.uri_mut() = format!("https://{}{path}", self.wire.address).parse()?;
        let headers: &mut HeaderMap = request.headers_mut();
        let token = self.wire.token.clone().unwrap_or_default();
        headers.insert("authorization", format!("Bearer {token}").parse()?);
        headers.insert("user-agent", HeaderValue::from_static("controllers-diff/1"));
        headers.insert("accept", HeaderValue::from_static("application/json"));
        if body.is_some() {
            headers.insert("content-type", content.parse()?);
        }
        for (name, value) in more.as_object().into_iter().flatten() {
            headers.insert(http::HeaderName::try_from(name)?, value.as_str().unwrap_or_default().parse()?);
        }
        let mut sender = {
            let mut kept = self.sender.lock().await;
            match kept.as_ref() {
                Some(sender) if !sender.is_closed() => sender.clone(),
                _ => {
                    let io = TokioIo::new(self.wire.connect().await?);
                    let (sender, connection) = handshake(TokioExecutor::new(), io).await?;
                    tokio::spawn(async move { drop(connection.await) });
                    kept.insert(sender).clone()
                }
            }
        };
        sender.ready().await?;
        let answer = tokio::time::timeout(Duration::from_secs(60), sender.send_request(request)).await??;
        let retry = answer.headers().contains_key("retry-after");
        let code = answer.status().as_u16();
        Ok((code, retry, answer.into_body().collect().await?.to_bytes()))
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None, "", &Value::Null).await
    }

    /// Lists and watches one resource, without end.
    async fn follow(&self, resource: ResourceInfo) {
        let mut version = None;
        loop {
            let known = match version.take() {
                Some(version) => version,
                None => match self.get(&resource.path("")).await {
                    (200, list) => self.listed(resource, &list),
                    (404, _) => {
                        self.shown().listed.insert(resource);
                        return;
                    }
                    _ => {
                        sleep(Duration::from_millis(500)).await;
                        continue;
                    }
                },
            };
            version = self.stream(resource, known).await;
        }
    }

    fn listed(&self, resource: ResourceInfo, list: &Value) -> String {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let mut shown = self.shown();
        let kept: HashSet<ObjectPath> = items.iter().map(place).collect();
        let gone: Vec<Arc<Value>> = shown
            .objects
            .entry(resource)
            .or_default()
            .iter()
            .filter(|(at, _)| !kept.contains(at))
            .map(|(_, object)| object.clone())
            .collect();
        items.into_iter().for_each(|item| shown.note(resource, false, item.into()));
        gone.into_iter().for_each(|object| shown.note(resource, true, object));
        shown.listed.insert(resource);
        list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
    }

    /// Watches the changes after a version. Returns the version reached, or `None` if the resource must be listed
    /// again.
    async fn stream(&self, resource: ResourceInfo, mut version: String) -> Option<String> {
        let path = format!("{}?watch=true&timeoutSeconds=300&resourceVersion={version}", resource.path(""));
        let opened = self.wire.open(Method::GET, &path, &[("accept", "application/json")], Bytes::new()).await;
        let Ok(answer) = opened else {
            sleep(Duration::from_millis(500)).await;
            return Some(version);
        };
        if answer.status() != 200 {
            sleep(Duration::from_millis(500)).await;
            return None;
        }
        let mut body = answer.into_body();
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { continue };
                if event["type"] == "ERROR" {
                    return None;
                }
                let object = event["object"].take();
                version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                if event["type"] != "BOOKMARK" {
                    self.shown().note(resource, event["type"] == "DELETED", object.into());
                }
            }
        }
        Some(version)
    }

    /// The number of changes that the watches have shown so far.
    pub fn length(&self) -> usize {
        self.shown().log.len()
    }

    /// The changes in a namespace since the log had the length `since`, and the changes of cluster-scoped objects whose
    /// names contain the namespace's name.
    pub fn history(&self, since: usize, namespace: &str) -> Vec<SeenChange> {
        let shown = self.shown();
        let mut history: Vec<SeenChange> =
            shown.log[since..].iter().filter(|seen| concerns(&seen.place, namespace)).cloned().collect();
        history.sort_by_key(|seen| seen.version);
        history
    }

    pub fn objects(&self, resource: ResourceInfo, namespace: &str) -> Vec<Arc<Value>> {
        let shown = self.shown();
        let all = shown.objects.get(&resource).into_iter().flatten();
        let ours =
            all.filter(|((of, name), _)| if resource.namespaced { of == namespace } else { name.contains(namespace) });
        ours.map(|(_, object)| object.clone()).collect()
    }

    pub fn object(&self, resource: ResourceInfo, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let of = if resource.namespaced { namespace } else { "" };
        self.shown().objects.get(&resource)?.get(&(of.to_owned(), name.to_owned())).cloned()
    }

    /// All nodes that no scenario plays.
    pub fn real_nodes(&self) -> Vec<Arc<Value>> {
        let played = self.played();
        let nodes = self.objects(ResourceInfo::named("nodes"), "");
        nodes.into_iter().filter(|node| !played.contains_key(name_of(node))).collect()
    }

    pub async fn add_node(&self, namespace: &str, step: &Value) -> u16 {
        let name = step["name"].as_str().expect("a name");
        let number = {
            let mut played = self.played();
            let number = played.len() + 1;
            let node = PlayedNode { alive: true, runs: step["run"] == true, number, pods: 0, beat: Instant::now() };
            played.insert(name.to_owned(), node);
            number
        };
        let mut labels =
            json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        for (label, value) in step["labels"].as_object().into_iter().flatten() {
            labels[label] = value.clone();
        }
        let mut taints = vec![json!({"key": "controllers-diff", "value": namespace, "effect": "NoSchedule"})];
        taints.extend(step["taints"].as_array().into_iter().flatten().cloned());
        let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
        let (code, _) = self.call("POST", "/api/v1/nodes", Some(&body), JSON, &Value::Null).await;
        self.renew(name).await;
        let time = now();
        let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "10Gi"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "kubelet is posting ready status", "lastHeartbeatTime": time, "lastTransitionTime": time}],
            "addresses": [{"type": "InternalIP", "address": format!("10.199.0.{}", number % 250 + 1)}]}});
        self.call("PATCH", &format!("/api/v1/nodes/{name}/status"), Some(&status), STRATEGIC, &Value::Null).await;
        code
    }

    pub async fn drop_node(&self, name: &str) {
        self.played().remove(name);
        self.call("DELETE", &format!("/api/v1/nodes/{name}"), None, "", &Value::Null).await;
        self.call("DELETE", &format!("{LEASES}/{name}"), None, "", &Value::Null).await;
    }

    pub fn set_alive(&self, name: &str, alive: bool) {
        if let Some(node) = self.played().get_mut(name) {
            node.alive = alive;
        }
    }

    pub async fn renew(&self, name: &str) {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time});
        let path = format!("{LEASES}/{name}");
        let (code, _) = self.call("PATCH", &path, Some(&json!({"spec": spec})), MERGE, &Value::Null).await;
        if code == 404 {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec});
            self.call("POST", LEASES, Some(&lease), JSON, &Value::Null).await;
        }
    }

    /// Sends the heartbeats of played nodes, and acts as a minimal kubelet for the pods on these nodes.
    async fn live(&self) {
        let (mut next, mut begun, mut ended) = (0, HashSet::new(), HashSet::new());
        loop {
            let due: Vec<String> = {
                let mut played = self.played();
                let due =
                    played.iter_mut().filter(|(_, node)| node.alive && node.beat.elapsed() > Duration::from_secs(8));
                due.map(|(name, node)| {
                    node.beat = Instant::now();
                    name.clone()
                })
                .collect()
            };
            for name in due {
                self.renew(&name).await;
            }
            for pod in self.news_of_pods(&mut next) {
                self.keep(&pod, &mut begun, &mut ended).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The newest version of each changed pod.
    fn news_of_pods(&self, next: &mut usize) -> Vec<Arc<Value>> {
        let shown = self.shown();
        let news = shown.log[*next..].iter().filter(|seen| seen.resource.plural == "pods" && !seen.deleted);
        let newest: BTreeMap<&ObjectPath, Arc<Value>> = news.map(|seen| (&seen.place, seen.object.clone())).collect();
        *next = shown.log.len();
        newest.into_values().collect()
    }

    async fn keep(&self, pod: &Value, begun: &mut HashSet<String>, ended: &mut HashSet<String>) {
        let (namespace, name) = place(pod);
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let ip = {
            let mut played = self.played();
            let node = pod["spec"]["nodeName"].as_str().and_then(|node| played.get_mut(node));
            let Some(node) = node.filter(|node| node.alive && node.runs) else { return };
            node.pods += 1;
            format!("10.{}.{}.{}", 200 + node.number / 250, node.number % 250, node.pods % 250)
        };
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if pod["metadata"]["deletionTimestamp"].is_string() {
            if ended.insert(uid.clone()) {
                let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
                self.call("DELETE", &path, Some(&body), JSON, &Value::Null).await;
            }
        } else if pod["status"]["podIP"].as_str().unwrap_or_default().is_empty() && begun.insert(uid) {
            let status = running(pod, &ip, true, &now());
            self.call("PATCH", &format!("{path}/status"), Some(&status), STRATEGIC, &Value::Null).await;
        }
    }
}

pub const JSON: &str = "application/json";
pub const MERGE: &str = "application/merge-patch+json";
pub const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Whether an object belongs to the scenario in a namespace.
pub fn concerns((of, name): &ObjectPath, namespace: &str) -> bool {
    of == namespace || (of.is_empty() && name.contains(namespace))
}

pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn place(object: &Value) -> ObjectPath {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    (namespace.to_owned(), name_of(object).to_owned())
}

pub fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).unwrap_or(0)
}

impl Shown {
    fn note(&mut self, resource: ResourceInfo, deleted: bool, object: Arc<Value>) {
        let at = place(&object);
        let objects = self.objects.entry(resource).or_default();
        let before = objects.get(&at).cloned();
        if deleted {
            objects.remove(&at);
        } else {
            if before.as_ref().is_some_and(|before| version(before) == version(&object)) {
                return;
            }
            objects.insert(at.clone(), object.clone());
        }
        self.log.push(SeenChange { version: version(&object), resource, deleted, place: at, before, object });
    }
}
