//! Admission from outside: races for quotas, policies that change objects, an image webhook, and metrics.

use holdfast_tests::hooks::Hooks;
use holdfast_tests::server::{holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;

const CLIENTS: usize = 24;
const WRITES_OF_ONE: usize = 4;
/// The number of objects that the quota still allows. The clients send more requests than this number.
const ROOM: usize = 40;

async fn put(wire: &HttpClient, path: &str, body: &Value) {
    wire.post(path, body).await.expect(201);
}

/// Many clients at once use the rest of a quota, and no unit is used twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_takes_the_last_of_a_quota_twice() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=-*"]);
    let wire = Arc::new(HttpClient::admin(&server));
    put(&wire, "/api/v1/namespaces", &json!({"metadata": {"name": "q"}})).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": ROOM.to_string()}}});
    put(&wire, "/api/v1/namespaces/q/resourcequotas", &quota).await;
    let status = json!({"status": {"hard": {"count/configmaps": ROOM.to_string()}, "used": {"count/configmaps": "0"}}});
    let headers = [("content-type", "application/merge-patch+json")];
    let path = "/api/v1/namespaces/q/resourcequotas/q/status";
    wire.send(http::Method::PATCH, path, &headers, status.to_string()).await.expect(200);

    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let wire = wire.clone();
        clients.spawn(async move {
            let mut made = 0;
            for write in 0..WRITES_OF_ONE {
                let name = format!("c{client}-{write}");
                let answer = wire.post("/api/v1/namespaces/q/configmaps", &json!({"metadata": {"name": name}})).await;
                match answer.code {
                    201 => made += 1,
                    code => {
                        assert_eq!(code, 403, "{}", answer.text());
                        assert!(answer.text().contains("exceeded quota: q"), "{}", answer.text());
                    }
                }
            }
            made
        });
    }
    let made: usize = clients.join_all().await.into_iter().sum();
    assert_eq!(made, ROOM);
    let stored = wire.get("/api/v1/namespaces/q/configmaps").await.json();
    let items = stored["items"].as_array().expect("a list");
    assert_eq!(items.iter().filter(|item| item["metadata"]["name"] != "kube-root-ca.crt").count(), ROOM);
    let quota = wire.get("/api/v1/namespaces/q/resourcequotas/q").await.json();
    assert_eq!(quota["status"]["used"]["count/configmaps"], ROOM.to_string());
    server.stop();
}

fn policy(name: &str, mutations: &Value) -> Value {
    let rules =
        json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
    json!({"metadata": {"name": name}, "spec": {"reinvocationPolicy": "Never", "mutations": mutations,
        "matchConstraints": {"resourceRules": rules}, "variables": [{"name": "n", "expression": "size(object.data)"}]}})
}

/// A field set by a policy has the policy's name as manager, and the policy's work is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_change_objects_and_are_blamed_for_it() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=-*"]);
    let wire = HttpClient::admin(&server);
    let mutations = json!([
        {"patchType": "ApplyConfiguration", "applyConfiguration":
            {"expression": "Object{metadata: Object.metadata{?labels: optional.of({'count': string(variables.n)})}}"}},
        {"patchType": "JSONPatch", "jsonPatch":
            {"expression": "[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('from.policy'), value: object.metadata.labels.count}]"}},
    ]);
    put(&wire, &format!("{GROUP}/mutatingadmissionpolicies"), &policy("m", &mutations)).await;
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "m"}});
    put(&wire, &format!("{GROUP}/mutatingadmissionpolicybindings"), &binding).await;
    let configmaps = "/api/v1/namespaces/default/configmaps";
    let made = wire.post(configmaps, &json!({"metadata": {"name": "c"}, "data": {"k": "v"}})).await.expect(201).json();
    assert_eq!(made["metadata"]["labels"], json!({"count": "1"}));
    assert_eq!(made["data"], json!({"k": "v", "from.policy": "1"}));
    // Without `data` the patch's path has no parent, so the policy makes the write fail.
    let refused = wire.post(configmaps, &json!({"metadata": {"name": "d"}})).await.refused(403, "Invalid");
    let told = refused["message"].as_str().unwrap_or_default().to_owned();
    assert!(told.starts_with("policy 'm' with binding 'b' denied request: "), "{told}");

    let metrics = wire.get("/metrics").await.text();
    for line in [
        "apiserver_mutating_admission_policy_check_total{policy=\"m\",policy_binding=\"b\",error_type=\"no_error\"} ",
        "apiserver_mutating_admission_policy_check_duration_seconds_count{policy=\"m\",policy_binding=\"b\",",
        "apiserver_admission_step_admission_duration_seconds_count{type=\"admit\",operation=\"CREATE\",rejected=\"false\"} ",
        "apiserver_admission_step_admission_duration_seconds_count{type=\"admit\",operation=\"CREATE\",rejected=\"true\"} ",
        "apiserver_admission_controller_admission_duration_seconds_count{name=\"MutatingAdmissionPolicy\",type=\"admit\",operation=\"CREATE\",rejected=\"true\"} 1\n",
    ] {
        assert!(metrics.contains(line), "no {line} in the metrics");
    }
    server.stop();
    let data = folder.join("data");
    let arguments =
        ["blame", "ConfigMap", "c", "-n", "default", "-o", "json", "--data-dir", data.to_str().expect("UTF-8")];
    let blame: Value = serde_json::from_str(&succeeds(holdfast(arguments))).expect("JSON");
    let line = |path: &str| {
        let fields = blame["fields"].as_array().expect("fields");
        fields.iter().find(|field| field["path"] == path).unwrap_or_else(|| panic!("no {path} in {blame}")).to_string()
    };
    assert!(line("metadata.labels.count").contains("policy m with binding b"), "{}", line("metadata.labels.count"));
    assert!(!line("data.k").contains("policy m"), "{}", line("data.k"));
}

