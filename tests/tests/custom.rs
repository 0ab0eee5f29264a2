//! Custom resources through the real binary: many definitions, conversion webhooks, restarts, old and new clients.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::object::yaml;
use holdfast_tests::authority::Authority;
use holdfast_tests::webhook::Webhook;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clients, eventually};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PATIENCE: Duration = Duration::from_secs(20);
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");
const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

fn definition(group: &str, kind: &str, versions: Value) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": versions},
    })
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    json!({"name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}})
}

/// `v1` has a `hostPort`, `v2` a `host` and a `port`; objects are stored as `v2`.
fn routes(webhook: &Webhook, bundle: &str) -> Value {
    let text = json!({"type": "string"});
    let mut routes = definition(
        "routes.example.com",
        "Route",
        json!([
            version("v1", false, json!({"hostPort": text, "weight": {"type": "integer", "default": 1}})),
            version("v2", true, json!({"host": text, "port": text, "weight": {"type": "integer", "default": 1}})),
        ]),
    );
    routes["spec"]["conversion"] = json!({
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"],
            "clientConfig": {"url": webhook.url(), "caBundle": STANDARD.encode(bundle)}},
    });
    routes
}

fn convert(object: &Value, to: &str) -> Result<Value, String> {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    let spec = object["spec"].as_object_mut().ok_or("no spec")?;
    if spec.get("host").and_then(Value::as_str) == Some("broken.example.com") {
        return Err("this one cannot be converted".into());
    }
    if to.ends_with("/v2") {
        if let Some(joined) = spec.remove("hostPort") {
            let (host, port) = joined.as_str().and_then(|joined| joined.split_once(':')).ok_or("no port")?;
            spec.insert("host".into(), host.into());
            spec.insert("port".into(), port.into());
        }
    } else if let (Some(host), Some(port)) = (spec.remove("host"), spec.remove("port")) {
        let joined = format!("{}:{}", host.as_str().unwrap_or_default(), port.as_str().unwrap_or_default());
        spec.insert("hostPort".into(), joined.into());
    }
    Ok(object)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_converts_between_versions() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let authority = Authority::new("webhooks");
    let webhook = Webhook::start(&authority, convert).await;
    admin.post(DEFINITIONS, &routes(&webhook, authority.pem())).await.expect(201);
    let v1 = "/apis/routes.example.com/v1/namespaces/default/routes";
    let v2 = "/apis/routes.example.com/v2/namespaces/default/routes";
    let route = |name: &str, joined: &str| json!({"metadata": {"name": name, "labels": {"set": "x"}}, "spec": {"hostPort": joined}});

    // An object that is written as `v1` is stored as `v2`, and can be read in both versions.
    let made = admin.post(v1, &route("a", "a.example.com:80")).await.expect(201).json();
    assert_eq!(made["spec"], json!({"hostPort": "a.example.com:80", "weight": 1}));
    let stored = admin.get(&format!("{v2}/a")).await.expect(200).json();
    assert_eq!(stored["spec"], json!({"host": "a.example.com", "port": "80", "weight": 1}));
    assert_eq!(stored["metadata"], made["metadata"]);
    let read = admin.get(&format!("{v1}/a")).await.expect(200).json();
    assert_eq!(read, made);
    // A get asks the webhook again; a list may use an earlier answer.
    let calls = webhook.calls();
    admin.get(&format!("{v1}/a")).await.expect(200);
    assert_eq!(webhook.calls(), calls + 1);
    admin.get(v1).await.expect(200);
    assert_eq!(webhook.calls(), calls + 1);

    let patch = r#"{"spec":{"hostPort":"b.example.com:81"}}"#;
    let patched = admin.send(Method::PATCH, &format!("{v1}/a"), &[MERGE], patch).await.expect(200).json();
    assert_eq!(patched["spec"]["hostPort"], "b.example.com:81");
    assert_eq!(patched["metadata"]["generation"], 2);
    let applied =
        r#"{"apiVersion":"routes.example.com/v1","kind":"Route","metadata":{"name":"a"},"spec":{"weight":5}}"#;
    let path = format!("{v1}/a?fieldManager=me&force=true");
    let applied = admin.send(Method::PATCH, &path, &[APPLY], applied).await.expect(200).json();
    assert_eq!(applied["spec"], json!({"hostPort": "b.example.com:81", "weight": 5}));
    let applied =
        r#"{"apiVersion":"routes.example.com/v2","kind":"Route","metadata":{"name":"a"},"spec":{"port":"82"}}"#;
    let path = format!("{v2}/a?fieldManager=me&force=true");
    let applied = admin.send(Method::PATCH, &path, &[APPLY], applied).await.expect(200).json();
    assert_eq!(applied["spec"], json!({"host": "b.example.com", "port": "82", "weight": 1}), "weight was given up");
    let dry = admin.post(&format!("{v1}?dryRun=All"), &route("dry", "d.example.com:1")).await.expect(201).json();
    assert_eq!(dry["spec"]["hostPort"], "d.example.com:1");

    // The objects of a list are converted many at a time, and the objects of a watch one by one as events arrive.
    let mut watch = admin.open(Method::GET, &format!("{v1}?watch=true"), &[], Default::default()).await.unwrap();
    for index in 0..30 {
        admin
            .post(
                v2,
                &json!({"metadata": {"name": format!("n{index:02}")}, "spec": {"host": "n.example.com", "port": "1"}}),
            )
            .await
            .expect(201);
    }
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 31 {
        let frame = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("in time");
        text.extend_from_slice(&frame.expect("an event").unwrap().into_data().unwrap());
    }
    for line in String::from_utf8(text).unwrap().lines().skip(1) {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["object"]["apiVersion"], "routes.example.com/v1", "{line}");
        assert_eq!(event["object"]["spec"]["hostPort"], "n.example.com:1");
    }
    drop(watch);
    server.stop();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let calls = webhook.calls();
    let list = admin.get(v1).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 31);
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["spec"]["hostPort"].is_string()));
    assert_eq!(webhook.calls(), calls + 1);

    // An object that the webhook cannot convert cannot be read, and other objects are not affected.
    let broken = json!({"metadata": {"name": "broken"}, "spec": {"host": "broken.example.com", "port": "1"}});
    admin.post(v2, &broken).await.expect(201);
    let failed = admin.get(&format!("{v1}/broken")).await.expect(500).json();
    let expected = "conversion webhook for routes.example.com/v2, Kind=Route failed: this one cannot be converted";
    assert_eq!(failed["message"], expected);
    admin.get(v1).await.expect(500);
    admin.get(&format!("{v2}/broken")).await.expect(200);
    admin.post(v1, &route("bad", "no-port")).await.expect(500);
    admin.send(Method::DELETE, &format!("{v2}/broken"), &[], "").await.expect(200);
    admin.get(v1).await.expect(200);

    // A webhook whose certificate the definition does not trust is reported. An unreachable webhook is reported, too.
    let stranger = Authority::new("others");
    let bundle = json!({"spec": {"conversion": routes(&webhook, stranger.pem())["spec"]["conversion"]}});
    let definition = format!("{DEFINITIONS}/routes.routes.example.com");
    admin.send(Method::PATCH, &definition, &[MERGE], bundle.to_string()).await.expect(200);
    let failed = admin.get(&format!("{v1}/a")).await.expect(500).json();
    assert!(failed["message"].as_str().unwrap().contains("x509: certificate signed by unknown authority"), "{failed}");
    let nowhere =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://127.0.0.1:1/convert"}}}}});
    admin.send(Method::PATCH, &definition, &[MERGE], nowhere.to_string()).await.expect(200);
    let failed = admin.get(&format!("{v1}/a")).await.expect(500).json();
    assert!(failed["message"].as_str().unwrap().contains("connect: connection refused"), "{failed}");

    // A webhook behind a Service without an address cannot be reached.
    let service = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"url": null,
        "service": {"namespace": "default", "name": "none", "path": "/convert"}}}}}});
    admin.send(Method::PATCH, &definition, &[MERGE], service.to_string()).await.expect(200);
    let failed = admin.get(&format!("{v1}/a")).await.expect(500).json();
    assert!(failed["message"].as_str().unwrap().contains("https://none.default.svc:443/convert"), "{failed}");
    server.stop();
}

