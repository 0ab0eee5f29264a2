//! The API as Rust's `kube` sees it: each case over HTTPS against the real binary, and in this process without a
//! socket.

mod living;
mod operator;
mod watching;

use futures_util::{StreamExt, TryStreamExt};
use holdfast_core::authz::User;
use holdfast_engine::memory::MemoryLog;
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::memory::Memory;
use holdfast_tests::{Folder, Server, eventually};
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy,
    WatchEvent, WatchParams,
};
use kube::{Client, Error, ResourceExt};
use operator::{leader_election, operator};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use watching::{bookmarks_and_initial_events, controllers, watchers_and_reflectors, watching, watching_a_selection};

/// How long the tests wait for any condition.
const PATIENCE: Duration = Duration::from_secs(15);

/// A server with an empty namespace.
struct Cluster {
    client: Client,
    server: Served,
}

enum Served {
    /// The folder is deleted with its server.
    Https(Server, #[expect(dead_code, reason = "it is kept, not read")] Folder),
    Memory(Memory),
}

impl Cluster {
    async fn https() -> Cluster {
        let folder = Folder::new();
        let server = Server::start(folder.path(), &[]);
        Cluster { client: server.client().await, server: Served::Https(server, folder) }
    }

    async fn memory() -> Cluster {
        let memory = Memory::start(Arc::new(MemoryLog::default())).await;
        Cluster { client: memory.admin(), server: Served::Memory(memory) }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    /// A client with a token only; `None` if the transport identifies users without tokens.
    async fn with_token(&self, token: &str) -> Option<Client> {
        let Served::Https(server, _) = &self.server else { return None };
        let text = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("read the kubeconfig");
        let mut config = kube::Config::from_custom_kubeconfig(text, &Default::default()).await.expect("a kubeconfig");
        config.default_retry = false;
        config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
        Some(Client::try_from(config).expect("a client"))
    }

    /// A client that acts as a service account.
    async fn service_account(&self, name: &str) -> Client {
        if let Served::Memory(memory) = &self.server {
            return memory.client(User::service_account("default", name, ""));
        }
        let accounts: Api<ServiceAccount> = self.api();
        let made: TokenRequest = accounts
            .create_subresource("token", name, &PostParams::default(), &TokenRequest::default())
            .await
            .map(|request: TokenRequest| request)
            .expect("a token");
        self.with_token(&made.status.expect("a status").token).await.expect("a client")
    }

    async fn raw(&self, request: Request<Vec<u8>>) -> Result<Value, Error> {
        self.client.request::<Value>(request).await
    }

    async fn get_as(&self, path: &str, accept: &str) -> Value {
        let request = Request::get(path).header("accept", accept).body(Vec::new()).expect("a request");
        self.raw(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        mod https {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::https().await).await;
            })*
        }

        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::memory().await).await;
            })*
        }
    };
}

cases! {
    create_read_update_delete, json_patch, merge_patch, strategic_merge_patch, server_side_apply, status_and_scale,
    selectors, pages_while_writing, exact_and_future_versions, watching, bookmarks_and_initial_events,
    watching_a_selection, watchers_and_reflectors, controllers, delete_collection, finalizers, namespace_deletion,
    propagation_and_preconditions, eviction, binding, tokens, access_reviews, dry_run, tables_and_metadata, refusals,
    generated_names, services_get_addresses, discovery, operator, leader_election,
}

/// A log on disk behind the transport without sockets; then the real server on the same folder.
#[test]
fn in_memory_on_disk() {
    let folder = Folder::new();
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = runtime();
    let made = serving.block_on(async {
        let memory = Memory::start(Arc::new(RocksLog::open(folder.path()).expect("open the log"))).await;
        let api: Api<ConfigMap> = Api::default_namespaced(memory.admin());
        let made = api.create(&PostParams::default(), &config_map("kept", &[("a", "b")])).await.unwrap();
        memory.stop();
        made
    });
    // The tasks hold the log, so dropping them closes it.
    drop(serving);
    let server = Server::start(folder.path(), &[]);
    runtime().block_on(async {
        let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
        assert_eq!(api.get("kept").await.unwrap(), made);
    });
    server.stop();
}

