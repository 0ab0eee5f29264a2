//! A cluster with controllers and a node, as `kube` sees it: conditions, logs, commands, attachments, ports, ephemeral
//! containers, signed certificates, and component statuses.

use super::{PATIENCE, eventually, from, names, pod, refused};
use futures_util::TryStreamExt;
use futures_util::io::AsyncBufReadExt;
use holdfast_tests::{Folder, Server};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ComponentStatus, Pod};
use kube::api::{
    Api, AttachParams, AttachedProcess, DeleteParams, EvictParams, ListParams, LogParams, Patch, PatchParams,
    PostParams, TerminalSize, WatchEvent, WatchParams,
};
use kube::runtime::conditions::{is_deleted, is_pod_running};
use kube::runtime::wait::await_condition;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::pin::pin;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

struct Living {
    client: Client,
    pods: Api<Pod>,
    _server: Server,
    _folder: Folder,
}

impl Living {
    async fn start() -> Living {
        let folder = Folder::new();
        let server = Server::start(&folder.join("data"), &["--controllers=*"]);
        let client = server.client().await;
        // Wait for the default account of the namespace, because ServiceAccount admission refuses pods without it.
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::default_namespaced(client.clone());
        eventually(PATIENCE, || accounts.get("default")).await;
        Living { pods: Api::default_namespaced(client.clone()), client, _server: server, _folder: folder }
    }

    /// A pod with one container that runs this script, once it is running.
    async fn running(&self, name: &str, script: &str, extra: Value) -> Pod {
        let mut made = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", script]}]}});
        merge(&mut made, extra);
        self.pods.create(&PostParams::default(), &from(made)).await.expect("created");
        let running = timeout(PATIENCE, await_condition(self.pods.clone(), name, is_pod_running()));
        running.await.expect("in time").expect("watched").expect("a pod that runs")
    }
}

