//! The operations that are measured one at a time: create, get, patch, list, page and so on.

use bytes::Bytes;
use http::Method;

use crate::client::{Client, OperationFailure};
use crate::ground::{DEFINITIONS, Names, ObjectKind, PODS, definition, json};
use crate::load::Operation;

pub const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The number of pods in a page of `kubectl get`.
pub const TABLE_PODS: u64 = 500;
/// The size of a sent object in bytes.
const OBJECT_BYTES: usize = 600;
const PAGE_OBJECTS: u32 = 500;

pub struct Create {
    client: Client,
    names: Names,
}

impl Create {
    pub fn new(client: Client, names: Names) -> Self {
        Self { client, names }
    }
}

impl Operation for Create {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let resource = self.names.resource;
        let body = object(resource, &Names::name(self.names.existing + ticket));
        self.client.send(Method::POST, resource.collection(), json(body)).await.map(|answer| answer.body_bytes)
    }
}

pub struct Get {
    client: Client,
    targets: Targets,
    /// The query parameters that select a past version.
    past: String,
}

impl Get {
    /// `at` is a past version; empty for the newest.
    pub fn new(client: Client, names: Names, worker: usize, at: &str) -> Self {
        Self { client, targets: Targets::new(names, worker), past: exactly("?", at) }
    }
}

/// The query parameters that select an exact version. If the version is empty, there are none.
fn exactly(separator: &str, version: &str) -> String {
    match version {
        "" => String::new(),
        version => format!("{separator}resourceVersion={version}&resourceVersionMatch=Exact"),
    }
}

/// The newest version of the collection of objects, as a list shows it.
pub async fn version(client: &Client, resource: ObjectKind) -> Result<String, OperationFailure> {
    let answer = client.send(Method::GET, &format!("{}?limit=1", resource.collection()), None).await?;
    Ok(answer.metadata_text("resourceVersion").unwrap_or_default().to_owned())
}

impl Operation for Get {
    async fn run(&mut self, _ticket: u64) -> Result<u64, OperationFailure> {
        let path = self.targets.next_path() + &self.past;
        self.client.send(Method::GET, &path, None).await.map(|answer| answer.body_bytes)
    }
}

pub struct MergePatch {
    client: Client,
    targets: Targets,
}

impl MergePatch {
    pub fn new(client: Client, names: Names, worker: usize) -> Self {
        Self { client, targets: Targets::new(names, worker) }
    }
}

impl Operation for MergePatch {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        // Each value is new, because a patch that changes nothing writes nothing.
        let patch = Bytes::from(format!(r#"{{"data":{{"patched":"{ticket}"}}}}"#));
        let path = self.targets.next_path();
        self.client.send(Method::PATCH, &path, Some((MERGE_PATCH, patch))).await.map(|answer| answer.body_bytes)
    }
}

/// Applies the current fields of an object, which is the result of most reconciliations.
pub struct Apply {
    client: Client,
    targets: Targets,
}

impl Apply {
    pub fn new(client: Client, names: Names, worker: usize) -> Self {
        Self { client, targets: Targets::new(names, worker) }
    }

    pub async fn once(client: &Client, resource: ObjectKind, name: &str) -> Result<u64, OperationFailure> {
        let path = format!("{}/{name}?fieldManager=holdfast-bench-apply", resource.collection());
        let config = Bytes::from(object(resource, name));
        client.send(Method::PATCH, &path, Some((APPLY_PATCH, config))).await.map(|answer| answer.body_bytes)
    }
}

impl Operation for Apply {
    async fn run(&mut self, _ticket: u64) -> Result<u64, OperationFailure> {
        Self::once(&self.client, self.targets.names.resource, &Names::name(self.targets.next())).await
    }
}

/// Applies for the first time, which makes the applier the manager of every field.
pub struct FirstApply(pub Client, pub ObjectKind);

impl Operation for FirstApply {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        Apply::once(&self.0, self.1, &Names::name(ticket)).await
    }
}

pub struct CreatePod(pub Client);

impl Operation for CreatePod {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        match self.0.send(Method::POST, PODS, json(pod(&format!("pod-{ticket:04}")))).await {
            Ok(answer) => Ok(answer.body_bytes),
            // An earlier mode has created the object.
            Err(OperationFailure::Refused { code: 409, .. }) => Ok(0),
            Err(failure) => Err(failure),
        }
    }
}

/// Lists pods as a Table, like `kubectl get`.
pub struct TableList(Client);

impl TableList {
    pub fn new(client: Client) -> Self {
        Self(client.accepting(TABLE))
    }
}

impl Operation for TableList {
    async fn run(&mut self, _ticket: u64) -> Result<u64, OperationFailure> {
        let path = format!("{PODS}?limit={TABLE_PODS}");
        self.0.send(Method::GET, &path, None).await.map(|answer| answer.body_bytes)
    }
}

