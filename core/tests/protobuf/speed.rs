//! Measures the codec's speed: `cargo test --release --test protobuf speed -- --ignored --nocapture`.

use std::{hint::black_box, time::Instant};

use holdfast_core::wire::protobuf::codec;
use holdfast_value::{Value, json};

fn pod() -> Value {
    let labels = json!({"app": "web", "pod-template-hash": "5d69f7c9d7", "tier": "front"});
    let container = |name: &str| {
        json!({"name": name, "image": "registry.example.com/team/web:1.2.3", "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "periodSeconds": 10,
                "successThreshold": 1, "failureThreshold": 3, "timeoutSeconds": 1},
            "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "token", "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]})
    };
    let condition = |ty: &str| json!({"type": ty, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2024-02-29T12:00:00Z"});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-5d69f7c9d7-x2x4z", "generateName": "web-5d69f7c9d7-", "namespace": "default",
            "uid": "0c6e3f9e-3a0f-4f0a-9a53-6d3d2a1f0b9c", "resourceVersion": "123456", "labels": labels,
            "creationTimestamp": "2024-02-29T12:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d69f7c9d7",
                "uid": "5f9a3a4e-6a2d-4b0e-8f4b-0a5f0e6b7c8d", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": "2024-02-29T12:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {}}}}]},
        "spec": {"containers": [container("web"), container("sidecar")], "restartPolicy": "Always",
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "token", "projected": {"defaultMode": 420,
                "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "nodeName": "node-1", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}], "priority": 0, "enableServiceLinks": true},
        "status": {"phase": "Running", "conditions": [condition("Initialized"), condition("Ready"),
            condition("ContainersReady"), condition("PodScheduled")], "hostIP": "10.0.0.1", "podIP": "10.1.0.2",
            "podIPs": [{"ip": "10.1.0.2"}], "startTime": "2024-02-29T12:00:00Z", "qosClass": "Burstable"}})
}

#[test]
#[ignore = "prints times, checks none"]
#[expect(clippy::disallowed_methods, reason = "a measurement needs a clock, and stands outside of the core")]
fn speed() {
    const ROUNDS: u32 = 20_000;
    let document = pod();
    let id = codec().find("v1", "Pod").expect("a pod");
    let bytes = codec().encode_object(id, &document).expect("a pod");
    let text = document.to_string();
    println!("JSON {} bytes, Protobuf {} bytes", text.len(), bytes.len());
    let time = |what: &str, run: &dyn Fn()| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| run());
        let each = start.elapsed() / ROUNDS;
        println!("{what}: {each:?}, {:?} a KB of JSON", each * 1024 / text.len() as u32);
    };
    time("to Protobuf", &|| drop(black_box(codec().encode_object(id, &document))));
    time("to JSON values", &|| drop(black_box(codec().decode_object(&bytes))));
    time("(to JSON text)", &|| drop(black_box(document.to_string())));
    time("(from JSON text)", &|| drop(black_box(serde_json::from_str::<Value>(&text))));
}
