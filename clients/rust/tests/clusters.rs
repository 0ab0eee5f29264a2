//! Tests of the clusters that this crate makes: their content, and their isolation from each other.

use futures_util::{StreamExt, TryStreamExt};
use holdfast_testing::Cluster;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn maps(client: Client) -> Api<ConfigMap> {
    Api::default_namespaced(client)
}

async fn put(client: &Client, name: &str) {
    let map = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    maps(client.clone()).create(&PostParams::default(), &map).await.unwrap();
}

async fn names(client: &Client) -> BTreeSet<String> {
    let found = maps(client.clone()).list(&ListParams::default()).await.unwrap();
    found.items.into_iter().filter_map(|map| map.metadata.name).filter(|name| name != "kube-root-ca.crt").collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_cluster_begins_with_what_every_cluster_has() {
    let client = Cluster::start().await.client();
    let namespaces = Api::<Namespace>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let found: BTreeSet<String> = namespaces.items.into_iter().filter_map(|space| space.metadata.name).collect();
    assert_eq!(found, set(&["default", "kube-node-lease", "kube-public", "kube-system"]));
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
}

#[tokio::test]
async fn clusters_see_nothing_of_each_other() {
    let (one, other) = (Cluster::start().await, Cluster::start().await);
    put(&one.client(), "mine").await;
    assert!(names(&other.client()).await.is_empty());
    let (fork, again) = (one.fork().await, one.fork().await);
    put(&fork.client(), "forked").await;
    maps(fork.client()).delete("mine", &DeleteParams::default()).await.unwrap();
    put(&one.client(), "later").await;
    assert_eq!(names(&fork.client()).await, set(&["forked"]));
    assert_eq!(names(&again.client()).await, set(&["mine"]));
    assert_eq!(names(&one.client()).await, set(&["later", "mine"]));
}

#[tokio::test]
async fn watches_see_their_own_cluster_and_end_with_it() {
    let parent = Cluster::start().await;
    let fork = parent.fork().await;
    // Bookmarks are turned off, because otherwise a bookmark at the end of the initial objects would come first.
    let params = WatchParams::default().disable_bookmarks();
    let mut of_parent = maps(parent.client()).watch(&params, "0").await.unwrap().boxed();
    let mut of_fork = maps(fork.client()).watch(&params, "0").await.unwrap().boxed();
    put(&fork.client(), "forked").await;
    put(&parent.client(), "ours").await;
    for (watch, expected) in [(&mut of_parent, "ours"), (&mut of_fork, "forked")] {
        let event = tokio::time::timeout(PATIENCE, watch.try_next()).await.expect("an event").unwrap();
        let Some(WatchEvent::Added(map)) = event else { panic!("{event:?} is no new object") };
        assert_eq!(map.metadata.name.as_deref(), Some(expected));
    }
    drop(fork);
    assert!(tokio::time::timeout(PATIENCE, of_fork.next()).await.expect("it ends").is_none());
    put(&parent.client(), "goes-on").await;
    assert!(tokio::time::timeout(PATIENCE, of_parent.try_next()).await.expect("an event").unwrap().is_some());
}

#[tokio::test]
async fn custom_kinds_are_a_clusters_own() {
    let parent = Cluster::start().await;
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}}}}],
        },
    }))
    .unwrap();
    let fork = parent.fork().await;
    Api::all(fork.client()).create(&PostParams::default(), &definition).await.unwrap();
    let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "things");
    let things = |cluster: &Cluster| Api::<DynamicObject>::default_namespaced_with(cluster.client(), &kind);
    let thing = |size: u64| -> DynamicObject {
        let document =
            json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "size": size});
        serde_json::from_value(document).unwrap()
    };
    let refused = things(&fork).create(&PostParams::default(), &thing(10)).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 422), "{refused}");
    things(&fork).create(&PostParams::default(), &thing(9)).await.unwrap();
    let below = fork.fork().await;
    assert!(things(&below).get_opt("a").await.unwrap().is_some());
    let missing = things(&parent).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(&missing, kube::Error::Api(status) if status.code == 404), "{missing}");
}