async fn create_read_update_delete(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let made = api.create(&PostParams::default(), &config_map("one", &[("a", "1")])).await.unwrap();
    let meta = &made.metadata;
    assert!(meta.uid.is_some() && meta.creation_timestamp.is_some() && meta.resource_version.is_some());
    assert_eq!(meta.namespace.as_deref(), Some("default"));
    assert_eq!(api.get("one").await.unwrap(), made);

    let mut changed = made.clone();
    changed.data.as_mut().unwrap().insert("b".into(), "2".into());
    let replaced = api.replace("one", &PostParams::default(), &changed).await.unwrap();
    assert_eq!(replaced.data, changed.data);
    assert_eq!(replaced.metadata.uid, meta.uid);
    assert_ne!(replaced.metadata.resource_version, meta.resource_version);
    // A write without changes makes no event, so the object keeps its version.
    let same = api.replace("one", &PostParams::default(), &replaced).await.unwrap();
    assert_eq!(same.metadata.resource_version, replaced.metadata.resource_version);

    let gone = api.delete("one", &DeleteParams::default()).await.unwrap().right().expect("a status");
    assert!(gone.is_success());
    refused(api.get("one").await, 404, "NotFound", "configmaps \"one\" not found");
    let again = api.create(&PostParams::default(), &config_map("one", &[])).await.unwrap();
    assert_ne!(again.metadata.uid, meta.uid);
}

async fn json_patch(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    api.create(&PostParams::default(), &config_map("one", &[("a", "1"), ("b", "2")])).await.unwrap();
    let apply = |operations: Value| {
        let api = api.clone();
        async move { api.patch("one", &PatchParams::default(), &Patch::<()>::Json(from(operations))).await }
    };
    let patched = apply(json!([
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "x"},
        {"op": "remove", "path": "/data/b"},
        {"op": "add", "path": "/metadata/labels", "value": {"new": "yes"}},
    ]))
    .await
    .unwrap();
    assert_eq!(patched.data, Some(map(&[("a", "x")])));
    assert_eq!(patched.labels(), &map(&[("new", "yes")]));
    let wrong = apply(json!([{"op": "test", "path": "/data/a", "value": "1"}])).await;
    refused(wrong, 422, "Invalid", "the server rejected our request due to an error in our request");
    let missing = apply(json!([{"op": "remove", "path": "/data/none"}])).await;
    refused(missing, 422, "Invalid", "the server rejected our request due to an error in our request");
}

async fn merge_patch(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    api.create(&PostParams::default(), &config_map("one", &[("a", "1"), ("b", "2")])).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": null, "c": "3"}}));
    let patched = api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.data, Some(map(&[("b", "2"), ("c", "3")])));
    let version = patched.resource_version();
    let unchanged = api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(unchanged.resource_version(), version);
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": "1"}, "data": {"d": "4"}}));
    let conflict = api.patch("one", &PatchParams::default(), &stale).await;
    refused(conflict, 409, "Conflict", "the object has been modified");
    refused(api.patch("none", &PatchParams::default(), &patch).await, 404, "NotFound", "configmaps \"none\" not found");
}

async fn strategic_merge_patch(cluster: Cluster) {
    let api: Api<Deployment> = cluster.api();
    api.create(&PostParams::default(), &deployment("web")).await.unwrap();
    let patch =
        |containers: Value| Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let params = PatchParams::default();
    let names = |deployment: &Deployment| -> Vec<String> {
        let spec = deployment.spec.clone().and_then(|spec| spec.template.spec).unwrap();
        spec.containers
            .into_iter()
            .map(|container| format!("{}={}", container.name, container.image.unwrap()))
            .collect()
    };
    let added = patch(json!([{"name": "side", "image": "side:1"}]));
    let patched = api.patch("web", &params, &added).await.unwrap();
    let mut found = names(&patched);
    found.sort();
    assert_eq!(found, ["side=side:1", "web=web:1"]);
    assert_eq!(patched.metadata.generation, Some(2));
    let changed = patch(json!([{"name": "web", "image": "web:2"}, {"name": "side", "$patch": "delete"}]));
    assert_eq!(names(&api.patch("web", &params, &changed).await.unwrap()), ["web=web:2"]);
    let replaced = patch(json!([{"name": "only", "image": "only:1"}, {"$patch": "replace"}]));
    assert_eq!(names(&api.patch("web", &params, &replaced).await.unwrap()), ["only=only:1"]);
}