/// A deletion starts from the stored object, regardless of cached conversions; an object deleted unchanged is not
/// converted back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_ask_for_what_is_stored() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let authority = Authority::new("webhooks");
    let fails_to = Arc::new(Mutex::new(""));
    let failing = fails_to.clone();
    let webhook = Webhook::start(&authority, move |object, to| {
        let fails_to = *failing.lock().unwrap();
        if !fails_to.is_empty() && to.ends_with(fails_to) { Err("it is down".into()) } else { convert(object, to) }
    })
    .await;
    admin.post(DEFINITIONS, &routes(&webhook, authority.pem())).await.expect(201);
    let v1 = "/apis/routes.example.com/v1/namespaces/default/routes";
    let v2 = "/apis/routes.example.com/v2/namespaces/default/routes";
    for (name, finalizers) in [("plain", json!([])), ("held", json!(["example.com/hold"]))] {
        let metadata = json!({"name": name, "finalizers": finalizers});
        let route = json!({"metadata": metadata, "spec": {"host": "a.example.com", "port": "80"}});
        admin.post(v2, &route).await.expect(201);
    }
    // This list makes the server cache the converted objects.
    admin.get(v1).await.expect(200);
    let told =
        |version: &str| format!("conversion webhook for routes.example.com/{version}, Kind=Route failed: it is down");

    *fails_to.lock().unwrap() = "/v1";
    for path in ["/plain", "/held", "/plain?dryRun=All", ""] {
        let failed = admin.send(Method::DELETE, &format!("{v1}{path}"), &[], "").await.expect(500).json();
        assert_eq!(failed["message"], told("v2"), "{path}");
    }
    *fails_to.lock().unwrap() = "/v2";
    let patch = r#"{"spec":{"weight":2}}"#;
    let failed = admin.send(Method::PATCH, &format!("{v1}/plain"), &[MERGE], patch).await.expect(500).json();
    assert_eq!(failed["message"], told("v1"), "a patch changes what was made of it");
    let failed = admin.send(Method::DELETE, &format!("{v1}/held"), &[], "").await.expect(500).json();
    assert_eq!(failed["message"], told("v1"), "it is written once more");
    admin.send(Method::DELETE, &format!("{v1}/plain"), &[], "").await.expect(200);
    admin.get(&format!("{v2}/plain")).await.expect(404);
    server.stop();
}

