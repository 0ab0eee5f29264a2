//! Options about feature gates and emulated releases.

use super::start;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::json;

#[tokio::test]
async fn an_older_release_is_stood_for() {
    let (_folder, server) = start(&["--emulated-version=1.18", "--runtime-config=batch/v1beta1=false"]);
    let admin = HttpClient::admin(&server);
    let version = admin.get("/version").await.expect(200).json();
    assert_eq!((&version["minor"], &version["emulationMinor"]), (&json!("35"), &json!("18")));
    let groups = admin.get("/apis").await.expect(200).text();
    assert!(groups.contains("policy/v1beta1") && !groups.contains("\"policy/v1\""), "{groups}");
    for (path, code) in [
        ("/apis/policy/v1", 404),
        ("/apis/policy/v1/poddisruptionbudgets", 404),
        ("/apis/batch/v1/cronjobs", 404),
        ("/apis/batch/v1beta1/cronjobs", 404),
        ("/apis/batch/v2alpha1/cronjobs", 200),
        ("/apis/extensions/v1beta1/ingresses", 200),
        ("/apis/apps/v1/deployments", 200),
    ] {
        assert_eq!(admin.get(path).await.code, code, "{path}");
    }
    let services = admin.get("/apis/apiregistration.k8s.io/v1/apiservices").await.expect(200).text();
    assert!(services.contains("\"v1.apps\"") && !services.contains("\"v1.policy\""), "{services}");
    for path in ["/apis/extensions/v1beta1/ingresses", "/api/v1/endpoints"] {
        assert_eq!(admin.get(path).await.expect(200).header("warning"), "", "1.18 warned of nothing: {path}");
    }
    let maps = admin.get("/api/v1/namespaces").await.expect(200).json();
    assert!(maps["metadata"]["selfLink"].is_string(), "1.18 told where objects are: {}", maps["metadata"]);
    assert_eq!(admin.get("/statusz").await.code, 404, "1.18 had no such page");
    server.stop();
}

#[tokio::test]
async fn all_gates_of_a_stage_are_turned_on_at_once() {
    let (_folder, server) = start(&["--feature-gates=AllBeta=true"]);
    let admin = HttpClient::admin(&server);
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = admin.post(definitions, &definition).await.expect(201).json();
    let status = &made["status"];
    assert_eq!((&status["observedGeneration"], &status["conditions"][0]["observedGeneration"]), (&json!(1), &json!(1)));
    let metrics = admin.get("/metrics").await.text();
    let on = "kubernetes_feature_enabled{name=\"CRDObservedGenerationTracking\",stage=\"BETA\"} 1";
    assert!(metrics.contains(on), "{metrics}");
    server.stop();
}

#[tokio::test]
async fn gates_turn_what_they_say() {
    let options = [
        "--feature-gates=ServiceAccountIssuerDiscovery=false,APIPriorityAndFairness=false,PodLevelResources=false",
        "--feature-gates=TTLAfterFinished=false,ContainerStopSignals=true",
        "--version=v1.35.0-own.1",
        "--tls-curve-preferences=23",
    ];
    let (_folder, server) = start(&options);
    let admin = HttpClient::admin(&server);
    assert_eq!(admin.get("/version").await.json()["gitVersion"], "v1.35.0-own.1");
    admin.get("/openid/v1/jwks").await.expect(404);
    let metrics = admin.get("/metrics").await.text();
    assert!(!metrics.contains("apiserver_flowcontrol_dispatched_requests_total{"), "nobody waits for a turn");
    let spec = json!({"restartPolicy": "Never", "os": {"name": "linux"}, "resources": {"limits": {"cpu": "1"}},
        "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGINT"}}]});
    let job = json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 5, "template": {"spec": spec}}});
    let made = admin.post("/apis/batch/v1/namespaces/default/jobs", &job).await.expect(201).json();
    let pods = &made["spec"]["template"]["spec"];
    assert!(made["spec"]["ttlSecondsAfterFinished"].is_null() && pods["resources"].is_null(), "{made}");
    assert_eq!(pods["containers"][0]["lifecycle"], json!({"stopSignal": "SIGINT"}));
    server.stop();

    let folder = Folder::new();
    let options = [
        "--feature-gates=HPAScaleToZero=true,X=true",
        "--version=v1.34.0",
        "--tls-curve-preferences=1",
        "--egress-selector-config-file=/e",
    ];
    let refused = Server::try_start(folder.path(), &options).err().expect("a refusal").stderr;
    for part in [
        "X",
        "match major/minor/patch",
        "--tls-curve-preferences: 1 is not served",
        "egress-selector-config-file /e does not exist",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let one = ["--feature-gates=StrictIPCIDRValidation=true"];
    let refused = Server::try_start(folder.path(), &one).err().expect("a refusal").stderr;
    assert!(
        refused.contains(
            "cannot set feature gate StrictIPCIDRValidation to true: addresses are validated as in older releases"
        ),
        "{refused}"
    );
}
