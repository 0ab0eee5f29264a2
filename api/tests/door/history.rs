//! Tests how much of the past each user may read.

use crate::people::{admin, allow, ask, call, cluster, has, jane, map, must, named, until};
use holdfast_core::Refusal;
use holdfast_core::authz::User;
use holdfast_core::refusal::Expired;
use holdfast_core::request::Verb;
use holdfast_service::{Call, CallSubject, Options, Reply, Service, housekeeping};
use holdfast_value::{Value, json};
use std::sync::Arc;

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";

async fn make_namespace(service: &Arc<Service>) {
    must(service, Verb::Create, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
}

/// Reads a past version of a ConfigMap in every way that the API offers.
async fn ways(service: &Arc<Service>, user: &User, version: u64) -> Vec<Result<Reply, Refusal>> {
    let version = version.to_string();
    let mut calls = Vec::new();
    for (verb, path) in [(Verb::Get, format!("{MAPS}/a")), (Verb::List, MAPS.to_owned())] {
        let mut exact = named(verb, &path, &Value::Null);
        exact.options.resource_version = Some(version.clone());
        exact.options.resource_version_match = Some("Exact".into());
        calls.push(call(user, exact));
        let mut at = named(verb, &path, &Value::Null);
        at.at = Some(version.clone());
        calls.push(call(user, at));
        calls.push(Call { at: Some(version.clone()), ..call(user, named(verb, &path, &Value::Null)) });
    }
    let mut watch = named(Verb::Watch, MAPS, &Value::Null);
    watch.options.resource_version = Some(version.clone());
    calls.push(call(user, watch));
    let mut rehearsal = named(Verb::Patch, &format!("{MAPS}/a"), &json!({"data": {"x": "y"}}));
    rehearsal.options.dry_run = true;
    calls.push(Call { at: Some(version), ..call(user, rehearsal) });
    let mut replies = Vec::new();
    for call in calls {
        replies.push(service.call(call).await.reply);
    }
    replies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_made_anew_has_no_past() {
    let service = cluster(Options::default()).await;
    let house = tokio::spawn(housekeeping::run(service.clone()));
    make_namespace(&service).await;
    must(&service, Verb::Create, MAPS, map("a")).await;
    let before = service.engine().snapshot().offset.0;
    must(&service, Verb::Delete, "/api/v1/namespaces/shop", Value::Null).await;
    until(&service, "going", |service| !has(service, "namespaces", "shop")).await;
    make_namespace(&service).await;
    let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]});
    allow(&service, &jane(), "shop", rule.clone()).await;
    must(&service, Verb::Create, MAPS, map("a")).await;
    let now = service.engine().snapshot().offset.0;
    must(&service, Verb::Delete, &format!("{MAPS}/a"), Value::Null).await;
    for reply in ways(&service, &jane(), before).await {
        assert!(matches!(&reply, Err(Refusal::Expired(Expired::BeforeNamespace { .. }))), "{reply:?}");
    }
    // The owner may see the past of the current namespace.
    for reply in ways(&service, &jane(), now).await {
        reply.expect("her own");
    }
    // A user that may read ConfigMaps in all namespaces sees the whole past.
    let auditor = User::new("auditor", &["system:authenticated"]);
    allow(&service, &auditor, "", rule).await;
    for user in [admin(), auditor] {
        for reply in ways(&service, &user, before).await {
            reply.expect("everything");
        }
    }
    house.abort();
    service.engine().close();
}

#[tokio::test]
async fn the_log_is_for_those_who_may_read_everything() {
    let service = cluster(Options::default()).await;
    let paths = json!({"nonResourceURLs": ["*"], "verbs": ["*"]});
    let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]});
    let most = json!({"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]});
    let users: Vec<User> = ["prober", "developer", "auditor"].map(|name| User::new(name, &[])).into();
    for user in &users {
        allow(&service, user, "", paths.clone()).await;
    }
    allow(&service, &users[1], "", most).await;
    allow(&service, &users[2], "", all).await;
    for (user, granted) in users.iter().chain([&admin()]).zip([false, false, true, true]) {
        let log = CallSubject::Everything { verb: "get", path: "/holdfast/v1/log".into() };
        let reply = service.call(Call::new(Arc::new(user.clone()), log)).await.reply;
        assert_eq!(matches!(reply, Ok(Reply::Granted(_))), granted, "{}: {reply:?}", user.name);
        let metrics = CallSubject::Path { verb: "get", path: "/metrics".into() };
        let reply = service.call(Call::new(Arc::new(user.clone()), metrics)).await.reply;
        assert!(matches!(reply, Ok(Reply::Granted(_))), "{}: {reply:?}", user.name);
    }
    service.engine().close();
}

#[tokio::test]
async fn a_namespace_in_a_namespace_is_nowhere() {
    let service = cluster(Options::default()).await;
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    allow(&service, &jane(), "default", everything).await;
    make_namespace(&service).await;
    let inside = "/api/v1/namespaces/default/namespaces";
    let one = format!("{inside}/shop");
    for (verb, path, body) in [
        (Verb::Get, &*one, Value::Null),
        (Verb::Update, &one, json!({"metadata": {"name": "shop"}})),
        (Verb::Patch, &one, json!({"metadata": {"labels": {"a": "b"}}})),
        (Verb::Delete, &one, Value::Null),
        (Verb::List, inside, Value::Null),
        (Verb::Watch, inside, Value::Null),
        (Verb::Create, inside, json!({"metadata": {"name": "new"}})),
        (Verb::DeleteCollection, inside, Value::Null),
        (Verb::Get, "/api/v1/namespaces/default/nodes/n", Value::Null),
        (Verb::List, "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterroles", Value::Null),
    ] {
        for user in [jane(), admin()] {
            let reply = ask(&service, &user, verb, path, body.clone()).await;
            assert!(matches!(reply, Err(Refusal::NoSuchPath)), "{} {path}: {reply:?}", verb.as_str());
        }
    }
    let outside = ask(&service, &jane(), Verb::Get, "/api/v1/namespaces/shop", Value::Null).await;
    assert!(matches!(outside, Err(Refusal::Forbidden { .. })), "{outside:?}");
    must(&service, Verb::Get, "/api/v1/namespaces/shop", Value::Null).await;
    service.engine().close();
}