async fn server_side_apply(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let wanted = |data: Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}))
    };
    let first = PatchParams::apply("first");
    let second = PatchParams::apply("second");
    let made = api.patch("one", &first, &wanted(json!({"a": "1", "b": "2"}))).await.unwrap();
    assert_eq!(made.data, Some(map(&[("a", "1"), ("b", "2")])));
    let managers: Vec<_> = made.managed_fields().iter().map(|entry| entry.manager.clone().unwrap()).collect();
    assert_eq!(managers, ["first"]);
    let conflict = api.patch("one", &second, &wanted(json!({"a": "one"}))).await;
    let status = refused(conflict, 409, "Conflict", "conflict with \"first\"");
    let causes = status.details.expect("details").causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldManagerConflict", ".data.a"));
    let forced = api.patch("one", &second.clone().force(), &wanted(json!({"a": "one"}))).await.unwrap();
    assert_eq!(forced.data, Some(map(&[("a", "one"), ("b", "2")])));
    // Fields that a manager leaves out are removed, unless another manager owns them.
    let less = api.patch("one", &first, &wanted(json!({}))).await.unwrap();
    assert_eq!(less.data, Some(map(&[("a", "one")])));
    let mut nameless = PatchParams::apply("x");
    nameless.field_manager = None;
    refused(api.patch("one", &nameless, &wanted(json!({}))).await, 422, "Invalid", "fieldManager: Required value");
}

async fn status_and_scale(cluster: Cluster) {
    let api: Api<Deployment> = cluster.api();
    api.create(&PostParams::default(), &deployment("web")).await.unwrap();
    let params = PatchParams::default();
    let patch = Patch::Merge(json!({"spec": {"replicas": 9}, "status": {"replicas": 3, "observedGeneration": 1}}));
    let changed = api.patch_status("web", &params, &patch).await.unwrap();
    assert_eq!(changed.status.clone().unwrap().replicas, Some(3));
    assert_eq!(changed.spec.unwrap().replicas, Some(1), "a change of the status leaves the spec alone");
    assert_eq!(changed.metadata.generation, Some(1));
    let ignored = Patch::Merge(json!({"status": {"replicas": 7}}));
    let unchanged = api.patch("web", &params, &ignored).await.unwrap();
    assert_eq!(unchanged.status.unwrap().replicas, Some(3), "a change of the object leaves the status alone");

    let scale = api.get_scale("web").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(1));
    assert_eq!(scale.status.clone().unwrap().selector.as_deref(), Some("app=web"));
    assert_eq!(scale.status.unwrap().replicas, 3);
    let scaled = api.patch_scale("web", &params, &Patch::Merge(json!({"spec": {"replicas": 5}}))).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5));
    let mut scale = api.get_scale("web").await.unwrap();
    scale.spec.as_mut().unwrap().replicas = Some(2);
    api.replace_scale("web", &PostParams::default(), &scale).await.unwrap();
    let conflict = api.replace_scale("web", &PostParams::default(), &scale).await;
    refused(conflict, 409, "Conflict", "the object has been modified");
    let web = api.get("web").await.unwrap();
    assert_eq!((web.spec.unwrap().replicas, web.metadata.generation), (Some(2), Some(3)));
}

async fn selectors(cluster: Cluster) {
    let api: Api<Pod> = cluster.api();
    for (name, app, tier, node) in [("a", "web", "front", ""), ("b", "web", "back", "n1"), ("c", "job", "back", "n1")] {
        let mut pod: Pod = pod(name);
        pod.metadata.labels = Some(map(&[("app", app), ("tier", tier)]));
        pod.spec.as_mut().unwrap().node_name = Some(node.to_owned()).filter(|node| !node.is_empty());
        api.create(&PostParams::default(), &pod).await.unwrap();
    }
    let cases = [
        ("app=web", "", "a b"),
        ("app!=web", "", "c"),
        ("app in (web,job),tier=back", "", "b c"),
        ("tier notin (back)", "", "a"),
        ("missing", "", ""),
        ("!missing,app", "", "a b c"),
        ("", "metadata.name=b", "b"),
        ("", "metadata.name!=b", "a c"),
        ("", "spec.nodeName=n1", "b c"),
        ("app=web", "spec.nodeName=n1", "b"),
        ("", "status.phase=Pending,spec.nodeName=", "a"),
        ("", "metadata.namespace=other", ""),
    ];
    for (labels, fields, expected) in cases {
        let found = api.list(&ListParams::default().labels(labels).fields(fields)).await.unwrap();
        assert_eq!(names(&found.items).join(" "), expected, "{labels} {fields}");
        let all: Api<Pod> = Api::all(cluster.client.clone());
        let found = all.list(&ListParams::default().labels(labels).fields(fields)).await.unwrap();
        assert_eq!(names(&found.items).join(" "), expected, "everywhere: {labels} {fields}");
    }
    let wrong = api.list(&ListParams::default().fields("spec.nonsense=1")).await;
    refused(wrong, 400, "BadRequest", "field label not supported: spec.nonsense");
    refused(api.list(&ListParams::default().labels("a=(")).await, 400, "BadRequest", "");
}

