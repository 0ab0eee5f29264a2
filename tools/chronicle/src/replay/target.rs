//! The server that a log is replayed against: any Kubernetes API with discovery.

use super::plan::{EventReplay, ReplayVerb};
use crate::remote::RemoteServer;
use crate::remote::client::{self, RequestFailure, escaped};
use anyhow::{Context, Result, anyhow, bail};
use holdfast_core::kinds::known;
use holdfast_value::{Value, json};
use http::Method;
use kube::config::{Kubeconfig, NamedCluster};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The maximum time until a kind is served after its definition was written, and until a deleted object is gone.
const PATIENCE: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_millis(50);
/// The maximum number of attempts of a write that conflicts with another.
const ATTEMPTS_MAX: usize = 5;

pub struct Target {
    client: kube::Client,
    pub server: String,
    known: Mutex<KnownKinds>,
    /// Notifies waiting work when the work on an object is finished.
    finished: Notify,
}

#[derive(Default)]
struct KnownKinds {
    kinds: HashMap<(String, String), KindPath>,
    /// The API groups for which a definition was replayed.
    defined: HashSet<String>,
    /// Resources that refuse updates without a version.
    versioned: HashSet<String>,
    /// The uid of each replayed object on the target, by the recorded uid; `None` while the object is being created.
    uids: HashMap<String, Option<String>>,
}

/// The context of the default kubeconfig for a server: the current context, or the first context with this server.
fn context_of(url: &str) -> Option<String> {
    let Kubeconfig { clusters, contexts, current_context, .. } = Kubeconfig::read().ok()?;
    let is_it = |cluster: &NamedCluster| {
        let server = cluster.cluster.as_ref().and_then(|cluster| cluster.server.as_deref());
        server.is_some_and(|server| server.trim_end_matches('/') == url)
    };
    let names: Vec<String> = clusters.into_iter().filter(is_it).map(|cluster| cluster.name).collect();
    let mut known = contexts
        .into_iter()
        .filter(|context| context.context.as_ref().is_some_and(|context| names.contains(&context.cluster)))
        .map(|context| context.name)
        .collect::<Vec<_>>();
    let current = current_context.and_then(|current| known.iter().position(|name| *name == current));
    (!known.is_empty()).then(|| known.swap_remove(current.unwrap_or(0)))
}

/// The REST path and plural name of a kind, and whether its objects have namespaces and a status subresource.
#[derive(Debug, Clone)]
struct KindPath {
    path: String,
    plural: String,
    is_namespaced: bool,
    has_status: bool,
}

/// A sent request: its verb, the status code, and the duration.
pub struct Sent {
    pub verb: &'static str,
    pub code: Option<u16>,
    pub took: Duration,
}

/// The outcome of an event's requests.
pub enum ReplayOutcome {
    Done,
    /// The event is a deletion of an object that did not exist on the target.
    Gone,
    Refused {
        reason: String,
        message: String,
    },
    Unanswered(String),
}

impl Target {
    pub async fn connect(against: &str, context: Option<&str>) -> Result<Target> {
        let (client, server) = if against.starts_with("http://") || against.starts_with("https://") {
            if context.is_some() {
                bail!("--against-context is for a kubeconfig, and --against is a URL");
            }
            let url = against.trim_end_matches('/');
            let uri = url.parse().with_context(|| format!("--against {against}"))?;
            match context_of(url) {
                Some(context) => client::connect(&RemoteServer { kubeconfig: None, context: Some(context) }).await?,
                None => {
                    let mut config = kube::Config::new(uri);
                    config.default_retry = false;
                    (kube::Client::try_from(config)?, url.to_owned())
                }
            }
        } else {
            let file = PathBuf::from(against);
            if !file.exists() {
                bail!("--against {against}: this is neither an existing kubeconfig nor a URL (https://HOST:PORT)");
            }
            let server = RemoteServer { kubeconfig: Some(file), context: context.map(str::to_owned) };
            client::connect(&server).await?
        };
        let target = Target { client, server, known: Mutex::default(), finished: Notify::new() };
        target.is_kubernetes().await?;
        Ok(target)
    }