#[tokio::test]
async fn a_thousand_definitions_are_served_and_come_back() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let schema = json!({"size": {"type": "integer", "default": 3}});
    for number in 0..1000 {
        let group = format!("g{number}.example.com");
        admin
            .post(DEFINITIONS, &definition(&group, "Thing", json!([version("v1", true, schema.clone())])))
            .await
            .expect(201);
    }
    let things = |number: usize| format!("/apis/g{number}.example.com/v1/namespaces/default/things");
    for number in [0, 500, 999] {
        let made =
            admin.post(&things(number), &json!({"metadata": {"name": "one"}, "spec": {}})).await.expect(201).json();
        assert_eq!(made["spec"]["size"], 3);
    }
    let groups = |answer: Value| {
        answer["groups"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|group| group["name"].as_str().unwrap().ends_with("example.com"))
            .count()
    };
    assert_eq!(groups(admin.get("/apis").await.expect(200).json()), 1000);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = admin.get_as("/apis", accept).await.expect(200).json();
    let found = aggregated["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["versions"][0]["resources"][0]["resource"] == "things");
    assert_eq!(found.count(), 1000);
    let index = admin.get("/openapi/v3").await.expect(200).json();
    let url = index["paths"]["apis/g7.example.com/v1"]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    let described = admin.get(&url).await.expect(200).json();
    assert!(described["components"]["schemas"]["com.example.g7.v1.Thing"].is_object());
    let whole = admin.get("/openapi/v2").await.expect(200).json();
    assert!(
        whole["definitions"]["com.example.g999.v1.Thing"].is_object() && whole["paths"]["/api/v1/pods"].is_object()
    );

    // A change of one definition shows at once in the API documents of its group, and changes no other documents.
    let path = format!("{DEFINITIONS}/things.g7.example.com");
    let renamed = json!({"spec": {"names": {"shortNames": ["th"]}}}).to_string();
    admin.send(Method::PATCH, &path, &[MERGE], renamed).await.expect(200);
    let list = admin.get("/apis/g7.example.com/v1").await.expect(200).json();
    assert_eq!(list["resources"][0]["shortNames"], json!(["th"]));
    let again = admin.get("/openapi/v3").await.expect(200).json();
    assert_ne!(again["paths"]["apis/g7.example.com/v1"], index["paths"]["apis/g7.example.com/v1"]);
    assert_eq!(again["paths"]["apis/g8.example.com/v1"], index["paths"]["apis/g8.example.com/v1"]);

    server.kill();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    assert_eq!(groups(admin.get("/apis").await.expect(200).json()), 1000);
    assert_eq!(admin.get(&format!("{}/one", things(999))).await.expect(200).json()["spec"]["size"], 3);
    // Each group version gets an APIService, a little later.
    eventually(PATIENCE, async || {
        match admin.get("/apis/apiregistration.k8s.io/v1/apiservices/v1.g999.example.com").await.code {
            200 => Ok(()),
            code => Err(code),
        }
    })
    .await;
    admin.send(Method::DELETE, &format!("{DEFINITIONS}/things.g0.example.com"), &[], "").await.expect(200);
    eventually(PATIENCE, async || match admin.get("/apis/g0.example.com").await.code {
        404 => Ok(()),
        code => Err(code),
    })
    .await;
    server.stop();
}

