//! Reads of past versions through the API, by every way to name one: exact versions, times, and the view of everything.

use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FERRIES: &str = "/apis/example.com/v1/namespaces/default/ferries";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_past_version_can_be_read() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let told = tell(&admin).await;
    // Reads of past versions must give the same answers now, while the server keeps snapshots for lists in progress,
    // and after the restart below.
    exact_versions(&admin, &told).await;
    the_view(&admin, &told).await;
    nothing_is_written(&admin, &told).await;
    bad_moments(&admin, told.last).await;
    server.stop();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    exact_versions(&admin, &told).await;
    the_view(&admin, &told).await;
    watches(&admin, &told).await;
    server.stop();
}

/// Versions at which something existed that was deleted later.
struct Told {
    /// `a` to `d` exist, and `text` is the ConfigMap `a`.
    maps: u64,
    text: Value,
    /// The kind of ferries is defined, and `star` is a ferry.
    ferry: u64,
    /// Jane may read pods.
    role: u64,
    last: u64,
}

async fn tell(admin: &HttpClient) -> Told {
    let map =
        |name: &str, text: &str| json!({"metadata": {"name": name, "labels": {"name": name}}, "data": {"text": text}});
    let mut maps = 0;
    for name in ["a", "b", "c", "d"] {
        maps = version(&admin.post(MAPS, &map(name, "one")).await.expect(201).json());
    }
    let text = admin.get(&format!("{MAPS}/a")).await.expect(200).json();
    for turn in 0..20 {
        let patch = json!({"data": {"text": format!("turn {turn}")}});
        send(admin, Method::PATCH, &format!("{MAPS}/a"), "application/merge-patch+json", &patch).await.expect(200);
    }
    admin.send(Method::DELETE, &format!("{MAPS}/b"), &[], "").await.expect(200);
    admin.post(MAPS, &map("e", "new")).await.expect(201);

    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "ferries.example.com"}, "spec": {"group": "example.com",
        "scope": "Namespaced", "names": {"plural": "ferries", "singular": "ferry", "kind": "Ferry"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    admin.post(DEFINITIONS, &definition).await.expect(201);
    let star =
        json!({"apiVersion": "example.com/v1", "kind": "Ferry", "metadata": {"name": "star"}, "spec": {"decks": 3}});
    let ferry = version(&admin.post(FERRIES, &star).await.expect(201).json());
    admin.send(Method::DELETE, &format!("{DEFINITIONS}/ferries.example.com"), &[], "").await.expect(200);
    while admin.get(FERRIES).await.code != 404 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    admin.post(roles, &json!({"metadata": {"name": "reader"}, "rules": rule})).await.expect(201);
    let binding = json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    let role = version(&admin.post(bindings, &binding).await.expect(201).json());
    admin.send(Method::DELETE, &format!("{bindings}/reader"), &[], "").await.expect(200);
    let list = admin.get(&format!("{MAPS}?labelSelector=name")).await.expect(200).json();
    assert_eq!(names(&list), ["a", "c", "d", "e"]);
    Told { maps, text, ferry, role, last: version(&list) }
}

/// A get, a list, and a list in pages can read an exact version.
async fn exact_versions(admin: &HttpClient, told: &Told) {
    let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", told.maps);
    for query in [exact.clone(), format!("at={}", told.maps)] {
        let found = admin.get(&format!("{MAPS}/a?{query}")).await.expect(200).json();
        assert_eq!(found, told.text, "{query}");
        admin.get(&format!("{MAPS}/b?{query}")).await.expect(200);
        admin.get(&format!("{MAPS}/e?{query}")).await.expect(404);
        let list = admin.get(&format!("{MAPS}?{query}&labelSelector=name")).await.expect(200).json();
        assert_eq!((names(&list), version(&list)), (strings(&["a", "b", "c", "d"]), told.maps), "{query}");
        assert_eq!(list["items"][0]["data"], told.text["data"], "{query}");
        let chosen = admin.get(&format!("{MAPS}?{query}&labelSelector=name%20in%20(b,e)")).await.expect(200).json();
        assert_eq!(names(&chosen), ["b"], "{query}");
        // The pages of one list have the same version, although each turn writes between two pages.
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let query = if token.is_empty() { query.clone() } else { format!("continue={token}") };
            let page = admin.get(&format!("{MAPS}?limit=2&{query}")).await.expect(200).json();
            assert_eq!(version(&page), told.maps);
            found.extend(names(&page).into_iter().filter(|name| name != "kube-root-ca.crt"));
            let patch = json!({"metadata": {"annotations": {"page": found.len().to_string()}}});
            send(admin, Method::PATCH, &format!("{MAPS}/c"), "application/merge-patch+json", &patch).await.expect(200);
            token = page["metadata"]["continue"].as_str().unwrap_or("").to_owned();
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(found, ["a", "b", "c", "d"], "{query}");
    }
    // Reads at a point in time work as well, in every format.
    let began = told.text["metadata"]["creationTimestamp"].as_str().expect("a time");
    let now = admin.get(&format!("{MAPS}?at=-0s&labelSelector=name")).await.expect(200).json();
    assert_eq!(names(&now), ["a", "c", "d", "e"]);
    let before: jiff::Timestamp = began.parse().expect("a time");
    let before = before - Duration::from_secs(3600);
    let empty = admin.get(&format!("{MAPS}?at={before}")).await.expect(200).json();
    assert_eq!((names(&empty), version(&empty)), (strings(&[]), 0));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let rows = admin.get_as(&format!("{MAPS}?{exact}&labelSelector=name"), table).await.expect(200).json();
    assert_eq!(rows["rows"].as_array().map(Vec::len), Some(4));
    let protobuf = admin.get_as(&format!("{MAPS}/a?{exact}"), "application/vnd.kubernetes.protobuf").await.expect(200);
    assert!(protobuf.body.windows(3).any(|bytes| bytes == b"one") && protobuf.body.starts_with(b"k8s\0"));
}

/// Reads through `/at/VERSION` show the whole API at the version, with the kinds that were defined at that version.
async fn the_view(admin: &HttpClient, told: &Told) {
    let at = |path: &str| format!("/at/{}{path}", told.ferry);
    let star = admin.get(&at(&format!("{FERRIES}/star"))).await.expect(200).json();
    assert_eq!((version(&star), &star["spec"]["decks"]), (told.ferry, &json!(3)));
    assert_eq!(names(&admin.get(&at(FERRIES)).await.expect(200).json()), ["star"]);
    admin.get(FERRIES).await.expect(404);
    for (path, wanted) in [
        ("/apis", "example.com"),
        ("/apis/example.com/v1", "ferries"),
        ("/openapi/v3", "apis/example.com/v1"),
        ("/openapi/v3/apis/example.com/v1", "Ferry"),
        ("/openapi/v2", "Ferry"),
    ] {
        assert!(admin.get(&at(path)).await.expect(200).text().contains(wanted), "{path}");
        let now = admin.get(path).await;
        assert!(now.code == 404 || !now.text().contains("erry"), "{path} now");
    }
    admin.get(&format!("/at/{}{FERRIES}", told.maps)).await.expect(404);
    admin.get(&at("/version")).await.expect(200);
    // In the view, the view's own version is the newest.
    let list = admin.get(&at(&format!("{MAPS}?resourceVersion={}", told.maps))).await.expect(200).json();
    assert_eq!(version(&list), told.ferry);
    let list = admin.get(&at(&format!("{MAPS}?resourceVersion={}&resourceVersionMatch=Exact", told.maps))).await;
    assert_eq!(version(&list.expect(200).json()), told.maps);
    let later = admin.get(&at(&format!("{MAPS}?resourceVersion={}", told.last))).await.expect(504).json();
    assert_eq!(later["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    // Requests to the view are authorized by today's roles; reviews in it answer by the roles of that time.
    let jane = [("impersonate-user", "jane")];
    admin
        .send(Method::GET, &format!("/at/{}/api/v1/namespaces/default/pods/x", told.role), &jane, "")
        .await
        .expect(403);
    let question = json!({"spec": {"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (path, allowed) in [(format!("/at/{}{reviews}", told.role), true), (reviews.to_owned(), false)] {
        assert_eq!(admin.post(&path, &question).await.expect(201).json()["status"]["allowed"], allowed, "{path}");
    }
}

/// Writes are refused, and dry runs are judged on the past state.
async fn nothing_is_written(admin: &HttpClient, told: &Told) {
    let last = version(&admin.get(MAPS).await.json());
    let at = |path: &str| format!("/at/{}{path}", told.maps);
    let map = json!({"metadata": {"name": "a"}, "data": {"text": "written"}});
    let merge = "application/merge-patch+json";
    let apply = "application/apply-patch+yaml";
    let whole =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"text": "applied"}});
    let token = "/api/v1/namespaces/default/serviceaccounts/default/token";
    for (method, path, media, body) in [
        (Method::POST, MAPS.to_owned(), "application/json", &map),
        (Method::PUT, format!("{MAPS}/a"), "application/json", &map),
        (Method::PATCH, format!("{MAPS}/a"), merge, &map),
        (Method::PATCH, format!("{MAPS}/new?fieldManager=m"), apply, &whole),
        (Method::DELETE, format!("{MAPS}/a"), "application/json", &Value::Null),
        (Method::DELETE, MAPS.to_owned(), "application/json", &Value::Null),
        (Method::POST, token.to_owned(), "application/json", &json!({})),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = admin.send(method.clone(), &at(&path), &[("content-type", media)], body).await;
        let status = answer.expect(403).json();
        assert_eq!(status["reason"], "Forbidden", "{method} {path}");
        assert!(status["message"].as_str().is_some_and(|text| text.contains("read-only view")), "{status}");
    }
    let rehearsed = |path: &str| at(&format!("{MAPS}{path}dryRun=All"));
    admin.post(&rehearsed("?"), &map).await.expect(409);
    let gone = json!({"data": {"text": "two"}});
    let patched = send(admin, Method::PATCH, &rehearsed("/b?"), merge, &gone).await.expect(200).json();
    assert_eq!(patched["data"]["text"], "two", "it is not there now, but was");
    let mut there = whole.clone();
    there["metadata"]["name"] = "d".into();
    let path = rehearsed("/d?force=true&fieldManager=m&");
    let applied = send(admin, Method::PATCH, &path, apply, &there);
    assert_eq!(applied.await.expect(200).json()["data"]["text"], "applied");
    assert_eq!(version(&admin.get(MAPS).await.json()), last, "nothing was written");
}

async fn bad_moments(admin: &HttpClient, last: u64) {
    let future = format!("at={}", last + 1000);
    for (query, code, reason, says) in [
        ("at=noon", 400, "BadRequest", "is not a moment: give a version (42), a time"),
        ("at=-15", 400, "BadRequest", "is not a moment"),
        ("at=2999-01-01T00:00:00Z", 400, "BadRequest", "is in the future"),
        (&future, 400, "BadRequest", "is in the future: the newest one is"),
        ("at=5&resourceVersion=5", 422, "Invalid", "both name a version"),
        ("at=5&continue=x", 422, "Invalid", "at: Forbidden"),
        ("at=5&watch=true", 422, "Invalid", "at is only for get and list"),
        ("resourceVersion=x&resourceVersionMatch=Exact", 400, "BadRequest", "resourceVersion: Invalid value"),
        ("resourceVersionMatch=Exact", 422, "Invalid", "resourceVersionMatch: Forbidden"),
    ] {
        let status = admin.get(&format!("{MAPS}?{query}")).await.expect(code).json();
        assert_eq!(status["reason"], reason, "{query}");
        assert!(status["message"].as_str().is_some_and(|text| text.contains(says)), "{query}: {status}");
    }
    for moment in ["noon", "", "999999", "-1y"] {
        let status = admin.get(&format!("/at/{moment}{MAPS}")).await.expect(400).json();
        assert_eq!(status["kind"], "Status", "{moment}");
    }
    admin.post(&format!("{MAPS}?at=5"), &json!({"metadata": {"name": "x"}})).await.expect(422);
    admin.get(&format!("/at/5{MAPS}?at=6")).await.expect(422);
    let anonymous = HttpClient { identity: None, ..admin.clone() };
    anonymous.get(&format!("/at/5{MAPS}")).await.expect(403);
}

/// A watch resumes at a past version; in a view it ends at the view's version.
async fn watches(admin: &HttpClient, told: &Told) {
    let wanted = [("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "e")];
    let seen = |events: &[(String, String)]| {
        let mut kept: Vec<(String, String)> = events.to_vec();
        kept.retain(|(_, name)| name != "c");
        kept.dedup();
        kept
    };
    let expected: Vec<(String, String)> = wanted.map(|(change, name)| (change.to_owned(), name.to_owned())).into();
    let query = format!("watch=true&labelSelector=name&resourceVersion={}", told.maps);
    // The watch sends twenty changes, a deletion and a creation. Only the log still has these events.
    let events = follow(admin, &format!("{MAPS}?{query}&timeoutSeconds=1")).await;
    assert_eq!(seen(&events), expected);
    let view = format!("/at/{}{MAPS}?{query}&timeoutSeconds=1", told.ferry);
    let events = follow(admin, &view).await;
    assert_eq!((seen(&events), events.len()), (expected, 22), "up to the view's version");
    let from_nothing = format!("/at/{}{MAPS}?watch=true&labelSelector=name&timeoutSeconds=1", told.maps);
    let names: Vec<String> = follow(admin, &from_nothing).await.into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    let initial = "watch=true&labelSelector=name&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                   &allowWatchBookmarks=true&timeoutSeconds=1";
    let events = follow(admin, &format!("/at/{}{MAPS}?{initial}", told.maps)).await;
    assert_eq!(events.last().map(|(change, _)| change.as_str()), Some("BOOKMARK"));
    assert_eq!(events.len(), 5);
    let later = format!("/at/{}{MAPS}?watch=true&resourceVersion={}", told.maps, told.last);
    admin.get(&later).await.expect(504);
    let gone = format!("/at/{}{FERRIES}?watch=true&timeoutSeconds=1", told.ferry);
    assert_eq!(follow(admin, &gone).await, [("ADDED".to_owned(), "star".to_owned())]);
}

/// The events of a watch until it ends.
async fn follow(admin: &HttpClient, path: &str) -> Vec<(String, String)> {
    let response = admin.open(Method::GET, path, &[], Default::default()).await.expect("an answer");
    assert_eq!(response.status().as_u16(), 200, "{path}");
    let body = response.into_body().collect().await.expect("a whole stream").to_bytes();
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let told = lines.map(|line| {
        let event: Value = serde_json::from_slice(line).expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    });
    told.collect()
}

async fn send(admin: &HttpClient, method: Method, path: &str, media: &str, body: &Value) -> Answer {
    admin.send(method, path, &[("content-type", media)], body.to_string()).await
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].as_str().unwrap_or("").to_owned()).collect()
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).expect("a version")
}
