//! Watches, and clients that use them: informers, reflectors, controllers.

use super::{Cluster, PATIENCE, deployment, from, labelled, names, refused};
use futures_util::{StreamExt, TryStreamExt};
use holdfast_tests::eventually;
use http::Request;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, WatchStreamExt, finalizer, reflector, watcher};
use kube::{Client, Error, Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

pub async fn watching(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    let params = WatchParams::default().labels("set=w").timeout(20);
    let start = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.create(&PostParams::default(), &labelled("before", "w")).await.unwrap();
    let mut events = api.watch(&params, &start).await.unwrap().boxed();
    let patch = Patch::Merge(json!({"data": {"x": "y"}}));
    api.patch("before", &PatchParams::default(), &patch).await.unwrap();
    api.create(&PostParams::default(), &labelled("other", "not-w")).await.unwrap();
    api.delete("before", &DeleteParams::default()).await.unwrap();
    let mut seen = Vec::new();
    let mut versions = Vec::new();
    while seen.len() < 3 {
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap().expect("more");
        let (kind, object) = match event {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Modified(object) => ("modified", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => panic!("{status:?}"),
        };
        seen.push(format!("{kind} {}", object.name_any()));
        versions.push(object.resource_version().unwrap().parse::<u64>().unwrap());
    }
    assert_eq!(seen, ["added before", "modified before", "deleted before"]);
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    // A watch from version "0" first sends the existing objects.
    let mut events = api.watch(&WatchParams::default().timeout(20), "0").await.unwrap().boxed();
    let first = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap();
    assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");
}

pub async fn bookmarks_and_initial_events(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &labelled(name, "i")).await.unwrap();
    }
    let params = WatchParams::streaming_lists().labels("set=i").timeout(20);
    let mut events = api.watch(&params, "").await.unwrap().boxed();
    let mut added = Vec::new();
    let version = loop {
        match tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap().expect("more") {
            WatchEvent::Added(object) => added.push(object.name_any()),
            WatchEvent::Bookmark(mark) => {
                assert_eq!(mark.metadata.annotations["k8s.io/initial-events-end"], "true");
                break mark.metadata.resource_version;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(added, ["a", "b"]);
    let made = api.create(&PostParams::default(), &labelled("c", "i")).await.unwrap();
    assert!(made.resource_version().unwrap().parse::<u64>().unwrap() > version.parse::<u64>().unwrap());
    let next = tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap();
    assert!(matches!(&next, Some(WatchEvent::Added(object)) if object.name_any() == "c"), "{next:?}");
    let path = "/api/v1/namespaces/default/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true";
    let request = Request::get(path).body(Vec::new()).unwrap();
    refused(cluster.raw(request).await, 422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch");
}

/// A watch reports an object that enters its selection as ADDED, and an object that leaves it as DELETED.
pub async fn watching_a_selection(cluster: Cluster) {
    let api: Api<ConfigMap> = cluster.api();
    api.create(&PostParams::default(), &labelled("one", "in")).await.unwrap();
    let mut events = api.watch(&WatchParams::default().labels("set=in").timeout(20), "0").await.unwrap().boxed();
    for set in ["out", "other", "in"] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"set": set}}}));
        api.patch("one", &PatchParams::default(), &patch).await.unwrap();
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match tokio::time::timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap().expect("more") {
            WatchEvent::Added(object) => seen.push(format!("added {}", object.labels()["set"])),
            WatchEvent::Deleted(object) => seen.push(format!("deleted {}", object.labels()["set"])),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    // A DELETED event has the last state within the selection.
    assert_eq!(seen, ["added in", "deleted in", "added in"]);
}

pub async fn watchers_and_reflectors(cluster: Cluster) {
    for streaming in [false, true] {
        let api: Api<ConfigMap> = cluster.api();
        let set = format!("r{streaming}");
        let name = |index: usize| format!("{set}-{index}");
        for index in 0..5 {
            api.create(&PostParams::default(), &labelled(&name(index), &set)).await.unwrap();
        }
        let config = watcher::Config::default().labels(&format!("set={set}")).timeout(2);
        let config = if streaming { config.streaming_lists() } else { config.page_size(2) };
        let (reader, writer) = reflector::store();
        let stream = reflector(writer, watcher(api.clone(), config)).applied_objects();
        let follower = tokio::spawn(stream.for_each(|_| async {}));
        reader.wait_until_ready().await.expect("the reflector lives");
        assert_eq!(reader.state().len(), 5);
        // The rounds take longer than one watch, because each watch ends after two seconds.
        for round in 0..6 {
            let text = format!("round {round}");
            let patch = Patch::Merge(json!({"data": {"text": text}}));
            api.patch(&name(0), &PatchParams::default(), &patch).await.unwrap();
            api.create(&PostParams::default(), &labelled(&name(10 + round), &set)).await.unwrap();
            api.delete(&name(10 + round), &DeleteParams::default()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(400)).await;
        }
        api.delete(&name(4), &DeleteParams::default()).await.unwrap();
        let listed = api.list(&ListParams::default().labels(&format!("set={set}"))).await.unwrap();
        eventually(PATIENCE, || async {
            let mut cached: Vec<ConfigMap> = reader.state().iter().map(|object| (**object).clone()).collect();
            cached.sort_by_key(ResourceExt::name_any);
            if cached == listed.items {
                Ok(())
            } else {
                Err(format!("{:?} is not {:?}", names(&cached), names(&listed.items)))
            }
        })
        .await;
        follower.abort();
    }
}

