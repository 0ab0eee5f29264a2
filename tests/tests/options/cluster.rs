//! Options that change what the cluster shows about the server, or what the server refuses.

use super::{MAPS, start};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn privileged_containers_are_refused_where_they_are_not_allowed() {
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": {"containers":
        [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}});
    for (options, code) in [(&["--allow-privileged=false"][..], 422), (&[], 201)] {
        let (_folder, server) = start(options);
        let answer =
            HttpClient::admin(&server).post("/api/v1/namespaces/default/podtemplates", &template).await.expect(code);
        let field = "template.spec.containers[0].securityContext.privileged";
        assert_eq!(code == 422, answer.text().contains(field), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_cluster_is_told_of_the_server() {
    let options = [
        "--advertise-address=192.0.2.7",
        "--kubernetes-service-node-port=30443",
        "--identity-lease-duration-seconds=60",
        "--endpoint-reconciler-type=master-count",
        "--apiserver-count=2",
    ];
    let folder = Folder::new();
    let server = Server::start(folder.path(), &options);
    let admin = HttpClient::admin(&server);
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let addresses = |endpoints: &Value| endpoints["subsets"][0]["addresses"].clone();
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.7"}]));
    let service = admin.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["ports"][0]["nodePort"]),
        (&json!("NodePort"), &json!(30443))
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = admin.get(&format!("{leases}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver")).await;
    let leases = leases.expect(200).json();
    let name = leases["items"][0]["metadata"]["name"].as_str().expect("a lease").to_owned();
    assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
    assert_eq!(leases["items"][0]["spec"]["leaseDurationSeconds"], 60);
    server.stop();

    // With the reconciler `master-count`, a new address is added to the previous one. With the default reconciler, only
    // the new address remains.
    let moved = ["--advertise-address=192.0.2.8", "--endpoint-reconciler-type=master-count", "--apiserver-count=2"];
    let server = Server::start(folder.path(), &moved);
    let admin = HttpClient::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}]));
    let service = admin.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
    assert_eq!(service["spec"]["type"], "ClusterIP");
    server.stop();
    let server = Server::start(folder.path(), &["--advertise-address=192.0.2.8"]);
    let admin = HttpClient::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.8"}]));
    let told = admin.get(slice).await.expect(200).json();
    assert_eq!(told["endpoints"][0]["addresses"], json!(["192.0.2.8"]));
    assert_eq!(told["endpoints"].as_array().map(Vec::len), Some(1));
    server.stop();
    let server = Server::start(folder.path(), &["--advertise-address=192.0.2.9", "--endpoint-reconciler-type=none"]);
    let admin = HttpClient::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.8"}]));
    server.stop();
}

#[tokio::test]
async fn nobody_waits_for_a_garbage_collector_that_is_off() {
    for (option, code) in [("--enable-garbage-collector=false", 404), ("--enable-garbage-collector=true", 200)] {
        let (_folder, server) = start(&[option]);
        let admin = HttpClient::admin(&server);
        admin.post(MAPS, &json!({"metadata": {"name": "owner"}})).await.expect(201);
        let owner = format!("{MAPS}/owner");
        admin.send(Method::DELETE, &format!("{owner}?propagationPolicy=Foreground"), &[], "").await.expect(200);
        assert_eq!(admin.get(&owner).await.code, code, "{option}");
        server.stop();
    }
}