async fn pages_while_writing(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    for index in 0..25 {
        api.create(&PostParams::default(), &labelled(&format!("p{index:02}"), "pages")).await.unwrap();
    }
    let mut params = ListParams::default().labels("set=pages").limit(10);
    let mut seen: Vec<String> = Vec::new();
    let mut versions = Vec::new();
    let mut remaining = Vec::new();
    loop {
        let page = api.list(&params).await.unwrap();
        seen.extend(names(&page.items));
        versions.push(page.metadata.resource_version.clone());
        remaining.push(page.metadata.remaining_item_count);
        // Between pages, objects of later pages are deleted, and new ones are created.
        for index in [seen.len(), 24] {
            let _ = api.delete(&format!("p{index:02}"), &DeleteParams::default()).await;
        }
        api.create(&PostParams::default(), &labelled(&format!("p{:02}x", seen.len()), "pages")).await.unwrap();
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).map(|index| format!("p{index:02}")).collect();
    assert_eq!(seen, expected, "the list is of one moment");
    assert!(versions.windows(2).all(|pair| pair[0] == pair[1]), "{versions:?}");
    assert_eq!(remaining.len(), 3);
    let wrong = api.list(&ListParams::default().limit(1).continue_token("nonsense")).await;
    refused(wrong, 400, "BadRequest", "continue key is not valid");
}

async fn exact_and_future_versions(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let made = api.create(&PostParams::default(), &labelled("old", "x")).await.unwrap();
    let at = made.resource_version().unwrap();
    api.create(&PostParams::default(), &labelled("new", "x")).await.unwrap();
    api.delete("old", &DeleteParams::default()).await.unwrap();
    let params = ListParams::default().labels("set=x").at(&at);
    let exact = api.list(&params.clone().matching(kube::api::VersionMatch::Exact)).await.unwrap();
    assert_eq!(names(&exact.items), ["old"]);
    assert_eq!(exact.metadata.resource_version, Some(at));
    let newer = api.list(&params.matching(kube::api::VersionMatch::NotOlderThan)).await.unwrap();
    assert_eq!(names(&newer.items), ["new"]);
    let future = ListParams::default().at("999999999").matching(kube::api::VersionMatch::NotOlderThan);
    refused(api.list(&future).await, 504, "Timeout", "Too large resource version");
}

async fn delete_collection(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    for (name, set) in [("a", "x"), ("b", "x"), ("c", "y")] {
        api.create(&PostParams::default(), &labelled(name, set)).await.unwrap();
    }
    let mut held = labelled("held", "x");
    held.metadata.finalizers = Some(vec!["example.test/held".into()]);
    api.create(&PostParams::default(), &held).await.unwrap();
    let params = ListParams::default().labels("set=x");
    api.delete_collection(&DeleteParams::default(), &params).await.unwrap();
    assert_eq!(names(&api.list(&params).await.unwrap().items), ["held"]);
    assert!(api.get("held").await.unwrap().metadata.deletion_timestamp.is_some());
    api.get("c").await.unwrap();
}

async fn finalizers(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let mut object = config_map("held", &[]);
    object.metadata.finalizers = Some(vec!["example.test/a".into(), "example.test/b".into()]);
    api.create(&PostParams::default(), &object).await.unwrap();
    let marked = api.delete("held", &DeleteParams::default()).await.unwrap().left().expect("the object, still there");
    assert!(marked.metadata.deletion_timestamp.is_some());
    let again = api.delete("held", &DeleteParams::default()).await.unwrap().left().expect("still there");
    assert_eq!(again.metadata.deletion_timestamp, marked.metadata.deletion_timestamp);
    let patch = |names: Value| Patch::Merge(json!({"metadata": {"finalizers": names}}));
    let more = api.patch("held", &PatchParams::default(), &patch(json!(["example.test/a", "example.test/c"]))).await;
    refused(more, 422, "Invalid", "no new finalizers can be added if the object is being deleted");
    let fewer = api.patch("held", &PatchParams::default(), &patch(json!(["example.test/b"]))).await.unwrap();
    assert_eq!(fewer.finalizers(), ["example.test/b"]);
    api.patch("held", &PatchParams::default(), &patch(json!(null))).await.unwrap();
    refused(api.get("held").await, 404, "NotFound", "");
}