/// A policy also applies to a user who impersonates the server's own user. The parameters of a policy, which other
/// users may create, neither delay a write for long nor let it pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_stand_in_everybodys_way_and_in_nobodys_for_long() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=-*"]);
    let wire = HttpClient::admin(&server);
    let make = async |name: &str, resource: &str, spec: Value| {
        let rules =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}]);
        let mut policy = json!({"metadata": {"name": name}, "spec": spec});
        policy["spec"]["matchConstraints"] = json!({"resourceRules": rules});
        put(&wire, &format!("{GROUP}/validatingadmissionpolicies"), &policy).await;
        let mut binding = json!({"metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}});
        if !policy["spec"]["paramKind"].is_null() {
            binding["spec"]["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Allow"});
        }
        put(&wire, &format!("{GROUP}/validatingadmissionpolicybindings"), &binding).await;
    };
    make("never", "serviceaccounts", json!({"validations": [{"expression": "false"}]})).await;
    let everything = json!({"metadata": {"name": "all"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:apiserver"}]});
    put(&wire, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &everything).await;
    let headers = [("content-type", "application/json"), ("impersonate-user", "system:apiserver")];
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    wire.send(http::Method::POST, accounts, &headers, body).await.refused(422, "Invalid");

    // A call of the authorizer has a high cost in CEL's estimate, and takes almost no time.
    let asks = "authorizer.path('/x').check('get').allowed() && authorizer.path('/y').check('get').allowed()";
    let validations: Vec<Value> = (0..20).map(|_| json!({"expression": asks})).collect();
    let spec = json!({"failurePolicy": "Ignore", "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": validations});
    make("asks", "secrets", spec).await;
    for count in 0..12 {
        if count == 3 {
            put(&wire, SECRETS, &json!({"metadata": {"name": "few"}})).await;
        }
        put(&wire, MAPS, &json!({"metadata": {"name": format!("m{count}")}})).await;
    }
    let refused = wire.post(SECRETS, &json!({"metadata": {"name": "many"}})).await.refused(403, "Forbidden");
    assert!(refused["message"].to_string().contains("cost too much for one request"), "{refused}");
    server.stop();
}

/// A quantity beyond all numbers must not count as zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amounts_beyond_all_numbers_are_over_every_quota() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &["--controllers=-*"]);
    let wire = HttpClient::admin(&server);
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let hard = json!({"requests.example.com/gpu": "1"});
    put(&wire, quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    let status = json!({"status": {"hard": hard, "used": {"requests.example.com/gpu": "0"}}});
    let headers = [("content-type", "application/merge-patch+json")];
    wire.send(http::Method::PATCH, &format!("{quotas}/q/status"), &headers, status.to_string()).await.expect(200);
    put(&wire, "/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}})).await;
    for (amount, code) in [("1e40", 403), ("1e999999999", 403), ("2", 403), ("1", 201)] {
        let limits = json!({"limits": {"example.com/gpu": amount}});
        let containers = json!([{"name": "c", "image": "i", "resources": limits}]);
        let pod = json!({"metadata": {"generateName": "p"}, "spec": {"containers": containers}});
        let answer = wire.post("/api/v1/namespaces/default/pods", &pod).await;
        assert_eq!(answer.code, code, "{amount}: {}", answer.text());
    }
    server.stop();
}

/// The server calls the image webhook once and caches the answer, and handles the webhook's failures as configured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_judged_elsewhere() {
    let hooks = Hooks::start().await;
    let folder = Folder::new();
    let address = hooks.names.iter().find(|(name, _)| *name == "<hook>").expect("a hook").1.clone();
    let authority = hooks.names.iter().find(|(name, _)| *name == "<ca>").expect("its authority").1.clone();
    let kubeconfig = folder.join("images.kubeconfig");
    let context = json!({"name": "c", "context": {"cluster": "c", "user": "u"}});
    let cluster = json!({"server": format!("https://{address}/images"), "certificate-authority-data": authority});
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context],
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {}}]});
    std::fs::write(&kubeconfig, config.to_string()).expect("a kubeconfig");
    let own = json!({"imagePolicy": {"kubeConfigFile": kubeconfig, "retryBackoff": -1, "defaultAllow": true}});
    let admission = folder.join("admission.yaml");
    let plugins = json!([{"name": "ImagePolicyWebhook", "configuration": own}]);
    let document =
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins});
    std::fs::write(&admission, document.to_string()).expect("a configuration");
    let file = format!("--admission-control-config-file={}", admission.display());
    let options = ["--controllers=-*", "--enable-admission-plugins=ImagePolicyWebhook", &file];
    let server =
        Server::start(&folder.join("data"), &[&options[..], &["--disable-admission-plugins=ServiceAccount"]].concat());
    let wire = HttpClient::admin(&server);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, image: &str| {
        let annotations = json!({"a.image-policy.k8s.io/b": "c", "other": "d"});
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [{"name": "c", "image": image}]}})
    };

    hooks.behave("/images", json!({"review": {"allowed": true}}));
    for name in ["a", "b"] {
        wire.post(pods, &pod(name, "good")).await.expect(201);
    }
    let calls = hooks.take_calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let wanted = json!({"containers": [{"image": "good"}], "annotations": {"a.image-policy.k8s.io/b": "c"}, "namespace": "default"});
    assert_eq!(calls[0]["body"]["spec"], wanted);
    assert_eq!(calls[0]["body"]["apiVersion"], "imagepolicy.k8s.io/v1alpha1");

    hooks.behave("/images", json!({"review": {"allowed": false, "reason": "too old"}}));
    let refused = wire.post(pods, &pod("c", "bad")).await.refused(403, "Forbidden");
    let why = "pods \"c\" is forbidden: image policy webhook backend denied one or more images: too old";
    assert_eq!(refused["message"], why);

    hooks.behave("/images", json!({"http": 500, "raw": "{}"}));
    let made = wire.post(pods, &pod("d", "other")).await.expect(201).json();
    assert_eq!(made["metadata"]["annotations"]["alpha.image-policy.k8s.io/failed-open"], "true");
    server.stop();
}