/// A small operator: every Deployment gets a ConfigMap by server-side apply, and a cleanup by a finalizer.
pub async fn controllers(cluster: Cluster) {
    const FINALIZER: &str = "tests.holdfast.dev/cleanup";
    async fn reconcile(owner: Arc<Deployment>, client: Arc<Client>) -> Result<Action, finalizer::Error<Error>> {
        let deployments: Api<Deployment> = Api::namespaced((*client).clone(), "default");
        let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), "default");
        let name = format!("{}-settings", owner.name_any());
        let parameters = PatchParams::apply("operator").force();
        let reconciled = |event: finalizer::Event<Deployment>| async {
            match event {
                finalizer::Event::Apply(owner) => {
                    let owned: ConfigMap = from(json!({
                        "apiVersion": "v1", "kind": "ConfigMap",
                        "metadata": {"name": name, "ownerReferences": [owner.controller_owner_ref(&()).unwrap()]},
                        "data": {"replicas": owner.spec.as_ref().unwrap().replicas.unwrap_or(1).to_string()},
                    }));
                    maps.patch(&name, &parameters, &Patch::Apply(&owned)).await?;
                    let status = json!({
                        "apiVersion": "apps/v1", "kind": "Deployment",
                        "status": {"observedGeneration": owner.metadata.generation},
                    });
                    let parameters = PatchParams::apply("operator").force();
                    deployments.patch_status(&owner.name_any(), &parameters, &Patch::Apply(status)).await?;
                }
                finalizer::Event::Cleanup(_) => {
                    maps.delete(&name, &DeleteParams::default()).await?;
                }
            }
            Ok(Action::await_change())
        };
        finalizer(&deployments, FINALIZER, owner, reconciled).await
    }

    let deployments: Api<Deployment> = cluster.api();
    let maps: Api<ConfigMap> = cluster.api();
    let controller = Controller::new(deployments.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(200)), Arc::new(cluster.client.clone()));
    let controller = tokio::spawn(controller.for_each(|done| async move { println!("{done:?}") }));
    deployments.create(&PostParams::default(), &deployment("owner")).await.unwrap();
    let replicas = |wanted: &'static str| {
        let maps = &maps;
        eventually(PATIENCE, move || async move {
            let map = maps.get("owner-settings").await.map_err(|error| error.to_string())?;
            let found = map.data.unwrap_or_default().remove("replicas").unwrap_or_default();
            if found == wanted { Ok(()) } else { Err(format!("{found} replicas, not {wanted}")) }
        })
    };
    replicas("1").await;
    let patch = Patch::Merge(json!({"spec": {"replicas": 5}}));
    deployments.patch("owner", &PatchParams::default(), &patch).await.unwrap();
    replicas("5").await;
    // Owned objects are restored when another user deletes or changes them.
    maps.delete("owner-settings", &DeleteParams::default()).await.unwrap();
    replicas("5").await;
    let patch = Patch::Merge(json!({"data": {"replicas": "9"}}));
    maps.patch("owner-settings", &PatchParams::default(), &patch).await.unwrap();
    replicas("5").await;
    eventually(PATIENCE, || async {
        let found = deployments.get("owner").await.map_err(|error| error.to_string())?;
        let observed = found.status.and_then(|status| status.observed_generation);
        if observed == found.metadata.generation { Ok(()) } else { Err(format!("observed {observed:?}")) }
    })
    .await;
    deployments.delete("owner", &DeleteParams::default()).await.unwrap();
    eventually(PATIENCE, || async {
        match (deployments.get_opt("owner").await.unwrap(), maps.get_opt("owner-settings").await.unwrap()) {
            (None, None) => Ok(()),
            (owner, owned) => Err(format!("still there: {} {}", owner.is_some(), owned.is_some())),
        }
    })
    .await;
    controller.abort();
}
