//! Quotas that several servers on one store share.

use holdfast_tests::etcd::{Cluster, Kine};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/own/configmaps";
const QUOTA: &str = "/api/v1/namespaces/own/resourcequotas/few";
const HARD: usize = 20;
const CREATES: usize = 60;

/// Two servers at once create objects, all of which one quota counts. The quota is used up, and not exceeded.
async fn race(url: &str) {
    let (etcd, folders) = (format!("--etcd-servers={url}"), [Folder::new(), Folder::new()]);
    let start = |nth: usize| {
        let address = format!("--advertise-address=10.1.1.{}", nth + 1);
        Server::start(folders[nth].path(), &[&etcd, &address])
    };
    let servers = [start(0), start(1)];
    let wires = servers.each_ref().map(HttpClient::admin);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}});
    wires[0].post("/api/v1/namespaces", &namespace).await.expect(201);
    let hard = json!({"count/configmaps": HARD.to_string()});
    let quota =
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}});
    wires[0].post("/api/v1/namespaces/own/resourcequotas", &quota).await.expect(201);
    // No controller runs here to count the existing objects, so the test writes the count.
    let status = json!({"status": {"hard": hard, "used": {"count/configmaps": "0"}}}).to_string();
    let merge = [("content-type", "application/merge-patch+json")];
    wires[0].send(Method::PATCH, &format!("{QUOTA}/status"), &merge, status).await.expect(200);
    wires[1].get(QUOTA).await.expect(200);
    let creating = (0..CREATES).map(|nth| {
        let wire = &wires[nth % 2];
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{nth}")}});
        async move {
            let answer = wire.post(MAPS, &map).await;
            let told = answer.text();
            assert!(answer.code == 201 || answer.code == 403 && told.contains("exceeded quota: few"), "{told}");
            answer.code == 201
        }
    });
    let created = futures_util::future::join_all(creating).await.into_iter().filter(|is_created| *is_created).count();
    assert_eq!(created, HARD);
    for wire in &wires {
        let used = wire.get(QUOTA).await.expect(200).json()["status"]["used"]["count/configmaps"].clone();
        let there = wire.get(MAPS).await.expect(200).json()["items"].as_array().expect("items").len();
        assert_eq!((used.as_str(), there), (Some("20"), HARD));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_quota_is_exceeded_by_two_servers() {
    race(&Cluster::single().urls()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_a_store_for_kubernetes_alone() {
    race(&Kine::start().url()).await;
}