/// Merges the values of `extra` into objects, and into the first item of lists.
fn merge(target: &mut Value, extra: Value) {
    match (target, extra) {
        (Value::Object(target), Value::Object(extra)) => {
            for (key, value) in extra {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(target), extra @ Value::Object(_)) => merge(&mut target[0], extra),
        (_, Value::Null) => {}
        (target, extra) => *target = extra,
    }
}

async fn read(stream: impl tokio::io::AsyncRead) -> String {
    let (mut text, mut stream) = (String::new(), pin!(stream));
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("in time").expect("text");
    text
}

/// Reads the next line of a stream.
async fn line(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut text = Vec::new();
    while text.last() != Some(&b'\n') {
        text.push(timeout(PATIENCE, stream.read_u8()).await.expect("in time").expect("a line"));
    }
    String::from_utf8(text).expect("text")
}

/// The status, its reason, and the command's exit code.
async fn end(mut process: AttachedProcess) -> (String, Option<String>, Option<String>) {
    let status =
        timeout(PATIENCE, process.take_status().expect("not taken yet")).await.expect("in time").expect("a status");
    let code = status.details.and_then(|details| details.causes?.into_iter().find_map(|cause| cause.message));
    (status.status.expect("success or failure"), status.reason, code)
}

#[tokio::test]
async fn commands_and_attachments() {
    let living = Living::start().await;
    let script = "while read line; do echo got $line; done; sleep infinity";
    living.running("shell", script, json!({"spec": {"containers": {"stdin": true}}})).await;

    let both = AttachParams::default().stderr(true);
    let mut process = living.pods.exec("shell", ["sh", "-c", "seq 3; echo no >&2; exit 7"], &both).await.unwrap();
    let (out, err) = (process.stdout().unwrap(), process.stderr().unwrap());
    assert_eq!(tokio::join!(read(out), read(err)), ("1\n2\n3\n".to_owned(), "no\n".to_owned()));
    assert_eq!(end(process).await, ("Failure".to_owned(), Some("NonZeroExitCode".to_owned()), Some("7".to_owned())));

    let input = AttachParams::default().stdin(true).stderr(false);
    let mut process = living.pods.exec("shell", ["sh"], &input).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    stdin.write_all(b"echo one\n").await.unwrap();
    assert_eq!(line(&mut stdout).await, "one\n");
    stdin.write_all(b"exit\n").await.unwrap();
    assert_eq!(end(process).await, ("Success".to_owned(), None, None));

    // Output after the end of the input is received as well: the protocol can close one stream.
    let mut process = living.pods.exec("shell", ["sh", "-c", "cat; sleep 1; echo late"], &input).await.unwrap();
    let (mut stdin, stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    stdin.write_all(b"early\n").await.unwrap();
    stdin.shutdown().await.unwrap();
    assert_eq!(read(stdout).await, "early\nlate\n");
    assert_eq!(end(process).await.0, "Success");

    // Runs a shell on a terminal, and sets the terminal's size.
    let terminal = AttachParams::interactive_tty();
    let mut process = living.pods.exec("shell", ["sh"], &terminal).await.unwrap();
    let mut size = process.terminal_size().unwrap();
    size.try_send(TerminalSize { width: 120, height: 40 }).unwrap();
    let (mut stdin, stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    stdin.write_all(b"exit 4\n").await.unwrap();
    read(stdout).await;
    assert_eq!(end(process).await.2, Some("4".to_owned()));

    let mut process = living.pods.attach("shell", &input).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    stdin.write_all(b"hello\n").await.unwrap();
    assert_eq!(line(&mut stdout).await, "got hello\n");
    process.abort();

    let nowhere = living.pods.exec("none", ["true"], &AttachParams::default()).await;
    assert!(nowhere.is_err(), "a pod that is not there runs nothing");
}

#[tokio::test]
async fn ports_are_forwarded() {
    let living = Living::start().await;
    let answer = json!({"metadata": {"annotations": {"simulate.holdfast.dev/answer": "Hello World"}},
        "spec": {"containers": {"ports": [{"containerPort": 80}, {"containerPort": 81}]}}});
    living.running("web", "sleep infinity", answer).await;
    let mut forwarded = living.pods.portforward("web", &[80, 81]).await.unwrap();
    for port in [81, 80] {
        let mut stream = forwarded.take_stream(port).unwrap();
        // The protocol cannot close single streams, so all streams stay open until the last has ended.
        stream.write_all(b"GET / HTTP/1.1\r\nHost: web\r\n\r\n").await.unwrap();
        assert_eq!(line(&mut stream).await, "HTTP/1.1 200 OK\r\n", "{port}");
        while line(&mut stream).await != "\r\n" {}
        let mut answer = [0; 11];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("in time").expect("an answer");
        assert_eq!(&answer, b"Hello World", "{port}");
    }
    let error = forwarded.take_error(80).unwrap();
    timeout(PATIENCE, forwarded.join()).await.expect("in time").expect("an end without a fault");
    assert_eq!(error.await, None);
}

#[tokio::test]
async fn logs_and_evictions() {
    let living = Living::start().await;
    let script = "for i in $(seq 1 5); do echo kube $i; sleep 0.1; done";
    living.running("counts", script, json!({})).await;
    let follow = LogParams { follow: true, ..LogParams::default() };
    let followed = living.pods.log_stream("counts", &follow).await.unwrap().lines();
    let lines: Vec<String> = timeout(PATIENCE, followed.try_collect()).await.expect("in time").unwrap();
    assert_eq!(lines, ["kube 1", "kube 2", "kube 3", "kube 4", "kube 5"]);
    let all = living.pods.logs("counts", &LogParams::default()).await.unwrap();
    assert_eq!(all.lines().collect::<Vec<_>>(), lines);
    let last = LogParams { tail_lines: Some(2), timestamps: true, container: Some("c".into()), ..LogParams::default() };
    let last = living.pods.logs("counts", &last).await.unwrap();
    let ends: Vec<&str> = last.lines().map(|line| line.split_once("Z ").expect("a time").1).collect();
    assert_eq!(ends, ["kube 4", "kube 5"]);
    let other = LogParams { container: Some("other".into()), ..LogParams::default() };
    refused(living.pods.logs("counts", &other).await, 400, "BadRequest", "container other is not valid for pod counts");
    let crashed = LogParams { previous: true, ..LogParams::default() };
    refused(living.pods.logs("counts", &crashed).await, 400, "BadRequest", "previous terminated container");

    let evicted = living.pods.evict("counts", &EvictParams::default()).await.unwrap();
    assert_eq!((evicted.code, evicted.is_success()), (201, true));
}

#[tokio::test]
async fn pods_from_their_beginning_to_their_end() {
    let living = Living::start().await;
    let pods = &living.pods;
    let (from_now, params) = (WatchParams::default().fields("metadata.name=lives").timeout(30), PatchParams::default());
    let version = pods.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let made = living.running("lives", "sleep infinity", json!({})).await;
    let uid = made.uid().unwrap();
    // A watch from a version before the pod's creation shows all phases of the pod.
    let mut events = pin!(pods.watch(&from_now, &version).await.unwrap());
    let mut phases = Vec::new();
    while phases.last().is_none_or(|phase| phase != "Running") {
        match timeout(PATIENCE, events.try_next()).await.expect("in time").unwrap() {
            Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                phases.push(pod.status.unwrap().phase.unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(phases[0], "Pending");

    // Ephemeral containers can be replaced, patched and read.
    let extra = |name: &str| json!({"name": name, "image": "busybox", "command": ["sh", "-c", "sleep 2"]});
    assert_eq!(pods.get_ephemeral_containers("lives").await.unwrap().spec.unwrap().ephemeral_containers, None);
    let one = from(json!({"metadata": {"name": "lives"}, "spec": {"ephemeralContainers": [extra("one")]}}));
    pods.replace_ephemeral_containers("lives", &PostParams::default(), &one).await.unwrap();
    let two = Patch::Strategic(json!({"spec": {"ephemeralContainers": [extra("two")]}}));
    let both = pods.patch_ephemeral_containers("lives", &params, &two).await.unwrap();
    let found = both.spec.unwrap().ephemeral_containers.unwrap();
    let mut named: Vec<&str> = found.iter().map(|container| container.name.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, ["one", "two"]);
    let read = pods.get_ephemeral_containers("lives").await.unwrap().spec.unwrap().ephemeral_containers.unwrap();
    assert_eq!(read, found);
    let gone = Patch::Json::<()>(from(json!([{"op": "remove", "path": "/spec/ephemeralContainers/0"}])));
    let kept = pods.patch_ephemeral_containers("lives", &params, &gone).await;
    refused(kept, 422, "Invalid", "existing ephemeral containers");

    // Resizes a container of the running pod.
    let more =
        Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}));
    refused(pods.patch_resize("lives", &params, &more).await, 422, "Invalid", "Pod QOS Class may not change");

    // A client can patch and list only the metadata of objects.
    let patch = Patch::Merge(json!({"metadata": {"labels": {"seen": "yes"}}}));
    let patched = pods.patch_metadata("lives", &params, &patch).await.unwrap();
    assert_eq!((patched.labels()["seen"].as_str(), patched.uid()), ("yes", Some(uid.clone())));
    let listed = pods.list_metadata(&ListParams::default().labels("seen=yes")).await.unwrap();
    assert_eq!(
        (names(&listed.items), listed.types.kind.as_str()),
        (vec!["lives".to_owned()], "PartialObjectMetadataList")
    );
    let item = listed.items[0].types.clone().unwrap();
    assert_eq!((item.api_version.as_str(), item.kind.as_str()), ("meta.k8s.io/v1", "PartialObjectMetadata"));

    // A deleted pod ends after a moment. The test waits until the pod with this UID no longer exists.
    let deleted = pods.delete("lives", &DeleteParams::default()).await.unwrap();
    assert_eq!(deleted.left().expect("it takes a moment to end").name_any(), "lives");
    let end = timeout(PATIENCE, await_condition(pods.clone(), "lives", is_deleted(&uid)));
    end.await.expect("in time").expect("watched");

    // A client can apply an object without a Rust type.
    let kind = kube::core::ApiResource::erase::<Pod>(&());
    let any: Api<kube::core::DynamicObject> = Api::default_namespaced_with(living.client.clone(), &kind);
    let mut wanted = serde_json::to_value(pod("applied")).unwrap();
    merge(&mut wanted, json!({"metadata": {"labels": {"a": "b"}}}));
    let applied = any.patch("applied", &PatchParams::apply("kube"), &Patch::Apply(&wanted)).await.unwrap();
    assert_eq!(applied.data["spec"]["containers"][0]["image"], "x:1");
    assert_eq!(applied.types.unwrap().kind, "Pod");
}

#[tokio::test]
async fn components_and_certificates() {
    let living = Living::start().await;
    let components: Api<ComponentStatus> = Api::all(living.client.clone());
    for name in ["scheduler", "controller-manager"] {
        let healthy = |status: ComponentStatus| {
            let conditions = status.conditions.unwrap_or_default();
            conditions.iter().any(|condition| condition.type_ == "Healthy" && condition.status == "True")
        };
        eventually(PATIENCE, || async {
            match components.get(name).await {
                Ok(status) if healthy(status.clone()) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
    let listed = names(&components.list(&ListParams::default()).await.unwrap().items);
    assert!(
        ["scheduler", "controller-manager"].iter().all(|name| listed.iter().any(|found| found == name)),
        "{listed:?}"
    );

    let key = rcgen::KeyPair::generate().unwrap();
    let mut wanted = rcgen::CertificateParams::default();
    wanted.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
    let pem = wanted.serialize_request(&key).unwrap().pem().unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(living.client.clone());
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "somebody"},
        "spec": {"request": base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pem),
            "signerName": "kubernetes.io/kube-apiserver-client", "expirationSeconds": 86400, "usages": ["client auth"]}});
    requests.create(&PostParams::default(), &from(request)).await.unwrap();
    let approval = json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}});
    requests.patch_approval("somebody", &PatchParams::default(), &Patch::Merge(approval)).await.unwrap();
    let approved = requests.get_approval("somebody").await.unwrap().status.unwrap();
    assert_eq!(approved.conditions.unwrap()[0].type_, "Approved");
    eventually(PATIENCE, || async {
        let status = requests.get("somebody").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        status.certificate.map(|_| ()).ok_or_else(|| format!("{:?}", status.conditions))
    })
    .await;
}
