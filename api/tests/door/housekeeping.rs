//! Tests the work that the server does by itself, under user names to which RBAC grants permissions.

use crate::people::{ask, cluster, has, map, must, until};
use holdfast_core::Refusal;
use holdfast_core::request::Verb;
use holdfast_service::{Options, housekeeping};
use holdfast_value::{Value, json};
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_emptied_and_goes() {
    let service = cluster(Options::default()).await;
    let house = tokio::spawn(housekeeping::run(service.clone()));
    let namespaces = "/api/v1/namespaces";
    must(&service, Verb::Create, namespaces, json!({"metadata": {"name": "n1"}})).await;
    for resource in ["configmaps", "secrets", "serviceaccounts"] {
        for name in ["a", "b"] {
            let body = json!({"metadata": {"name": name}});
            must(&service, Verb::Create, &format!("{namespaces}/n1/{resource}"), body).await;
        }
    }
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/f"]}});
    must(&service, Verb::Create, &format!("{namespaces}/n1/configmaps"), held).await;
    must(&service, Verb::Create, &format!("{namespaces}/default/configmaps"), map("elsewhere")).await;
    must(&service, Verb::Delete, &format!("{namespaces}/n1"), Value::Null).await;
    until(&service, "emptying", |service| !has(service, "secrets", "n1/b") && !has(service, "configmaps", "n1/b"))
        .await;
    until(&service, "telling why it stays", |service| {
        let state = service.engine().snapshot();
        let namespace = state.get(state.registry.namespaces(), "n1").map(|entry| entry.document().to_string());
        namespace.is_some_and(|text| text.contains("example.com/f in 1 resource instances"))
    })
    .await;
    assert!(has(&service, "configmaps", "n1/held"));
    let release = json!({"metadata": {"finalizers": null}});
    must(&service, Verb::Patch, &format!("{namespaces}/n1/configmaps/held"), release).await;
    until(&service, "going", |service| !has(service, "namespaces", "n1")).await;
    assert!(has(&service, "configmaps", "default/elsewhere"));

    // The server must have made the deletions under the controller's user name.
    let log = service.engine().log();
    let last = log.read(log.last().unwrap()).unwrap().unwrap();
    assert_eq!((last.resource.as_str(), last.key.as_str(), last.is_delete()), ("namespaces", "n1", true));
    assert_eq!(last.actor.user, "system:serviceaccount:kube-system:namespace-controller");

    // The loop has only a weak reference to the service, so the service can be dropped.
    service.engine().close();
    let weak = Arc::downgrade(&service);
    drop(service);
    house.abort();
    let _ = house.await;
    // A request of the loop that was under way ends a little later.
    for _ in 0..4000 {
        if weak.strong_count() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the service is held after its loop has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_judge_what_the_server_does() {
    let service = cluster(Options::default()).await;
    let house = tokio::spawn(housekeeping::run(service.clone()));
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let gathered = json!({"metadata": {"name": "gathered", "labels": {"part-of": "all"}},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    must(&service, Verb::Create, roles, gathered).await;
    let gathering = json!({"metadata": {"name": "all"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part-of": "all"}}]}, "rules": []});
    must(&service, Verb::Create, roles, gathering).await;
    let has_rules = |service: &holdfast_service::Service, wanted: &str| {
        let state = service.engine().snapshot();
        let (kind, _) = state.registry.find("rbac.authorization.k8s.io", "v1", "clusterroles").unwrap();
        state.get(kind, "all").is_some_and(|entry| entry.document()["rules"].to_string().contains(wanted))
    };
    until(&service, "gathering", |service| has_rules(service, "pods")).await;

    // The deletion of the role binding takes all permissions from the controller's user.
    let binding = "system:controller:namespace-controller";
    let bindings = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{binding}");
    must(&service, Verb::Delete, &bindings, Value::Null).await;
    must(&service, Verb::Create, "/api/v1/namespaces", json!({"metadata": {"name": "n1"}})).await;
    must(&service, Verb::Create, "/api/v1/namespaces/n1/configmaps", map("kept")).await;
    must(&service, Verb::Delete, "/api/v1/namespaces/n1", Value::Null).await;
    let controller = holdfast_core::authz::User::service_account("kube-system", "namespace-controller", "");
    let refused = ask(&service, &controller, Verb::Delete, "/api/v1/namespaces/n1/configmaps/kept", Value::Null).await;
    assert!(matches!(refused, Err(Refusal::Forbidden { .. })), "{refused:?}");
    must(&service, Verb::Create, "/api/v1/namespaces/default/configmaps", map("more")).await;
    house.abort();
    service.engine().close();
}