    async fn is_kubernetes(&self) -> Result<()> {
        match client::send(&self.client, &self.server, Method::GET, "/version", None).await {
            Ok(version) if version["gitVersion"].is_string() => {}
            Ok(_) => bail!("{} is not a Kubernetes API: its /version has no version", self.server),
            Err(RequestFailure::Refused(refused)) if refused.code == 404 => {
                bail!("{} is not a Kubernetes API: it has no /version", self.server)
            }
            Err(RequestFailure::Unanswered(error)) => return Err(error),
            Err(failure) => return Err(failure.into()),
        }
        // A user who may not even read the list of the core API cannot replay events.
        client::send(&self.client, &self.server, Method::GET, "/api/v1", None).await.map_err(|failure| {
            anyhow!("{} does not serve its list of APIs (/api/v1): {:#}", self.server, anyhow::Error::from(failure))
        })?;
        Ok(())
    }

    /// Records that an object will be created, so that other work can wait for it. The caller calls this function
    /// before it passes the work to a worker.
    pub fn begin(&self, work: &EventReplay) {
        if work.deed == ReplayVerb::Create {
            self.known().uids.insert(work.uid.clone(), None);
        }
    }

    pub async fn carry_out(&self, work: &EventReplay, sent: &mut Vec<Sent>) -> ReplayOutcome {
        let done = self.requests(work, sent).await;
        {
            let mut known = self.known();
            if known.uids.get(&work.uid) == Some(&None) {
                known.uids.remove(&work.uid);
            }
        }
        self.finished.notify_waiters();
        match done {
            Ok(true) => ReplayOutcome::Done,
            Ok(false) => ReplayOutcome::Gone,
            Err(RequestFailure::Refused(refused)) => {
                let reason = if refused.reason.is_empty() { refused.code.to_string() } else { refused.reason };
                ReplayOutcome::Refused { reason, message: refused.message }
            }
            Err(RequestFailure::Unanswered(error)) => ReplayOutcome::Unanswered(format!("{error:#}")),
        }
    }

    /// Sends the requests. Returns false if the object to delete does not exist.
    async fn requests(&self, work: &EventReplay, sent: &mut Vec<Sent>) -> Result<bool, RequestFailure> {
        let resource = self.resource(work, sent).await?;
        let document = self.with_owners(work).await;
        match &work.deed {
            ReplayVerb::Create => {
                self.create(&resource, work, &document, sent).await?;
                if work.kind() == known::CUSTOM_RESOURCE_DEFINITION.kind {
                    let group = document["spec"]["group"].as_str().unwrap_or_default().to_owned();
                    self.known().defined.insert(group);
                }
                if resource.has_status && has_content(&document["status"]) {
                    self.update(&resource, work, "/status", &document, sent).await?;
                }
                Ok(true)
            }
            ReplayVerb::Change { main, status, bind } => {
                if *bind {
                    self.bind(&resource, work, &document, sent).await?;
                }
                if *main || (*status && !resource.has_status) {
                    self.update(&resource, work, "", &document, sent).await?;
                }
                if *status && resource.has_status {
                    self.update(&resource, work, "/status", &document, sent).await?;
                }
                Ok(true)
            }
            ReplayVerb::Delete { grace_seconds, propagation } => {
                let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
                if let Some(seconds) = grace_seconds {
                    options["gracePeriodSeconds"] = (*seconds).into();
                }
                if let Some(propagation) = propagation {
                    options["propagationPolicy"] = (*propagation).into();
                }
                self.delete(&resource, work, &options, sent).await
            }
            ReplayVerb::Finish => self.finish(&resource, work, sent).await,
        }
    }

