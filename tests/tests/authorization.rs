//! Authorization in each mode: webhooks over TLS that answer correctly, answer wrongly or fail, files that change while
//! the server runs, the Node authorizer, policy files, and a real kubectl.

use holdfast_core::object::yaml;
use holdfast_tests::hooks::Hooks;
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually, has_reloaded};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JSON: (&str, &str) = ("content-type", "application/json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");
const PATIENCE: Duration = Duration::from_secs(30);
const TOKENS: &str = "j,jane,1\na,alice,2,\"dev\"\nb,bob,3\ng,gone,4\n";

/// The kubeconfig of a webhook at a path.
fn kubeconfig(folder: &Folder, hooks: &Hooks, name: &str) -> String {
    let of = |wanted: &str| hooks.names.iter().find(|(name, _)| *name == wanted).map(|(_, is)| is.clone()).unwrap();
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "h", "cluster": {
            "server": format!("https://{}/{name}", of("<hook>")), "certificate-authority-data": of("<ca>"),
        }}],
        "users": [{"name": "u", "user": {"token": "hook-token"}}],
        "contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}],
    });
    let file = folder.join(&format!("{name}.kubeconfig"));
    std::fs::write(&file, document.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

fn configuration(authorizers: Value) -> String {
    let kind = "AuthorizationConfiguration";
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": kind, "authorizers": authorizers}).to_string()
}

fn webhook(name: &str, kubeconfig: &str, on_failure: &str) -> Value {
    json!({"type": "Webhook", "name": name, "webhook": {
        "timeout": "1s", "subjectAccessReviewVersion": "v1", "failurePolicy": on_failure,
        "cacheAuthorizedRequests": false, "cacheUnauthorizedRequests": false,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
    }})
}

fn start(folder: &Folder, options: &[String]) -> Server {
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, TOKENS).unwrap();
    let mut all = vec![format!("--token-auth-file={}", tokens.display())];
    all.extend(options.iter().cloned());
    Server::start(&folder.join("data"), &all.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The error message of a server that refuses to start.
fn refused(folder: &Folder, options: &[&str]) -> String {
    match Server::try_start(&folder.join("refused"), options) {
        Ok(_) => panic!("it starts with {options:?}"),
        Err(refused) => refused.stderr,
    }
}

async fn as_user(admin: &HttpClient, user: &str, groups: &[&str], method: Method, path: &str, body: &Value) -> Answer {
    let mut headers = vec![JSON, ("impersonate-user", user)];
    headers.extend(groups.iter().map(|group| ("impersonate-group", *group)));
    admin.send(method, path, &headers, body.to_string()).await
}

fn kubectl(server: &Server, token: &str, arguments: &[&str]) -> (bool, String) {
    let authority = server.kubeconfig();
    let read: Value = yaml::read(&std::fs::read_to_string(authority).unwrap()).unwrap();
    let data = read["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
    let file = read["clusters"][0]["cluster"]["certificate-authority"].as_str().map(str::to_owned);
    let mut cluster = json!({"server": server.url()});
    match (data, file) {
        (Some(data), _) => cluster["certificate-authority-data"] = data.into(),
        (None, Some(file)) => {
            let beside = authority.parent().unwrap_or(Path::new("")).join(file);
            cluster["certificate-authority"] = beside.to_str().into();
        }
        (None, None) => cluster["insecure-skip-tls-verify"] = true.into(),
    }
    let document = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "h", "cluster": cluster}], "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "h", "user": "u"}}],
    });
    let kubeconfig = authority.with_file_name(format!("{token}.kubeconfig"));
    std::fs::write(&kubeconfig, document.to_string()).unwrap();
    let output =
        Command::new("kubectl").arg("--kubeconfig").arg(kubeconfig).args(arguments).output().expect("kubectl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

/// A webhook decides about requests, about further rights that they need, and about reviews. If it does anything but
/// answer, no request is allowed, and requests of other users are not delayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_decide_whatever_they_answer() {
    let (folder, hooks) = (Folder::new(), Hooks::start().await);
    let file = folder.join("authorization.yaml");
    let first = webhook("first", &kubeconfig(&folder, &hooks, "first"), "Deny");
    std::fs::write(&file, configuration(json!([first, {"type": "RBAC", "name": "rbac"}]))).unwrap();
    let server = start(&folder, &[format!("--authorization-config={}", file.display())]);
    let (admin, jane) = (HttpClient::admin(&server), HttpClient::anonymous(&server).with_token("j"));
    let says = |status: Value| hooks.behave("/first", json!({"default": status, "byUser": {}}));

    says(json!({"allowed": true, "reason": "because"}));
    jane.get(MAPS).await.expect(200);
    says(json!({"denied": true, "reason": "<b>no</b>"}));
    let status = jane.get(MAPS).await.refused(403, "Forbidden");
    let message = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
                   namespace \"default\": <b>no</b>";
    assert_eq!(status["message"], message);
    admin.get(MAPS).await.expect(200);
    // An apply that creates an object needs the right to create it, which is checked while the write is judged.
    says(json!({"allowed": true}));
    hooks.take_calls();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}).to_string();
    let path = format!("{MAPS}/m?fieldManager=test");
    jane.send(Method::PATCH, &path, &[APPLY], map).await.expect(201);
    let verbs: Vec<Value> =
        hooks.take_calls().iter().map(|call| call["body"]["spec"]["resourceAttributes"]["verb"].clone()).collect();
    assert_eq!(verbs, ["patch", "create"]);
    // Creating roles needs the right to escalate, which the whole chain may grant.
    let role = json!({"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    jane.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", &role).await.expect(201);

    for (behaviour, why) in [
        (json!({"raw": "rubbish", "contentType": "application/json"}), "the answer is not JSON"),
        (json!({"raw": "{\"kind\":\"TokenReview\",\"status\":{\"allowed\":true}}"}), "is not a SubjectAccessReview"),
        (json!({"raw": "{\"kind\":\"SubjectAccessReview\",\"status\":{\"allowed\":\"yes\"}}"}), "is not a boolean"),
        (json!({"http": 302, "raw": ""}), "the server responded with the status code 302"),
        (json!({"http": 400, "raw": "bad"}), "the server rejected our request for an unknown reason"),
        (json!({"delay": 3, "default": {"allowed": true}, "byUser": {}}), "context deadline exceeded"),
    ] {
        hooks.behave("/first", behaviour.clone());
        let answer = jane.get(MAPS).await;
        let text = answer.text();
        assert_eq!(answer.code, 500, "{behaviour}: {text}");
        assert!(text.starts_with("Internal Server Error: \"/api/v1/namespaces/default/configmaps\": "), "{text}");
        assert!(text.contains(why), "{behaviour}: {text}");
    }
    // Requests that wait for a webhook do not delay others.
    hooks.behave("/first", json!({"delay": 3, "default": {"allowed": true}, "byUser": {}}));
    let slow = async { futures_util::future::join_all((0..64).map(|_| jane.get(MAPS))).await };
    let quick = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        for _ in 0..10 {
            admin.get(MAPS).await.expect(200);
            admin.post(MAPS, &json!({"metadata": {"generateName": "m"}})).await.expect(201);
        }
    };
    tokio::pin!(slow);
    tokio::select! {
        _ = &mut slow => panic!("other requests take longer than the requests that wait"),
        () = quick => {}
    }
    assert!(slow.await.iter().all(|answer| answer.code == 500));

    // Reviews show the decision of the chain with its evaluation errors.
    hooks.behave("/first", json!({"http": 400, "raw": "bad"}));
    let review = json!({"spec": {"user": "joe", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await.expect(201).json();
    let error = "the server rejected our request for an unknown reason";
    assert_eq!(answer["status"], json!({"allowed": false, "denied": true, "evaluationError": error}));
    says(json!({"allowed": true}));
    let (done, text) = kubectl(&server, "j", &["auth", "can-i", "get", "pods"]);
    assert!(done && text.starts_with("yes"), "{text}");
    let (_, text) = kubectl(&server, "j", &["auth", "can-i", "--list"]);
    assert!(text.contains("webhook authorizer does not support user rule resolution"), "{text}");
    let metrics = admin.get("/metrics").await.expect(200).text();
    for name in [
        "authorization_attempts_total{result=\"allowed\"}",
        "authorization_attempts_total{result=\"error\"}",
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"first\",decision=\"denied\"}",
        "apiserver_authorization_webhook_evaluations_total{name=\"first\",result=\"error\"}",
        "apiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
    server.stop();
}

/// A changed configuration file takes effect, an invalid file does not. Decisions are cached for the time that the file
/// sets.
#[tokio::test]
async fn the_configuration_is_followed() {
    let (folder, hooks) = (Folder::new(), Hooks::start().await);
    let file = folder.join("authorization.yaml");
    let mut first = webhook("first", &kubeconfig(&folder, &hooks, "first"), "NoOpinion");
    first["webhook"]["cacheAuthorizedRequests"] = true.into();
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    std::fs::write(&file, configuration(json!([first, rbac]))).unwrap();
    let server = start(&folder, &[format!("--authorization-config={}", file.display())]);
    let (admin, jane) = (HttpClient::admin(&server), HttpClient::anonymous(&server).with_token("j"));
    hooks.behave("/first", json!({"default": {"allowed": true}, "byUser": {}}));
    hooks.take_calls();
    for _ in 0..3 {
        jane.get(MAPS).await.expect(200);
    }
    // The server's own components may call the webhook as well, so only calls about jane are counted.
    let calls = hooks.take_calls();
    let of_jane = calls.iter().filter(|call| call["body"]["spec"]["user"] == "jane").count();
    assert_eq!(of_jane, 1, "the answer is kept");
    let replace = |authorizers: Value| std::fs::write(&file, configuration(authorizers)).unwrap();
    let reloads = async |status: &str, number: u64| {
        eventually(PATIENCE, async || {
            let metrics = admin.get("/metrics").await.text();
            if has_reloaded(&metrics, "authorization", status, number) { Ok(()) } else { Err(metrics) }
        })
        .await;
    };
    // Authorization modes that need an index or a file of their own can be neither added nor removed while the server
    // runs.
    replace(json!([{"type": "RBAC", "name": "rbac"}, {"type": "Node", "name": "node"}]));
    reloads("failure", 1).await;
    jane.get(MAPS).await.expect(200);
    replace(json!([{"type": "RBAC", "name": "rbac"}]));
    reloads("success", 1).await;
    jane.get(MAPS).await.refused(403, "Forbidden");
    let mut closed = webhook("first", &kubeconfig(&folder, &hooks, "first"), "Deny");
    closed["webhook"]["matchConditionSubjectAccessReviewVersion"] = "v1".into();
    closed["webhook"]["matchConditions"] = json!([{"expression": "request.user == 'alice'"}]);
    replace(json!([closed, {"type": "RBAC", "name": "rbac"}]));
    reloads("success", 2).await;
    jane.get(MAPS).await.refused(403, "Forbidden");
    HttpClient::anonymous(&server).with_token("a").get(MAPS).await.expect(200);
    server.stop();
}

/// A server that refuses to start reports all faults of options and files.
#[test]
fn what_contradicts_itself_does_not_start() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let policies = write("policies", "{\"user\":\"jane\"}\n{\"user\":1}\n");
    let empty = write("authorization.yaml", &configuration(json!([{"type": "RBAC", "name": "x"}, {"type": "Y"}])));
    for (options, expected) in [
        (
            vec!["--authorization-mode=ABAC,Webhook".into()],
            "[authorization-mode ABAC's authorization policy file not passed, authorization-mode Webhook's authorization config file not passed]",
        ),
        (
            vec![format!("--authorization-policy-file={policies}")],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            vec!["--authorization-webhook-config-file=x".into()],
            "cannot specify --authorization-webhook-config-file without mode Webhook",
        ),
        (
            vec!["--authorization-mode=ABAC".into(), format!("--authorization-policy-file={policies}")],
            "line 2: {\"user\":1}: the field \"user\" must be a string",
        ),
        (
            vec![format!("--authorization-config={empty}"), "--authorization-mode=RBAC".into()],
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
        ),
        (
            vec![format!("--authorization-config={empty}")],
            "authorizers[0].name: Invalid value: \"x\": must be \"rbac\" when type=RBAC, authorizers[1].type: Unsupported value: \"Y\"",
        ),
        (vec!["--authorization-mode=RBAC,RBAC".into()], "has mode specified more than once"),
        // The modes of repeated options are added up, as if one option listed them.
        (
            vec!["--authorization-mode=ABAC".into(), "--authorization-mode=RBAC".into()],
            "authorization-mode ABAC's authorization policy file not passed",
        ),
        (vec!["--authorization-mode=RBAC".into(), "--authorization-mode=RBAC".into()], "more than once"),
        (vec!["--authorization-mode=".into()], "at least one authorization-mode must be passed"),
        // A contradiction does not hide the faults of files.
        (
            vec!["--authorization-mode=ABAC".into(), "--authorization-coreconfig=/none".into()],
            "--authorization-kubeconfig: webhook \"delegated\": /none: No such file",
        ),
        (vec!["--authorization-always-allow-paths=/a*b".into()], "only trailing * allowed in \"/a*b\""),
        (vec!["--authorization-webhook-version=v2".into()], "unsupported webhook authorizer version \"v2\""),
        (vec!["--authorization-kubeconfig=/none".into()], "/none: No such file"),
    ] {
        let told = refused(&folder, &options.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(told.contains(expected), "{options:?}: {told}");
    }
}

/// A policy file decides for users of all clients, with ABAC's messages.
#[tokio::test]
async fn policies_of_a_file_decide() {
    let folder = Folder::new();
    let file = folder.join("policies");
    let line =
        |spec: Value| json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec});
    let lines = [
        line(json!({"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"})),
        line(json!({"user": "alice", "nonResourcePath": "*"})),
        line(json!({"user": "bob", "namespace": "default", "resource": "configmaps", "readonly": true})),
        line(json!({"user": "*", "nonResourcePath": "/api*", "readonly": true})),
    ];
    std::fs::write(&file, lines.map(|line| line.to_string()).join("\n")).unwrap();
    let options = ["--authorization-mode=ABAC".to_owned(), format!("--authorization-policy-file={}", file.display())];
    let server = start(&folder, &options);
    let (done, text) = kubectl(&server, "a", &["create", "configmap", "m", "--from-literal=a=b"]);
    assert!(done, "{text}");
    let (done, text) = kubectl(&server, "b", &["get", "configmap", "m", "-o", "name"]);
    assert!(done && text.trim() == "configmap/m", "{text}");
    let (done, text) = kubectl(&server, "b", &["delete", "configmap", "m"]);
    let words = "User \"bob\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"default\": No policy matched.";
    assert!(!done && text.contains(words), "{text}");
    HttpClient::anonymous(&server).get("/api").await.refused(403, "Forbidden");
    server.stop();
}

/// A node can read what its pods need, from the moment they are bound to it and after a restart, and can write its own
/// objects.
#[tokio::test]
async fn nodes_see_what_their_pods_need() {
    let folder = Folder::new();
    let options =
        ["--authorization-mode=Node,RBAC".to_owned(), "--enable-admission-plugins=NodeRestriction".to_owned()];
    let server = start(&folder, &options);
    let admin = HttpClient::admin(&server);
    let core = "/api/v1/namespaces/default";
    for name in ["one", "two"] {
        admin.post("/api/v1/nodes", &json!({"metadata": {"name": name}})).await.expect(201);
        admin.post(&format!("{core}/secrets"), &json!({"metadata": {"name": name}})).await.expect(201);
    }
    let account = admin.post(&format!("{core}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await;
    assert!([201, 409].contains(&account.code), "{}", account.text());
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "s", "secret": {"secretName": "one"}}],
    }});
    admin.post(&format!("{core}/pods"), &pod).await.expect(201);
    let get = async |admin: &HttpClient, node: &str, path: &str| {
        as_user(admin, &format!("system:node:{node}"), &["system:nodes"], Method::GET, path, &Value::Null).await.code
    };
    let secret = |name: &str| format!("{core}/secrets/{name}");
    assert_eq!(get(&admin, "one", &secret("one")).await, 403, "the pod is on no node yet");
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "one"}});
    admin.post(&format!("{core}/pods/p/binding"), &binding).await.expect(201);
    let seen = async |admin: &HttpClient| {
        [
            get(admin, "one", &secret("one")).await,
            get(admin, "one", &secret("two")).await,
            get(admin, "two", &secret("one")).await,
            get(admin, "one", &format!("{core}/pods/p")).await,
            get(admin, "two", &format!("{core}/pods/p")).await,
            get(admin, "one", "/api/v1/nodes/two").await,
            get(admin, "one", "/api/v1/pods?fieldSelector=spec.nodeName%3Done").await,
            get(admin, "one", "/api/v1/pods").await,
        ]
    };
    let expected = [200, 403, 403, 200, 403, 403, 200, 403];
    assert_eq!(seen(&admin).await, expected);
    let patch = |node: &str, change: Value| {
        let admin = admin.clone();
        let headers = [
            ("content-type", "application/merge-patch+json"),
            ("impersonate-user", "system:node:one"),
            ("impersonate-group", "system:nodes"),
        ];
        let path = format!("/api/v1/nodes/{node}");
        async move { admin.send(Method::PATCH, &path, &headers, change.to_string()).await }
    };
    patch("one", json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    let status = patch("two", json!({"metadata": {"labels": {"a": "b"}}})).await.refused(403, "Forbidden");
    assert_eq!(status["message"], "nodes \"two\" is forbidden: node \"one\" is not allowed to modify node \"two\"");
    let status = patch("one", json!({"spec": {"taints": null}})).await;
    assert_eq!(status.code, 403, "{}", status.text());
    // A name that only starts with the node's name is not the name of the node.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    for path in ["/api/v1/nodes", leases, "/apis/storage.k8s.io/v1/csinodes"] {
        let new = json!({"metadata": {"generateName": "one"}, "spec": {"drivers": []}});
        let new = if path.ends_with("csinodes") { new } else { json!({"metadata": new["metadata"]}) };
        let made = as_user(&admin, "system:node:one", &["system:nodes"], Method::POST, path, &new).await;
        assert_eq!(made.code, 403, "{path}: {}", made.text());
    }
    server.stop();
    let server = start(&folder, &options);
    let admin = HttpClient::admin(&server);
    assert_eq!(seen(&admin).await, expected, "after a restart");
    admin.send(Method::DELETE, &format!("{core}/pods/p?gracePeriodSeconds=0"), &[], "").await.expect(200);
    assert_eq!(get(&admin, "one", &secret("one")).await, 403, "the pod has gone");
    server.stop();
}

/// Delegated authorization: another API server decides, and some paths are always allowed.
#[tokio::test]
async fn another_server_decides() {
    let (folder, hooks) = (Folder::new(), Hooks::start().await);
    let kubeconfig = kubeconfig(&folder, &hooks, "other");
    let reviews = "/other/apis/authorization.k8s.io/v1/subjectaccessreviews";
    hooks.behave(reviews, json!({"default": {"allowed": false}, "byUser": {"jane": {"allowed": true}}}));
    let server = start(&folder, &[format!("--authorization-kubeconfig={kubeconfig}")]);
    let with = |token: &str| HttpClient::anonymous(&server).with_token(token);
    with("j").get(MAPS).await.expect(200);
    with("b").get(MAPS).await.refused(403, "Forbidden");
    with("b").get("/readyz").await.expect(200);
    with("b").get("/version").await.refused(403, "Forbidden");
    assert!(hooks.take_calls().iter().all(|call| call["path"] == reviews));
    server.stop();
}