/// Calls that leave the cluster go through the configured egress proxy: webhooks by URL, and token webhooks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_leads_to_webhooks() {
    leads_to_webhooks("HTTPConnect", holdfast_tests::proxy::serve).await;
}

/// Like [`a_proxy_leads_to_webhooks`], but the connections go through a konnectivity server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_leads_to_webhooks() {
    leads_to_webhooks("GRPC", holdfast_tests::konnectivity::serve).await;
}

async fn leads_to_webhooks(protocol: &str, serve: fn(&std::path::Path) -> Arc<std::sync::Mutex<Vec<String>>>) {
    let hooks = Hooks::start().await;
    let folder = Folder::new();
    let name = |wanted: &str| hooks.names.iter().find(|(name, _)| *name == wanted).expect("a name").1.clone();
    let (socket, hook) = (folder.join("proxy.sock"), name("<hook>"));
    let asked = serve(&socket);
    let transport = json!({"uds": {"udsName": socket}});
    let selection = json!({"name": "controlplane", "connection": {"proxyProtocol": protocol, "transport": transport}});
    let egress = json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
        "egressSelections": [selection]});
    let file = folder.join("egress.yaml");
    std::fs::write(&file, egress.to_string()).expect("a configuration");
    let cluster = json!({"server": format!("https://{hook}/tokens"), "certificate-authority-data": name("<ca>")});
    let tokens = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": cluster}]});
    let kubeconfig = folder.join("tokens.kubeconfig");
    std::fs::write(&kubeconfig, tokens.to_string()).expect("a kubeconfig");
    let options = [
        "--controllers=-*".to_owned(),
        format!("--egress-selector-config-file={}", file.display()),
        format!("--authentication-token-webhook-config-file={}", kubeconfig.display()),
        "--authentication-token-webhook-version=v1".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(&folder.join("data"), &options);
    let wire = HttpClient::admin(&server);
    hooks.behave("/tokens", json!({"review": {"authenticated": true, "user": {"username": "jane"}}}));
    let jane = HttpClient::anonymous(&server).with_token("hers");
    let refused = jane.get("/api/v1/secrets").await.refused(403, "Forbidden");
    assert!(refused["message"].as_str().expect("a text").contains("User \"jane\""), "{refused}");
    hooks.behave("/judge", json!({}));
    let webhook = json!({"name": "h.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://{hook}/judge"), "caBundle": name("<ca>")},
        "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]});
    let configuration = json!({"metadata": {"name": "judges"}, "webhooks": [webhook]});
    put(&wire, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", &configuration).await;
    put(&wire, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}})).await;
    let asked = asked.lock().expect("a list").clone();
    assert!(asked.len() >= 2 && asked.iter().all(|target| *target == hook), "{asked:?}");
    server.stop();
}