async fn namespace_deletion(cluster: Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    let made = namespaces.create(&PostParams::default(), &from(space)).await.unwrap();
    assert_eq!(made.labels()["kubernetes.io/metadata.name"], "going");
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "going");
    let secrets: Api<Secret> = Api::namespaced(cluster.client.clone(), "going");
    let mut held = config_map("held", &[]);
    held.metadata.finalizers = Some(vec!["example.test/held".into()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    maps.create(&PostParams::default(), &config_map("free", &[])).await.unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
    secrets.create(&PostParams::default(), &from(secret)).await.unwrap();
    let going = namespaces.delete("going", &DeleteParams::default()).await.unwrap().left().expect("not gone yet");
    assert_eq!(going.status.unwrap().phase.as_deref(), Some("Terminating"));
    let late = maps.create(&PostParams::default(), &config_map("late", &[])).await;
    refused(late, 403, "Forbidden", "because it is being terminated");
    eventually(PATIENCE, || async {
        let rest =
            (maps.list(&ListParams::default()).await.unwrap(), secrets.list(&ListParams::default()).await.unwrap());
        let rest = (names(&rest.0.items), names(&rest.1.items));
        if rest == (vec!["held".to_owned()], vec![]) { Ok(()) } else { Err(format!("{rest:?}")) }
    })
    .await;
    namespaces.get("going").await.expect("it waits for what is held");
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &patch).await.unwrap();
    eventually(PATIENCE, || async {
        match namespaces.get_opt("going").await.unwrap() {
            None => Ok(()),
            Some(space) => Err(format!("{space:?}")),
        }
    })
    .await;
    refused(namespaces.delete("kube-system", &DeleteParams::default()).await, 403, "Forbidden", "kube-system");
}

async fn propagation_and_preconditions(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let made = api.create(&PostParams::default(), &config_map("one", &[])).await.unwrap();
    let wrong = |uid: Option<&str>, version: Option<&str>| {
        DeleteParams::default()
            .preconditions(Preconditions { uid: uid.map(str::to_owned), resource_version: version.map(str::to_owned) })
    };
    let uid = api.delete("one", &wrong(Some("00000000-0000-0000-0000-000000000000"), None)).await;
    refused(uid, 409, "Conflict", "does not match the UID in record");
    let version = api.delete("one", &wrong(None, Some("1"))).await;
    refused(version, 409, "Conflict", "does not match the ResourceVersion in record");
    let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    let marked = api.delete("one", &params).await.unwrap().left().expect("it waits for its dependents");
    assert_eq!(marked.finalizers(), ["foregroundDeletion"]);
    assert_eq!(marked.metadata.uid, made.metadata.uid);
}

async fn eviction(cluster: Cluster) {
    let pods: Api<Pod> = cluster.api();
    for name in ["free", "kept"] {
        let mut pod: Pod = pod(name);
        pod.metadata.labels = Some(map(&[("app", name)]));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    // The options of the deletion are in the body of the Eviction.
    let evict = |name: &str, options: Value| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name},
            "deleteOptions": options});
        let path = "/api/v1/namespaces/default/pods/free/eviction";
        let request = Request::post(path).header("content-type", "application/json");
        request.body(body.to_string().into_bytes()).expect("a request")
    };
    cluster.raw(evict("free", json!({"dryRun": ["All"]}))).await.unwrap();
    let stale = cluster.raw(evict("free", json!({"preconditions": {"uid": "another"}}))).await;
    refused(stale, 409, "Conflict", "UID in the precondition (another) does not match");
    refused(cluster.raw(evict("kept", json!({}))).await, 400, "BadRequest", "does not match name in Eviction object");
    assert!(pods.get("free").await.unwrap().metadata.deletion_timestamp.is_none());
    let status = pods.evict("free", &EvictParams::default()).await.unwrap();
    assert!(status.is_success());
    refused(pods.evict("none", &EvictParams::default()).await, 404, "NotFound", "pods \"none\" not found");
    // The budget allows no disruption, so the eviction is refused.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "kept"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}});
    let budgets: Api<PodDisruptionBudget> = cluster.api();
    budgets.create(&PostParams::default(), &from(budget)).await.unwrap();
    let running = Patch::Merge(json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}}));
    pods.patch_status("kept", &PatchParams::default(), &running).await.unwrap();
    let held = pods.evict("kept", &EvictParams::default()).await;
    refused(held, 429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget");
    pods.get("kept").await.unwrap();
}

