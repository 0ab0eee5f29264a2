//! Leader elections that the API server coordinates.

use super::start;
use holdfast_tests::eventually;
use holdfast_tests::wire::HttpClient;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

const GROUP: &str = "/apis/coordination.k8s.io";

/// A candidate for a lease that has just renewed.
fn candidate(name: &str, emulated: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({"apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": {"name": name},
        "spec": {"leaseName": "work", "binaryVersion": "1.35.0", "emulationVersion": emulated,
            "strategy": "OldestEmulationVersion", "renewTime": now}})
}

#[tokio::test]
async fn the_server_elects_holders_of_leases() {
    let options = ["--feature-gates=CoordinatedLeaderElection=true", "--coordinated-leadership-lease-duration=20s"];
    let (_folder, server) = start(&options);
    let admin = HttpClient::admin(&server);
    let candidates = format!("{GROUP}/v1beta1/namespaces/default/leasecandidates");
    let lease = format!("{GROUP}/v1/namespaces/default/leases/work");
    let patience = Duration::from_secs(60);
    let own = eventually(patience, || async {
        let own = admin.get(&format!("{GROUP}/v1/namespaces/kube-system/leases/leader-election-controller")).await;
        if own.code == 200 { Ok(own.json()) } else { Err("nobody coordinates") }
    })
    .await;
    assert_eq!(own["spec"]["leaseDurationSeconds"], 20);
    admin.post(&candidates, &candidate("newer", "1.35.0")).await.expect(201);
    let elected = eventually(patience, || async {
        let lease = admin.get(&lease).await;
        if lease.code == 200 { Ok(lease.json()) } else { Err("nobody is elected") }
    })
    .await;
    assert_eq!(
        (&elected["spec"]["holderIdentity"], &elected["spec"]["strategy"]),
        (&json!("newer"), &json!("OldestEmulationVersion"))
    );
    // The test extends the lease to 600 seconds, so a better candidate must wait until the holder is asked to release
    // the lease.
    let mut held = elected;
    held["spec"]["leaseDurationSeconds"] = 600.into();
    let json = [("content-type", "application/json")];
    admin.send(Method::PUT, &lease, &json, held.to_string()).await.expect(200);
    admin.post(&candidates, &candidate("older", "1.34.0")).await.expect(201);
    eventually(patience, || async {
        // Both candidates answer whenever they are pinged.
        for name in ["newer", "older"] {
            let path = format!("{candidates}/{name}");
            let mut answer = admin.get(&path).await.json();
            if answer["spec"]["pingTime"].as_str() > answer["spec"]["renewTime"].as_str() {
                answer["spec"]["renewTime"] = candidate("", "")["spec"]["renewTime"].clone();
                admin.send(Method::PUT, &path, &json, answer.to_string()).await;
            }
        }
        let lease = admin.get(&lease).await.json();
        let preferred = lease["spec"]["preferredHolder"] == "older" && lease["spec"]["holderIdentity"] == "newer";
        if preferred { Ok(()) } else { Err(format!("not preferred: {lease}")) }
    })
    .await;
    server.stop();

    // With the gate off no candidate is elected, and leases have no strategy.
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let lease =
        json!({"metadata": {"name": "own"}, "spec": {"holderIdentity": "me", "strategy": "OldestEmulationVersion"}});
    let made = admin.post(&format!("{GROUP}/v1/namespaces/default/leases"), &lease).await.expect(201).json();
    assert_eq!(made["spec"], json!({"holderIdentity": "me"}));
    server.stop();
}