/// Webhooks get the credentials that the operator's file has for their address; mutating and validating admission have
/// a file each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_are_shown_who_speaks() {
    let hooks = Hooks::start().await;
    let folder = Folder::new();
    let name = |wanted: &str| hooks.names.iter().find(|(name, _)| *name == wanted).expect("a name").1.clone();
    let users = |file: &str, users: Value| {
        let file = folder.join(file);
        std::fs::write(&file, json!({"kind": "Config", "users": users}).to_string()).expect("a kubeconfig");
        file
    };
    let judges = users(
        "judges.kubeconfig",
        json!([
            {"name": name("<hook>"), "user": {"token": "for-the-hook"}},
            {"name": "*", "user": {"token": "for-others"}},
        ]),
    );
    let changers = users("changers.kubeconfig", json!([{"name": "*", "user": {"username": "u", "password": "p"}}]));
    let admission = folder.join("admission.yaml");
    let group = "apiserver.config.k8s.io";
    let plugins = json!([
        {"name": "ValidatingAdmissionWebhook", "configuration":
            {"apiVersion": format!("{group}/v1"), "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": judges}},
        {"name": "MutatingAdmissionWebhook", "configuration":
            {"apiVersion": format!("{group}/v1alpha1"), "kind": "WebhookAdmission", "kubeConfigFile": changers}},
    ]);
    let document = json!({"apiVersion": format!("{group}/v1"), "kind": "AdmissionConfiguration", "plugins": plugins});
    std::fs::write(&admission, document.to_string()).expect("a configuration");
    let file = format!("--admission-control-config-file={}", admission.display());
    let server = Server::start(&folder.join("data"), &["--controllers=-*", &file]);
    let wire = HttpClient::admin(&server);
    for (resource, kind) in [("validating", "Validating"), ("mutating", "Mutating")] {
        hooks.behave(&format!("/{resource}"), json!({}));
        let url = format!("https://{}/{resource}", name("<hook>"));
        let configuration = json!({"kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": resource}, "webhooks": [{
            "name": "h.example.com", "clientConfig": {"url": url, "caBundle": name("<ca>")},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None"}]});
        put(&wire, &format!("/apis/admissionregistration.k8s.io/v1/{resource}webhookconfigurations"), &configuration)
            .await;
    }
    put(&wire, "/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "c"}})).await;
    let shown = |path: &str, calls: &[Value]| {
        let call = calls.iter().find(|call| call["path"] == path).expect("a call");
        call["authorization"].as_str().map(str::to_owned)
    };
    let calls = hooks.take_calls();
    assert_eq!(shown("/validating", &calls).as_deref(), Some("Bearer for-the-hook"));
    assert_eq!(shown("/mutating", &calls).as_deref(), Some("Basic dTpw"));
    server.stop();
}