async fn binding(cluster: Cluster) {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    nodes.create(&PostParams::default(), &from(node)).await.unwrap();
    let pods: Api<Pod> = cluster.api();
    pods.create(&PostParams::default(), &pod("one")).await.unwrap();
    let bind = |node: &str| {
        let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        Request::post("/api/v1/namespaces/default/pods/one/binding")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap()
    };
    let status = cluster.raw(bind("n1")).await.unwrap();
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    let bound = pods.get("one").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|condition| condition.type_ == "PodScheduled" && condition.status == "True"));
    refused(cluster.raw(bind("n2")).await, 409, "Conflict", "pod one is already assigned to node \"n1\"");
}

async fn tokens(cluster: Cluster) {
    let accounts: Api<ServiceAccount> = cluster.api();
    let robot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    accounts.create(&PostParams::default(), &from(robot)).await.unwrap();
    let wanted: TokenRequest = from(json!({"spec": {"expirationSeconds": 1200, "audiences": []}}));
    let made: TokenRequest =
        accounts.create_subresource("token", "robot", &PostParams::default(), &wanted).await.unwrap();
    assert_eq!(made.spec.expiration_seconds, Some(1200));
    let token = made.status.unwrap().token;
    // The review of the token names the service account.
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let review = |body: &Value| {
        Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap()
    };
    let answer = cluster.raw(review(&body)).await.unwrap();
    assert_eq!(answer["status"]["authenticated"], true, "{answer}");
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:default:robot");
    if let Some(client) = cluster.with_token(&token).await {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        let denied = api.list(&ListParams::default()).await;
        refused(denied, 403, "Forbidden", "User \"system:serviceaccount:default:robot\" cannot list resource");
    }
    let short: TokenRequest = from(json!({"spec": {"expirationSeconds": 10, "audiences": []}}));
    let refusal: Result<TokenRequest, _> =
        accounts.create_subresource("token", "robot", &PostParams::default(), &short).await;
    refused(refusal, 422, "Invalid", "may not specify a duration less than 10 minutes");
    // After the account was deleted, its token is no longer valid.
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    let answer = cluster.raw(review(&body)).await.unwrap();
    assert_ne!(answer["status"]["authenticated"], true, "{answer}");
    if let Some(client) = cluster.with_token(&token).await {
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        refused(api.list(&ListParams::default()).await, 401, "Unauthorized", "Unauthorized");
    }
}

async fn access_reviews(cluster: Cluster) {
    let post = |path: &str, body: Value| {
        Request::post(path.to_owned())
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .unwrap()
    };
    let accounts: Api<ServiceAccount> = cluster.api();
    let robot = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    accounts.create(&PostParams::default(), &from(robot)).await.unwrap();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    cluster.raw(post(&format!("{rbac}/roles"), role)).await.unwrap();
    cluster.raw(post(&format!("{rbac}/rolebindings"), binding)).await.unwrap();
    let robot = cluster.service_account("robot").await;
    for (client, verb, resource, allowed) in [
        (&cluster.client, "delete", "nodes", true),
        (&robot, "list", "configmaps", true),
        (&robot, "delete", "configmaps", false),
        (&robot, "list", "secrets", false),
    ] {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
        let review: SelfSubjectAccessReview = from(json!({"spec": {"resourceAttributes":
            {"namespace": "default", "verb": verb, "resource": resource}}}));
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
        assert_eq!(answer.allowed, allowed, "{verb} {resource}: {answer:?}");
    }
    // The result of the review agrees with what the service account can really do.
    Api::<ConfigMap>::namespaced(robot.clone(), "default").list(&ListParams::default()).await.unwrap();
    let denied = Api::<Secret>::namespaced(robot, "default").list(&ListParams::default()).await;
    let message = "secrets is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"secrets\" \
                   in API group \"\" in the namespace \"default\"";
    refused(denied, 403, "Forbidden", message);
}