/// Creates definitions of custom resources, each in a group of its own.
pub struct Define(pub Client);

impl Operation for Define {
    async fn run(&mut self, ticket: u64) -> Result<u64, OperationFailure> {
        let body = definition(&format!("group{ticket}.bench.holdfast.example"), "Thing");
        self.0.send(Method::POST, DEFINITIONS, json(body)).await.map(|answer| answer.body_bytes)
    }
}

pub struct List {
    client: Client,
    resource: ObjectKind,
}

impl List {
    pub fn new(client: Client, resource: ObjectKind) -> Self {
        Self { client, resource }
    }
}

impl Operation for List {
    async fn run(&mut self, _ticket: u64) -> Result<u64, OperationFailure> {
        self.client.send(Method::GET, self.resource.collection(), None).await.map(|answer| answer.body_bytes)
    }
}

pub struct Page {
    client: Client,
    resource: ObjectKind,
    /// The start of the next page; empty for the first page.
    continue_token: String,
    /// The query parameters of the first page that select a past version.
    past: String,
}

impl Page {
    pub fn new(client: Client, resource: ObjectKind, at: &str) -> Self {
        Self { client, resource, continue_token: String::new(), past: exactly("&", at) }
    }
}

impl Operation for Page {
    async fn run(&mut self, _ticket: u64) -> Result<u64, OperationFailure> {
        let token = percent_encode(&std::mem::take(&mut self.continue_token));
        let start = if token.is_empty() { self.past.clone() } else { format!("&continue={token}") };
        let path = format!("{}?limit={PAGE_OBJECTS}{start}", self.resource.collection());
        let answer = self.client.send(Method::GET, &path, None).await?;
        self.continue_token = answer.metadata_text("continue").unwrap_or_default().to_owned();
        Ok(answer.body_bytes)
    }
}

/// Chooses the target objects of a worker: evenly distributed, another sequence for each worker, and the same in every
/// run.
struct Targets {
    names: Names,
    state: u64,
}

impl Targets {
    fn new(names: Names, worker: usize) -> Self {
        Self { names, state: worker as u64 }
    }

    fn next_path(&mut self) -> String {
        let next = self.next();
        self.names.path(next)
    }

    /// The next number of the random number generator SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % self.names.existing.max(1)
    }
}

/// A pod that looks like a pod of a Deployment.
fn pod(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"bench","tier":"web"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example.test/web:1.2.3","ports":[{{"name":"http","containerPort":8080}}],"env":[{{"name":"LOG_LEVEL","value":"info"}},{{"name":"NODE","valueFrom":{{"fieldRef":{{"fieldPath":"spec.nodeName"}}}}}}],"resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},"readinessProbe":{{"httpGet":{{"path":"/ready","port":"http"}},"periodSeconds":5}},"volumeMounts":[{{"name":"config","mountPath":"/etc/web"}}]}}],"volumes":[{{"name":"config","configMap":{{"name":"web"}}}}]}}}}"#
    )
}

/// An object with typical data, padded to [`OBJECT_BYTES`].
pub fn object(resource: ObjectKind, name: &str) -> String {
    let (api_version, kind) = resource.kind();
    let head = format!(
        r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"name":"{name}","labels":{{"app":"bench","tier":"data"}}}},"data":{{"LOG_LEVEL":"info","config":""#
    );
    let tail = r#""}}"#;
    let line = "listen=0.0.0.0:8080 timeout=30s retries=3 cache=on; ";
    let room = OBJECT_BYTES.saturating_sub(head.len() + tail.len());
    let padding: String = line.chars().cycle().take(room).collect();
    format!("{head}{padding}{tail}")
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_promised_size() {
        for resource in [ObjectKind::ConfigMap, ObjectKind::Custom] {
            let text = object(resource, &Names::name(7));
            assert_eq!(text.len(), OBJECT_BYTES);
            let value: holdfast_value::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["metadata"]["name"], "item-00000007");
        }
        serde_json::from_str::<holdfast_value::Value>(&definition("a.example", "Thing")).unwrap();
    }

    #[test]
    fn targets_stay_in_range_and_spread() {
        let mut targets = Targets::new(Names { existing: 100, resource: ObjectKind::ConfigMap }, 3);
        let seen: std::collections::BTreeSet<u64> = (0..1000).map(|_| targets.next()).collect();
        assert!(seen.iter().all(|target| *target < 100));
        assert!(seen.len() > 90, "{}", seen.len());
    }

    #[test]
    fn tokens_survive_a_query() {
        assert_eq!(percent_encode("aZ9-._~"), "aZ9-._~");
        assert_eq!(percent_encode("a+b/c=="), "a%2Bb%2Fc%3D%3D");
    }
}