/// Watches end when their kind changes, as clients expect, and resume where they were.
#[tokio::test]
async fn watches_outlive_a_change_of_the_definition() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let fields = json!({"a": {"type": "string"}});
    let tabs = definition("tabs.example.com", "Tab", json!([version("v1", true, fields)]));
    admin.post(DEFINITIONS, &tabs).await.expect(201);
    let path = "/apis/tabs.example.com/v1/namespaces/default/tabs";
    let made = admin.post(path, &json!({"metadata": {"name": "one"}, "spec": {"a": "1"}})).await.expect(201).json();
    let since = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = admin
        .open(Method::GET, &format!("{path}?watch=true&resourceVersion={since}"), &[], Default::default())
        .await
        .unwrap();
    let more = json!([{"op": "add", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b",
        "value": {"type": "string", "default": "new"}}]);
    let patch = ("content-type", "application/json-patch+json");
    admin
        .send(Method::PATCH, &format!("{DEFINITIONS}/tabs.tabs.example.com"), &[patch], more.to_string())
        .await
        .expect(200);
    let ended = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("in time");
    assert!(ended.is_none_or(|frame| frame.is_ok_and(|frame| frame.into_data().is_ok_and(|data| data.is_empty()))));
    // An existing object shows the new default without a new version, and the next watch sends all later events.
    let read = admin.get(&format!("{path}/one")).await.expect(200).json();
    assert_eq!(read["spec"], json!({"a": "1", "b": "new"}));
    assert_eq!(read["metadata"]["resourceVersion"], since.as_str());
    admin.post(path, &json!({"metadata": {"name": "two"}, "spec": {"a": "2"}})).await.expect(201);
    let mut watch = admin
        .open(Method::GET, &format!("{path}?watch=true&resourceVersion={since}"), &[], Default::default())
        .await
        .unwrap();
    let frame = tokio::time::timeout(PATIENCE, watch.body_mut().frame()).await.expect("in time").unwrap().unwrap();
    let event: Value = serde_json::from_slice(&frame.into_data().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!("two")));
    // A list at the version before the change uses the definition of that time.
    let old = admin.get(&format!("{path}?resourceVersion={since}&resourceVersionMatch=Exact")).await.expect(200).json();
    assert_eq!(old["items"].as_array().unwrap().len(), 1);
    assert_eq!(old["items"][0]["spec"], json!({"a": "1"}));
    server.stop();
}

#[test]
fn kubectl_and_helm_know_custom_kinds() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let fixtures = holdfast_tests::folder().join("fixtures");
    let run = |program: &str, arguments: &[&str]| {
        let program = clients().join(program);
        let home = folder.join("home");
        let mut command = Command::new(&program);
        command.args(arguments).env("KUBECONFIG", server.kubeconfig()).env("HOME", &home);
        let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), format!("{out}{err}"))
    };
    let must = |program: &str, arguments: &[&str]| {
        let (fine, text) = run(program, arguments);
        assert!(fine, "{program} {arguments:?}\n{text}");
        text
    };
    let file = |name: &str| fixtures.join(name).display().to_string();
    let (crd, good) = (file("crds/seals.yaml"), file("crds/seals.good.yaml"));
    for kubectl in ["kubectl-1.37", "kubectl-1.20"] {
        // kubectl 1.20 is skipped if it is missing, because not every Linux distribution has a package of it.
        if !clients().join(kubectl).exists() {
            continue;
        }
        must(kubectl, &["apply", "-f", &crd]);
        let name = yaml::read::<Value>(&std::fs::read_to_string(&crd).unwrap()).unwrap();
        let (full, plural) =
            (name["metadata"]["name"].as_str().unwrap(), name["spec"]["names"]["plural"].as_str().unwrap());
        must(kubectl, &["wait", "--for=condition=Established", &format!("crd/{full}"), "--timeout=10s"]);
        let applied = must(kubectl, &["apply", "-f", &good]);
        assert!(applied.contains("created"), "{applied}");
        // Only the object of the kind without a status subresource is unchanged. In the other kind the server drops
        // `status` from the main resource, so each apply finds a difference.
        assert!(must(kubectl, &["apply", "-f", &good]).contains("plain unchanged"));
        assert!(must(kubectl, &["explain", &format!("{plural}.spec")]).contains("FIELD"));
        let table = must(kubectl, &["get", plural, "-A"]);
        assert!(table.contains("READY"), "{table}");
        assert!(must(kubectl, &["describe", plural, "-A"]).contains("Spec:"));
        assert!(must(kubectl, &["api-resources"]).contains(plural));
        must(kubectl, &["delete", "-f", &good]);
        must(kubectl, &["delete", "-f", &crd, "--timeout=20s"]);
    }
    for (helm, release) in [("helm-3", "three"), ("helm-4", "four")] {
        let chart = file("operator-chart");
        must(helm, &["install", release, &chart]);
        let shown = must(helm, &["get", "manifest", release]);
        assert!(shown.contains("kind:"), "{shown}");
        must(helm, &["upgrade", release, &chart]);
        must(helm, &["uninstall", release]);
    }
    server.stop();
}