async fn dry_run(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    // The server writes its own objects at any time, so a changed version of the list would prove nothing. The objects
    // are compared.
    let before = api.list(&ListParams::default()).await.unwrap().items;
    let made = api.create(&dry, &config_map("one", &[("a", "1")])).await.unwrap();
    assert!(made.metadata.uid.is_some());
    assert_eq!(made.metadata.resource_version, None);
    refused(api.create(&dry, &config_map("Bad_Name", &[])).await, 422, "Invalid", "metadata.name");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items, before);
    let real = api.create(&PostParams::default(), &config_map("one", &[("a", "1")])).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"a": "2"}}));
    let patched = api.patch("one", &PatchParams::default().dry_run(), &patch).await.unwrap();
    assert_eq!(patched.data, Some(map(&[("a", "2")])));
    api.delete("one", &DeleteParams::default().dry_run()).await.unwrap();
    assert_eq!(api.get("one").await.unwrap(), real);
}

async fn tables_and_metadata(cluster: Cluster) {
    let api: Api<Deployment> = cluster.api();
    api.create(&PostParams::default(), &deployment("web")).await.unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let table = cluster.get_as(path, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Ready", "Up-to-date", "Available", "Age", "Containers", "Images", "Selector"]);
    let row = &table["rows"][0];
    assert_eq!(row["cells"].as_array().unwrap()[..4], [json!("web"), json!("0/1"), json!(0), json!(0)]);
    assert_eq!(row["cells"].as_array().unwrap()[5..], [json!("web"), json!("web:1"), json!("app=web")]);
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    let one = cluster
        .get_as(&format!("{path}/web?includeObject=Object"), "application/json;as=Table;v=v1;g=meta.k8s.io")
        .await;
    assert_eq!(one["rows"][0]["object"]["spec"]["replicas"], 1);

    let list = api.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(names(&list.items), ["web"]);
    assert!(list.items[0].metadata.uid.is_some());
    let one = api.get_metadata("web").await.unwrap();
    assert_eq!(one.metadata.uid, list.items[0].metadata.uid);
    let raw =
        cluster.get_as(&format!("{path}/web"), "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
    assert_eq!((&raw["kind"], &raw["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    assert!(raw.get("spec").is_none(), "{raw}");
    let mut events = api.watch_metadata(&WatchParams::default().timeout(10), "0").await.unwrap().boxed();
    let first = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap();
    assert!(matches!(&first, Some(WatchEvent::Added(meta)) if meta.name_any() == "web"), "{first:?}");
}

async fn refusals(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let status = refused(api.get("none").await, 404, "NotFound", "configmaps \"none\" not found");
    let details = status.details.unwrap();
    assert_eq!((details.name.as_str(), details.kind.as_str()), ("none", "configmaps"));
    let made = api.create(&PostParams::default(), &config_map("one", &[])).await.unwrap();
    let twice = api.create(&PostParams::default(), &config_map("one", &[])).await;
    refused(twice, 409, "AlreadyExists", "configmaps \"one\" already exists");
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    let stale = api.replace("one", &PostParams::default(), &made).await;
    let message = "Operation cannot be fulfilled on configmaps \"one\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    refused(stale, 409, "Conflict", message);
    let invalid = refused(
        api.create(&PostParams::default(), &config_map("Bad_Name", &[])).await,
        422,
        "Invalid",
        "ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\"",
    );
    let causes = invalid.details.unwrap().causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldValueInvalid", "metadata.name"));
    // The refusal of an invalid object reports all of its faults at once.
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "Bad_Name", "labels": {"bad key!": "x"}, "annotations": {"bad key!": "x"}}});
    let invalid = refused(api.create(&PostParams::default(), &from(wrong)).await, 422, "Invalid", "is invalid: [");
    let fields: Vec<String> = invalid.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    for field in ["metadata.name", "metadata.labels", "metadata.annotations"] {
        assert!(fields.iter().any(|found| found == field), "{field}: {fields:?}");
    }
    let nowhere: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), "nowhere");
    let lost = nowhere.create(&PostParams::default(), &config_map("one", &[])).await;
    refused(lost, 404, "NotFound", "namespaces \"nowhere\" not found");
    let unknown = Request::get("/apis/none.test/v1/things").body(Vec::new()).unwrap();
    refused(cluster.raw(unknown).await, 404, "NotFound", "");
    let mut immutable: Deployment = deployment("web");
    let deployments: Api<Deployment> = cluster.api();
    deployments.create(&PostParams::default(), &immutable).await.unwrap();
    immutable.spec.as_mut().unwrap().selector.match_labels = Some(map(&[("app", "other")]));
    immutable.spec.as_mut().unwrap().template.metadata.as_mut().unwrap().labels = Some(map(&[("app", "other")]));
    let changed = deployments.replace("web", &PostParams::default(), &immutable).await;
    refused(changed, 422, "Invalid", "field is immutable");
}