#[tokio::test]
async fn roles_are_a_clusters_own() {
    let parent = Cluster::start().await;
    let fork = parent.fork().await;
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    }))
    .unwrap();
    Api::default_namespaced(fork.client()).create(&PostParams::default(), &binding).await.unwrap();
    let began = Instant::now();
    // The background work of the cluster aggregates the rules of the ClusterRole `view`, which takes a moment.
    while let Err(refused) = maps(fork.client_as("jane", &["readers"])).list(&ListParams::default()).await {
        assert!(began.elapsed() < PATIENCE, "{refused}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (cluster, groups) in [(&parent, ["readers"]), (&fork, ["others"])] {
        let refused = maps(cluster.client_as("jane", &groups)).list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
    }
}

#[tokio::test]
async fn tokens_go_down_and_not_up() {
    let parent = Cluster::start().await;
    let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "clerk"}})).unwrap();
    Api::default_namespaced(parent.client()).create(&PostParams::default(), &account).await.unwrap();
    let fork = parent.fork().await;
    let token = async |cluster: &Cluster| {
        let accounts: Api<ServiceAccount> = Api::default_namespaced(cluster.client());
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let made = accounts.create_token_request("clerk", &PostParams::default(), &request).await.unwrap();
        made.status.unwrap().token
    };
    let knows = async |cluster: &Cluster, token: &str| {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let made = Api::<TokenReview>::all(cluster.client()).create(&PostParams::default(), &review).await.unwrap();
        made.status.and_then(|status| status.authenticated).unwrap_or(false)
    };
    let (old, new) = (token(&parent).await, token(&fork).await);
    assert!(knows(&parent, &old).await && knows(&fork, &old).await && knows(&fork, &new).await);
    assert!(!knows(&parent, &new).await && !knows(&parent.fork().await, &new).await);
    assert!(knows(&fork.fork().await, &new).await);
}

#[tokio::test]
async fn the_past_is_there_on_both_sides_of_a_fork() {
    let parent = Cluster::start().await;
    put(&parent.client(), "first").await;
    let first = parent.version();
    put(&parent.client(), "second").await;
    let fork = parent.fork().await;
    put(&fork.client(), "third").await;
    let third = fork.version();
    maps(fork.client()).delete("first", &DeleteParams::default()).await.unwrap();
    maps(parent.client()).delete("first", &DeleteParams::default()).await.unwrap();
    for (version, there) in [(first, &["first"][..]), (third, &["first", "second", "third"])] {
        assert_eq!(names(&fork.client_at(&version.to_string())).await, set(there), "{version}");
        let again = fork.fork_of(&version.to_string()).await;
        assert_eq!(names(&again.client()).await, set(there), "{version}");
        put(&again.client(), "goes-on").await;
    }
    assert_eq!(names(&fork.client()).await, set(&["second", "third"]));
}

/// A fork of a cluster that is prepared once for all tests. The prepared cluster outlives the test that made it.
async fn prepared() -> Cluster {
    static PREPARED: tokio::sync::OnceCell<Cluster> = tokio::sync::OnceCell::const_new();
    let prepare = || async {
        let cluster = Cluster::start().await;
        put(&cluster.client(), "prepared").await;
        cluster
    };
    PREPARED.get_or_init(prepare).await.fork().await
}

#[tokio::test]
async fn what_was_prepared_serves_this_test() {
    let cluster = prepared().await;
    put(&cluster.client(), "mine").await;
    assert_eq!(names(&cluster.client()).await, set(&["mine", "prepared"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_do_not_meet() {
    let mut tests = tokio::task::JoinSet::new();
    for number in 0..50 {
        tests.spawn(async move {
            let cluster = prepared().await;
            let client = cluster.client();
            put(&client, "mine").await;
            put(&client, &format!("number-{number}")).await;
            // The background work of the cluster removes the content of the deleted namespace.
            let space: Namespace = serde_json::from_value(json!({"metadata": {"name": "gone"}})).unwrap();
            let spaces = Api::<Namespace>::all(client.clone());
            spaces.create(&PostParams::default(), &space).await.unwrap();
            spaces.delete("gone", &DeleteParams::default()).await.unwrap();
            let began = Instant::now();
            while spaces.get_opt("gone").await.unwrap().is_some() {
                assert!(began.elapsed() < PATIENCE, "the namespace goes");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(names(&client).await, set(&["mine", &format!("number-{number}"), "prepared"]));
        });
    }
    while let Some(done) = tests.join_next().await {
        done.unwrap();
    }
}