    async fn create(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        document: &Value,
        sent: &mut Vec<Sent>,
    ) -> Result<(), RequestFailure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let refused =
                match self.send("create", Method::POST, &resource.collection(work), Some(document), sent).await {
                    Ok(answer) => {
                        self.record_owner(work, &answer);
                        return Ok(());
                    }
                    Err(RequestFailure::Refused(refused)) if refused.code == 409 => refused,
                    Err(failure) => return Err(failure),
                };
            let now = match self.send("get", Method::GET, &resource.object(work), None, sent).await {
                Ok(now) => now,
                Err(failure) if failure.code() == Some(404) && Instant::now() < deadline => continue,
                Err(_) => return Err(RequestFailure::Refused(refused)),
            };
            if now["metadata"].get("deletionTimestamp").is_none() {
                // Every cluster has this object, or the target had it before. The object is updated to the recorded
                // state.
                return self.update_existing(resource, work, "", document, sent).await;
            }
            if Instant::now() > deadline {
                return Err(RequestFailure::Refused(refused));
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Updates the object, or creates it if it is missing.
    async fn update(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        subresource: &str,
        document: &Value,
        sent: &mut Vec<Sent>,
    ) -> Result<(), RequestFailure> {
        match self.update_existing(resource, work, subresource, document, sent).await {
            Err(RequestFailure::Refused(refused)) if refused.code == 404 => {
                let path = resource.collection(work);
                let answer = self.send("create", Method::POST, &path, Some(document), sent).await?;
                self.record_owner(work, &answer);
                if resource.has_status && has_content(&document["status"]) {
                    self.update_existing(resource, work, "/status", document, sent).await?;
                }
                Ok(())
            }
            other => other,
        }
    }

    async fn update_existing(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        subresource: &str,
        document: &Value,
        sent: &mut Vec<Sent>,
    ) -> Result<(), RequestFailure> {
        let object = resource.object(work);
        let path = format!("{object}{subresource}");
        let mut document = document.clone();
        let mut with_version = self.known().versioned.contains(&resource.path);
        for attempt in 1.. {
            if with_version {
                let now = self.send("get", Method::GET, &object, None, sent).await?;
                document["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
            }
            match self.send("update", Method::PUT, &path, Some(&document), sent).await {
                Ok(answer) => {
                    self.record_owner(work, &answer);
                    return Ok(());
                }
                Err(RequestFailure::Refused(refused))
                    if attempt < ATTEMPTS_MAX && wants_version(refused.code, &refused.message) =>
                {
                    if refused.code == 422 {
                        self.known().versioned.insert(resource.path.clone());
                    }
                    with_version = true;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    async fn bind(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        document: &Value,
        sent: &mut Vec<Sent>,
    ) -> Result<(), RequestFailure> {
        let binding = json!({"apiVersion": known::BINDING.api_version(), "kind": known::BINDING.kind, "metadata": {"name": work.name(),
            "namespace": work.namespace()}, "target": {"apiVersion": known::NODE.api_version(), "kind": known::NODE.kind,
            "name": document["spec"]["nodeName"]}});
        let path = format!("{}/binding", resource.object(work));
        self.send("create", Method::POST, &path, Some(&binding), sent).await.map(|_| ())
    }

    async fn delete(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        options: &Value,
        sent: &mut Vec<Sent>,
    ) -> Result<bool, RequestFailure> {
        match self.send("delete", Method::DELETE, &resource.object(work), Some(options), sent).await {
            Ok(_) => Ok(true),
            Err(RequestFailure::Refused(refused)) if refused.code == 404 => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Completes a deletion: removes the finalizers of the object, or, if it has none, deletes the object again without
    /// a grace period.
    async fn finish(
        &self,
        resource: &KindPath,
        work: &EventReplay,
        sent: &mut Vec<Sent>,
    ) -> Result<bool, RequestFailure> {
        let path = resource.object(work);
        for _ in 0..ATTEMPTS_MAX {
            let mut now = match self.send("get", Method::GET, &path, None, sent).await {
                Ok(now) => now,
                Err(RequestFailure::Refused(refused)) if refused.code == 404 => return Ok(false),
                Err(failure) => return Err(failure),
            };
            if now["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty) {
                let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0});
                return self.delete(resource, work, &options, sent).await;
            }
            now["metadata"]["finalizers"] = json!([]);
            match self.send("update", Method::PUT, &path, Some(&now), sent).await {
                Ok(_) => return Ok(true),
                Err(failure) if matches!(failure.code(), Some(404 | 409)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(true)
    }

    /// How the target serves the kind. A kind whose definition was just written is served after a moment, so the
    /// look-up is repeated.
    async fn resource(&self, work: &EventReplay, sent: &mut Vec<Sent>) -> Result<KindPath, RequestFailure> {
        let id = (work.api_version().to_owned(), work.kind().to_owned());
        let group = id.0.rsplit_once('/').map_or("", |(group, _)| group);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(resource) = self.known().kinds.get(&id).cloned() {
                return Ok(resource);
            }
            let path = if group.is_empty() { format!("/api/{}", id.0) } else { format!("/apis/{}", id.0) };
            match self.send("get", Method::GET, &path, None, sent).await {
                Ok(list) => self.record_kinds(&path, &id.0, &list),
                Err(failure) if matches!(failure.code(), Some(404 | 503)) => {}
                Err(failure) => return Err(failure),
            }
            if !self.may_be_served_soon(&id, group, deadline) {
                return Err(RequestFailure::Refused(Box::new(client::Refused {
                    code: 404,
                    reason: "NotServed".into(),
                    message: format!("{} serves no {} of {}", self.server, id.1, id.0),
                    status: Value::Null,
                })));
            }
            if self.known().kinds.contains_key(&id) {
                continue;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Whether the kind is served, or may be once its definition has taken effect.
    fn may_be_served_soon(&self, id: &(String, String), group: &str, deadline: Instant) -> bool {
        let mut known = self.known();
        if known.kinds.contains_key(id) {
            return true;
        }
        if Instant::now() > deadline {
            // The group is removed, so only one object of the group waits: the result would be the same for all objects
            // of the group.
            known.defined.remove(group);
        }
        known.defined.contains(group)
    }

    fn record_kinds(&self, path: &str, api_version: &str, list: &Value) {
        let resources = list["resources"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |resource: &Value, field: &str| resource[field].as_str().unwrap_or_default().to_owned();
        let names: HashSet<String> = resources.iter().map(|resource| text(resource, "name")).collect();
        let mut known = self.known();
        for resource in resources.iter().filter(|resource| !text(resource, "name").contains('/')) {
            let plural = text(resource, "name");
            let found = KindPath {
                path: path.to_owned(),
                is_namespaced: resource["namespaced"] == true,
                has_status: names.contains(&format!("{plural}/status")),
                plural,
            };
            known.kinds.insert((api_version.to_owned(), text(resource, "kind")), found);
        }
    }

    /// The document with its owners replaced by the corresponding objects on the target. Owners without such an object
    /// are omitted.
    async fn with_owners(&self, work: &EventReplay) -> Value {
        let mut document = work.document.clone();
        let Some(owners) = document["metadata"]["ownerReferences"].as_array_mut() else { return document };
        let mut left = Vec::new();
        for mut owner in std::mem::take(owners) {
            if let Some(uid) = self.wait_for_owner(owner["uid"].as_str().unwrap_or_default()).await {
                owner["uid"] = uid.into();
                left.push(owner);
            }
        }
        *owners = left;
        document
    }

    /// Waits for an owner that is being created. The event of the owner came earlier, so its work never waits for this
    /// work.
    async fn wait_for_owner(&self, uid: &str) -> Option<String> {
        loop {
            let finished = self.finished.notified();
            tokio::pin!(finished);
            finished.as_mut().enable();
            if let Some(found) = self.known().uids.get(uid)?.clone() {
                return Some(found);
            }
            finished.await;
        }
    }

    fn record_owner(&self, work: &EventReplay, answer: &Value) {
        if let Some(uid) = answer["metadata"]["uid"].as_str() {
            self.known().uids.insert(work.uid.clone(), Some(uid.to_owned()));
        }
    }

    async fn send(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        body: Option<&Value>,
        sent: &mut Vec<Sent>,
    ) -> Result<Value, RequestFailure> {
        let began = Instant::now();
        let answer = client::exchange(&self.client, &self.server, method, path, body).await;
        let code = match &answer {
            Ok((code, _)) => Some(*code),
            Err(failure) => failure.code(),
        };
        sent.push(Sent { verb, code, took: began.elapsed() });
        answer.map(|(_, document)| document)
    }

    fn known(&self) -> MutexGuard<'_, KnownKinds> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl KindPath {
    fn collection(&self, work: &EventReplay) -> String {
        let namespace = work.namespace().filter(|_| self.is_namespaced);
        let within = namespace.map(|namespace| format!("/namespaces/{}", escaped(namespace))).unwrap_or_default();
        format!("{}{within}/{}", self.path, self.plural)
    }

    fn object(&self, work: &EventReplay) -> String {
        format!("{}/{}", self.collection(work), escaped(work.name()))
    }
}

fn has_content(status: &Value) -> bool {
    status.as_object().is_some_and(|status| !status.is_empty())
}

/// Whether an update was refused because it has no version, or an old version.
fn wants_version(code: u16, message: &str) -> bool {
    code == 409 || (code == 422 && message.contains("metadata.resourceVersion"))
}