async fn generated_names(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}});
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let made = api.create(&PostParams::default(), &from(body.clone())).await.unwrap();
        assert!(made.name_any().starts_with("made-") && made.name_any().len() == 10, "{}", made.name_any());
        assert!(seen.insert(made.name_any()));
    }
}

async fn services_get_addresses(cluster: Cluster) {
    let api: Api<Service> = cluster.api();
    let service = |name: &str, kind: &str, address: Option<&str>| -> Service {
        from(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": kind, "clusterIP": address, "ports": [{"port": 80}]}}))
    };
    let address = |service: &Service| service.spec.clone().unwrap().cluster_ip.unwrap();
    let one = api.create(&PostParams::default(), &service("one", "ClusterIP", None)).await.unwrap();
    let two = api.create(&PostParams::default(), &service("two", "NodePort", None)).await.unwrap();
    assert_ne!(address(&one), address(&two));
    let port = two.spec.clone().unwrap().ports.unwrap()[0].node_port.unwrap();
    assert!((30000..=32767).contains(&port), "{port}");
    let taken = api.create(&PostParams::default(), &service("three", "ClusterIP", Some(&address(&one)))).await;
    refused(taken, 422, "Invalid", "provided IP is already allocated");
    api.delete("one", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &service("three", "ClusterIP", Some(&address(&one)))).await.unwrap();
    let none = api.create(&PostParams::default(), &service("four", "ClusterIP", Some("None"))).await.unwrap();
    assert_eq!(address(&none), "None");
}

async fn discovery(cluster: Cluster) {
    let version = cluster.client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));
    let discovered = kube::Discovery::new(cluster.client.clone()).run().await.unwrap();
    for (group, kind) in [("", "Pod"), ("apps", "Deployment"), ("batch", "CronJob"), ("policy", "PodDisruptionBudget")]
    {
        let group = discovered.groups().find(|found| found.name() == group).expect("the group");
        assert!(group.recommended_kind(kind).is_some(), "{kind}");
    }
    let plain = cluster.client.list_api_groups().await.unwrap();
    let aggregated = cluster.client.list_api_groups_aggregated().await.unwrap();
    let aggregated: Vec<String> =
        aggregated.items.into_iter().filter_map(|group| group.metadata.and_then(|meta| meta.name)).collect();
    assert_eq!(plain.groups.into_iter().map(|group| group.name).collect::<Vec<_>>(), aggregated);
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, code: u16, reason: &str, message: &str) -> kube::core::Status {
    match result {
        Err(Error::Api(status)) => {
            assert_eq!((status.code, status.reason.as_str()), (code, reason), "{status:?}");
            assert!(status.message.contains(message), "{message:?} is not in {:?}", status.message);
            *status
        }
        other => panic!("should be refused with {code} {reason}: {other:?}"),
    }
}

fn from<K: DeserializeOwned>(document: Value) -> K {
    serde_json::from_value(document).expect("a document of this kind")
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn names<K: ResourceExt>(items: &[K]) -> Vec<String> {
    items.iter().map(ResourceExt::name_any).collect()
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let mut made: ConfigMap = from(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
    made.data = (!data.is_empty()).then(|| map(data));
    made
}

fn labelled(name: &str, set: &str) -> ConfigMap {
    let mut made = config_map(name, &[("n", name)]);
    made.metadata.labels = Some(map(&[("set", set)]));
    made
}

fn deployment(name: &str) -> Deployment {
    from(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": name, "image": format!("{name}:1")}]}}}}))
}

fn pod(name: &str) -> Pod {
    from(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": name, "image": "x:1"}]}}))
}
