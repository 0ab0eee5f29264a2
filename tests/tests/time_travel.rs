//! Time travel commands of the real binary: with a running server, and on the folder of a stopped server.

use holdfast_core::object::yaml;
use holdfast_tests::server::{binary, fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const FERRIES: &str = "/apis/example.com/v1/namespaces/shop/ferries";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_server_tells_what_its_folder_tells() {
    let folder = Folder::new();
    let tokens = folder.join("tokens");
    std::fs::write(&tokens, "secret,jane,1\n").expect("written");
    let data = folder.join("data");
    let server = Server::start(&data, &["--token-auth-file", tokens.to_str().expect("UTF-8")]);
    let admin = HttpClient::admin(&server);
    let before = version(&admin.get(&format!("{MAPS}?limit=1")).await.expect(200).json());
    admin.post(MAPS, &map("a", "0")).await.expect(201);
    // The changes below are more events than a command fetches at a time.
    for turn in 1..150 {
        patch(&admin, "a", &json!({"data": {"text": turn.to_string()}})).await;
        if turn % 50 == 0 {
            admin.post(MAPS, &map(&format!("other-{turn}"), "x")).await.expect(201);
        }
    }
    admin.post(DEFINITIONS, &definition()).await.expect(201);
    let (from, last) = (before.to_string(), (before + 100).to_string());
    let (data, kubeconfig) = (data.to_str().expect("UTF-8"), text_of(server.kubeconfig()));
    for arguments in [
        &["history", "cm", "a", "-o", "json"][..],
        &["history", "cm/a", "-p", "--limit", "70"],
        &["blame", "cm", "a", "-o", "yaml"],
        &["blame", "crd", "ferries.example.com"],
        &["diff", &from, "-o", "json"],
        &["diff", &from, &last, "-n", "default", "--kind", "cm"],
        &["log", "tail", "-n", "30"],
        &["log", "stats", "--json"],
        &["log", "export", "--to", &last],
    ] {
        let of_folder = done(&[arguments, &["--data-dir", data]].concat());
        let of_server = done(&[arguments, &["--kubeconfig", &kubeconfig]].concat());
        assert!(!of_server.is_empty() && of_server == of_folder, "{arguments:?}:\n{of_server}\n---\n{of_folder}");
    }
    let history = as_json(&["history", "cm", "a", "--kubeconfig", &kubeconfig]);
    assert_eq!(history["versions"].as_array().map(Vec::len), Some(150));

    // Commands with wrong arguments or a wrong kubeconfig fail with messages that name the fault.
    let jane = folder.join("jane.kubeconfig");
    let mut config: Value = yaml::read(&std::fs::read_to_string(&kubeconfig).expect("a kubeconfig")).expect("YAML");
    config["users"][0]["user"] = json!({"token": "secret"});
    std::fs::write(&jane, config.to_string()).expect("written");
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1".into();
    let nobody = folder.join("nobody.kubeconfig");
    std::fs::write(&nobody, config.to_string()).expect("written");
    let (jane, nobody) = (text_of(&jane), text_of(&nobody));
    for (arguments, parts) in [
        (
            &["history", "cm", "a", "--kubeconfig", &jane][..],
            &["does not let you read its log", "\"jane\"", "cluster-admin"][..],
        ),
        (&["log", "tail", "--kubeconfig", &jane], &["does not let you read its log"]),
        (&["history", "cm", "a", "--kubeconfig", &nobody], &["https://127.0.0.1:1 cannot be reached"]),
        (
            &["history", "cm", "a", "--kubeconfig", &kubeconfig, "--context", "x"],
            &["no context \"x\": it has holdfast"],
        ),
        (&["history", "cm", "a", "--kubeconfig", "/nowhere"], &["the kubeconfig /nowhere"]),
        (
            &["history", "cm", "b", "--kubeconfig", &kubeconfig],
            &["configmaps/default/b was never there: did you mean a?"],
        ),
        (&["history", "mc", "a", "--kubeconfig", &kubeconfig], &["there is no kind \"mc\""]),
        (&["diff", "9999999", "--kubeconfig", &kubeconfig], &["version 9999999 is in the future"]),
        (&["diff", "yesterday", "--kubeconfig", &kubeconfig], &["\"yesterday\" is not a moment"]),
        (&["log", "export", "--to", "9999999", "--kubeconfig", &kubeconfig], &["the log ends with event"]),
    ] {
        refused(arguments, parts);
    }
    let lost = Command::new(binary())
        .args(["history", "cm", "a"])
        .env_remove("KUBECONFIG")
        .env("HOME", folder.path())
        .output()
        .expect("run holdfast");
    let error = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(error.contains("--kubeconfig FILE") && error.contains("--data-dir DIR"), "{error}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_put_back() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let kubeconfig = text_of(server.kubeconfig());
    let on = |arguments: &[&str]| holdfast([arguments, &["--kubeconfig", &kubeconfig]].concat());
    let json = |arguments: &[&str]| told(on(&[arguments, &["-o", "json"]].concat()));

    let one = version(&admin.post(MAPS, &map("a", "one")).await.expect(201).json());
    let two = patch(&admin, "a", &json!({"data": {"text": "two"}, "metadata": {"labels": {"new": "1"}}})).await;
    let one_text = one.to_string();
    let restore = ["restore", "cm", "a", "--to", &one_text];
    let rehearsed = json(&[&restore[..], &["--dry-run"]].concat());
    assert_eq!(
        (&rehearsed["event"], &rehearsed["dryRun"], &rehearsed["after"]),
        (&"changed".into(), &true.into(), &Value::Null)
    );
    assert_eq!(version(&admin.get(&format!("{MAPS}/a")).await.expect(200).json()), two, "a dry run writes nothing");
    let written = json(&restore);
    assert_eq!(written["changes"], rehearsed["changes"]);
    let now = admin.get(&format!("{MAPS}/a")).await.expect(200).json();
    assert_eq!((&now["data"]["text"], &now["metadata"]["labels"]), (&"one".into(), &Value::Null));
    assert_eq!(written["after"], version(&now));
    assert_eq!(json(&restore)["event"], "unchanged");
    assert_eq!(version(&admin.get(&format!("{MAPS}/a")).await.expect(200).json()), version(&now));
    // The restore is an ordinary event with the restoring manager.
    let history = json(&["history", "cm", "a"]);
    let last = history["versions"].as_array().expect("versions").last().expect("one").clone();
    assert_eq!((&last["manager"], &last["verb"]), (&"holdfast-restore".into(), &"update".into()));
    let uid = now["metadata"]["uid"].clone();
    admin.send(Method::DELETE, &format!("{MAPS}/a"), &[], "").await.expect(200);
    assert_eq!(json(&["restore", "cm", "a", "--to", &two.to_string()])["event"], "created");
    let now = admin.get(&format!("{MAPS}/a")).await.expect(200).json();
    assert_eq!(now["data"]["text"], "two");
    assert_ne!(now["metadata"]["uid"], uid);

    // The status is restored through its subresource, and references to missing owners are omitted.
    let web = json!({"metadata": {"name": "web", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "a", "uid": uid}]}, "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "w:1"}]}}}});
    let mut web = admin.post(DEPLOYMENTS, &web).await.expect(201).json();
    web["status"] = json!({"replicas": 1, "observedGeneration": 1});
    let status =
        admin.send(Method::PUT, &format!("{DEPLOYMENTS}/web/status"), &JSON, web.to_string()).await.expect(200).json();
    admin.send(Method::DELETE, &format!("{DEPLOYMENTS}/web?propagationPolicy=Background"), &[], "").await.expect(200);
    let outcome = json(&["restore", "deploy", "web", "--to", &version(&status).to_string()]);
    assert!(outcome["notes"].to_string().contains("its owner ConfigMap a is gone"), "{outcome}");
    let now = admin.get(&format!("{DEPLOYMENTS}/web")).await.expect(200).json();
    assert_eq!((&now["status"], &now["metadata"]["ownerReferences"]), (&status["status"], &Value::Null));

    // The restore of an immutable object fails with the server's message. With `--force` the object is deleted and
    // created again.
    let mut fixed = map("fixed", "one");
    fixed["immutable"] = true.into();
    let first = version(&admin.post(MAPS, &fixed).await.expect(201).json()).to_string();
    admin.send(Method::DELETE, &format!("{MAPS}/fixed"), &[], "").await.expect(200);
    fixed["data"]["text"] = "two".into();
    admin.post(MAPS, &fixed).await.expect(201);
    fails(on(&["restore", "cm", "fixed", "--to", &first]), &["field is immutable", "--force"]);
    assert_eq!(json(&["restore", "cm", "fixed", "--to", &first, "--force"])["event"], "recreated");
    assert_eq!(admin.get(&format!("{MAPS}/fixed")).await.expect(200).json()["data"]["text"], "one");

    // Restoring an object that is being deleted fails.
    let mut held = map("held", "one");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let held = version(&admin.post(MAPS, &held).await.expect(201).json()).to_string();
    admin.send(Method::DELETE, &format!("{MAPS}/held"), &[], "").await.expect(200);
    fails(on(&["restore", "cm", "held", "--to", &held]), &["is being deleted since", "example.com/hold"]);
    for (arguments, parts) in [
        (&["restore", "cm", "a", "--to", "1"][..], &["did not exist yet at version 1: it was created at version"][..]),
        (&["restore", "cm", "a", "--to", "99999"], &["version 99999 is in the future"]),
        (&["restore", "cm", "a", "--to", "soon"], &["\"soon\" is not a moment"]),
        (&["restore", "cm", "nobody", "--to", "-1m"], &["was never there"]),
        (&["restore", "cn", "a", "--to", "-1m"], &["there is no kind \"cn\""]),
    ] {
        fails(on(arguments), parts);
    }

    // The same command on the folder is refused while the server runs. After the server has stopped, the command has
    // the same result as with the server.
    let data = text_of(folder.path());
    fails(holdfast(["restore", "cm", "a", "--to", &one_text, "--data-dir", &data]), &["is in use by", "--kubeconfig"]);
    server.stop();
    let outcome = told(holdfast(["restore", "cm", "a", "--to", &one_text, "--data-dir", &data, "-o", "json"]));
    assert_eq!(outcome["event"], "changed");
    fails(holdfast(["restore", "cm", "held", "--to", &held, "--data-dir", &data]), &["is being deleted since"]);
    let history = told(holdfast(["history", "cm", "a", "--data-dir", &data, "-o", "json"]));
    let last = history["versions"].as_array().expect("versions").last().expect("one").clone();
    assert_eq!((&last["manager"], &last["version"]), (&"holdfast-restore".into(), &outcome["after"]));
    let server = Server::start(folder.path(), &[]);
    let now = HttpClient::admin(&server).get(&format!("{MAPS}/a")).await.expect(200).json();
    assert_eq!(now["data"]["text"], "one");
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_undone() {
    let folder = Folder::new();
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    let kubeconfig = text_of(server.kubeconfig());
    let undo = |version: u64, more: &[&str]| {
        let version = version.to_string();
        holdfast([&["undo", &version, "--kubeconfig", &kubeconfig, "-o", "json"], more].concat())
    };
    let get = async |name: &str| admin.get(&format!("{MAPS}/{name}")).await;

    // Undoing a change keeps the later changes of other users to other fields.
    let created = version(&admin.post(MAPS, &map("a", "one")).await.expect(201).json());
    let changed = patch(&admin, "a", &json!({"data": {"text": "two", "more": "x"}})).await;
    patch(&admin, "a", &json!({"data": {"later": "y"}})).await;
    assert_eq!(told(undo(changed, &["--dry-run"]))["event"], "changed");
    assert_eq!(get("a").await.json()["data"], json!({"text": "two", "more": "x", "later": "y"}));
    assert_eq!(told(undo(changed, &[]))["event"], "changed");
    assert_eq!(get("a").await.json()["data"], json!({"text": "one", "later": "y"}));
    assert_eq!(told(undo(changed, &[]))["event"], "unchanged");

    // A field that was set again later is a conflict, with its manager and time.
    let changed = patch(&admin, "a", &json!({"data": {"text": "three"}})).await;
    let by_jane = [
        ("content-type", "application/merge-patch+json"),
        ("impersonate-user", "jane"),
        ("impersonate-group", "system:masters"),
    ];
    let since =
        admin.send(Method::PATCH, &format!("{MAPS}/a"), &by_jane, json!({"data": {"text": "four"}}).to_string()).await;
    let since = version(&since.expect(200).json());
    let conflict = undo(changed, &[]);
    assert_eq!(conflict.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&conflict.stdout).expect("JSON");
    let told_of = &report["conflicts"][0];
    assert_eq!(
        (&told_of["path"], &told_of["before"], &told_of["after"], &told_of["now"], &told_of["version"]),
        (&"data.text".into(), &"one".into(), &"three".into(), &"four".into(), &since.into())
    );
    assert!(told_of["since"].as_str().is_some_and(|since| since.contains("by jane")), "{report}");
    fails(conflict, &["nothing is written", "--force"]);
    assert_eq!(get("a").await.json()["data"]["text"], "four");
    assert_eq!(told(undo(changed, &["--force"]))["event"], "changed");
    assert_eq!(get("a").await.json()["data"]["text"], "one");

    // Undoing a creation fails if the object was changed later. Undoing the creation of an unchanged object deletes the
    // object.
    let conflict = undo(created, &[]);
    fails(conflict, &["nothing is written"]);
    let plain = version(&admin.post(MAPS, &map("plain", "one")).await.expect(201).json());
    assert_eq!(told(undo(plain, &[]))["event"], "deleted");
    get("plain").await.refused(404, "NotFound");
    assert_eq!(told(undo(plain, &[]))["event"], "unchanged");
    // Undoes a deletion. Undoing it again changes nothing.
    let deleted = last_version(&kubeconfig, "plain");
    assert_eq!(told(undo(deleted, &[]))["event"], "created");
    assert_eq!(get("plain").await.expect(200).json()["data"]["text"], "one");
    assert_eq!(told(undo(deleted, &[]))["event"], "unchanged");
    patch(&admin, "plain", &json!({"data": {"text": "two"}})).await;
    fails(undo(deleted, &[]), &["nothing is written"]);
    // If the object was deleted, undoing an earlier change needs the deletion to be undone first.
    let changed = patch(&admin, "plain", &json!({"data": {"text": "three"}})).await;
    admin.send(Method::DELETE, &format!("{MAPS}/plain"), &[], "").await.expect(200);
    let deleted = last_version(&kubeconfig, "plain");
    fails(undo(changed, &[]), &["deleted since", &format!("holdfast undo {deleted}")]);
    fails(undo(0, &[]), &["version 0 is the beginning"]);
    fails(undo(9_999_999, &[]), &["is in the future"]);
    server.stop();

    // `holdfast undo` also works on a folder, without a server.
    let data = text_of(folder.path());
    let outcome = told(holdfast(["undo", &deleted.to_string(), "--data-dir", &data, "-o", "json"]));
    assert_eq!(outcome["event"], "created");
    fails(holdfast(["undo", "9999999", "--data-dir", &data]), &["is in the future"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_client_sees_the_past_and_bisect_searches_it() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let admin = HttpClient::admin(&server);
    let kubeconfig = text_of(server.kubeconfig());
    let on = |arguments: &[&str], command: &[&str]| {
        let separator: &[&str] = if command.is_empty() { &[] } else { &["--"] };
        holdfast([arguments, &["--kubeconfig", &kubeconfig], separator, command].concat())
    };
    let first = version(&admin.post(MAPS, &map("a", "0")).await.expect(201).json());
    for turn in 1..=12 {
        patch(&admin, "a", &json!({"data": {"text": turn.to_string()}})).await;
        admin.post(MAPS, &map(&format!("noise-{turn}"), "x")).await.expect(201);
    }
    let last = last_version(&kubeconfig, "a");
    let middle =
        told(on(&["history", "cm", "a", "-o", "json"], &[]))["versions"][7]["version"].as_u64().expect("a version");
    let middle_text = middle.to_string();

    // `holdfast at` adds a context that any client can use.
    let added = on(&["at", &middle_text], &[]);
    assert!(added.status.success(), "{added:?}");
    let context = format!("holdfast@{middle}");
    let past = client(&kubeconfig, Some(&context)).await;
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> = kube::Api::default_namespaced(past);
    assert_eq!(maps.get("a").await.expect("a map").data.expect("data")["text"], "7");
    let refusal = maps.delete("a", &Default::default()).await.expect_err("a refusal").to_string();
    assert!(refusal.contains("read-only view"), "{refusal}");
    let present: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::default_namespaced(client(&kubeconfig, None).await);
    assert_eq!(present.get("a").await.expect("a map").data.expect("data")["text"], "12");
    fails(on(&["at", &middle_text, "--context", &context], &[]), &["shows the past itself"]);
    fails(on(&["history", "cm", "a", "--context", &context], &[]), &["has no log of its own"]);
    // A context in a file of its own, and a context for a single command.
    let other = text_of(&folder.join("other"));
    assert!(on(&["at", &middle_text, "-o", &other], &[]).status.success());
    let maps: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
        kube::Api::default_namespaced(client(&other, None).await);
    assert_eq!(maps.get("a").await.expect("a map").data.expect("data")["text"], "7");
    let ran = on(&["at", "-0s"], &["sh", "-c", "grep -q /at/$HOLDFAST_VERSION \"$KUBECONFIG\" && exit 7"]);
    assert_eq!(ran.status.code(), Some(7));
    fails(on(&["at", "-0s"], &["/no/such/command"]), &["run /no/such/command"]);
    for (moment, part) in
        [("99999", "is in the future"), ("soon", "is not a moment"), ("2999-01-01T00:00:00Z", "is in the future")]
    {
        fails(on(&["at", moment], &[]), &[part]);
    }

    // Finds the first version at which a command fails.
    let until =
        format!("grep -q /at/$HOLDFAST_VERSION \"$KUBECONFIG\" || exit 125; [ $HOLDFAST_VERSION -lt {middle} ]");
    let bisect = |more: &[&str], script: &str| {
        let (good, bad) = (first.to_string(), last.to_string());
        on(&[&["bisect", "--good", &good, "--bad", &bad, "-o", "json"], more].concat(), &["sh", "-c", script])
    };
    for filters in [&[][..], &["--kind", "cm", "--name", "a"]] {
        let found = told(bisect(filters, &until));
        assert_eq!(found["isCertain"], true, "{found}");
        let event = &found["events"][0];
        assert_eq!((&event["version"], &event["object"]), (&middle.into(), &"configmaps/default/a".into()));
        assert_eq!(event["changes"][0]["new"], "7");
    }
    // The version before the first bad version cannot be tested, so each of the two versions may be the first bad
    // version.
    let skipped = format!("[ $HOLDFAST_VERSION -eq {} ] && exit 125; [ $HOLDFAST_VERSION -lt {middle} ]", middle - 1);
    let found = told(bisect(&[], &skipped));
    assert_eq!((&found["isCertain"], found["events"].as_array().map(Vec::len)), (&false.into(), Some(2)));
    fails(bisect(&[], "true"), &["does not fail at the bad version"]);
    fails(bisect(&[], "false"), &["does not succeed at the good version"]);
    fails(bisect(&[], "kill -9 $$"), &["neither good nor bad"]);
    fails(bisect(&["--kind", "pods"], &until), &["on what the filters leave"]);
    fails(
        on(&["bisect", "--good", &last.to_string(), "--bad", &first.to_string()], &["true"]),
        &["the good one comes first"],
    );
    server.stop();

    // bisect on the folder runs the command on forks, to which it can write.
    let data = text_of(&folder.join("data"));
    let binary = text_of(binary());
    let script =
        format!("'{binary}' blame cm a | grep -qE 'data.text: \"[0-6]\"' && '{binary}' undo $HOLDFAST_VERSION");
    let (good, bad) = ((first + 1).to_string(), last.to_string());
    let bisect =
        ["bisect", "--good", &good, "--bad", &bad, "--kind", "cm", "--name", "a", "--data-dir", &data, "-o", "json"];
    let found = told(holdfast([&bisect[..], &["--fork", "--", "sh", "-c", &script]].concat()));
    assert_eq!(found["events"][0]["version"], middle, "{found}");
    fails(holdfast([&bisect[..], &["--", "true"]].concat()), &["give --fork"]);
    let missing = [&bisect[..], &["--fork", "--", "/no/such/command"]].concat();
    fails(holdfast(missing), &["no such command"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_replayed_into_another_server() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("one"), &[]);
    let admin = HttpClient::admin(&server);
    let one = text_of(server.kubeconfig());
    a_day(&admin).await;
    let export = text_of(&folder.join("export.jsonl"));
    done(&["log", "export", "--kubeconfig", &one, "-o", &export]);
    let other = Server::start(&folder.join("two"), &[]);
    let two = text_of(other.kubeconfig());
    let there = HttpClient::admin(&other);
    let replayed = |log: &str, more: &[&str]| {
        holdfast([&["replay", log, "--against", &two, "-o", "json", "--speed", "max"], more].concat())
    };
    let summary = told(replayed(&export, &["--concurrency", "8"]));
    assert_eq!(summary["refused"], 0, "{summary}");
    assert!(
        summary["serversOwn"].as_u64() > Some(100) && summary["latencyMs"]["max"].as_f64() > Some(0.0),
        "{summary}"
    );
    same(&admin, &there).await;
    let owner = there.get(&format!("{MAPS}/owner")).await.expect(200).json()["metadata"]["uid"].clone();
    let owned = there.get(&format!("{MAPS}/owned")).await.expect(200).json();
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], owner, "owners are those that stand for them");
    // Replays again over existing objects, from the running server and from its folder, at a limited speed.
    let data = text_of(&folder.join("one"));
    for log in [&one, &data] {
        // The pod is deleted first, because a replay would have to unbind it, which is not possible.
        let at_once = json!({"gracePeriodSeconds": 0}).to_string();
        there.send(Method::DELETE, "/api/v1/namespaces/shop/pods/p", &JSON, at_once).await.expect(200);
        let summary = told(holdfast(["replay", log, "--against", &two, "-o", "json", "--speed", "1000"]));
        assert_eq!(summary["refused"], 0, "{summary}");
        assert!(summary["behindMs"]["max"].is_number(), "{summary}");
        same(&admin, &there).await;
    }

    // Refusals of the other server are reported and counted.
    let protected = json!({"metadata": {"name": "p"}, "value": 1, "preemptionPolicy": "Never"});
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let from = version(&admin.post(CLASSES, &protected).await.expect(201).json()).to_string();
    let otherwise = json!({"metadata": {"name": "p"}, "value": 2});
    there.post(CLASSES, &otherwise).await.expect(201);
    let refusal = replayed(&one, &["--from", &from]);
    let summary: Value = serde_json::from_slice(&refusal.stdout).expect("JSON");
    assert_eq!((&summary["refused"], &summary["refusals"][0]["reason"]), (&1.into(), &"Invalid".into()), "{summary}");
    assert_eq!(summary["refusals"][0]["examples"][0]["object"], "priorityclasses/p");
    fails(refusal, &["refused 1 event; --tolerate accepts that"]);
    assert!(replayed(&one, &["--from", &from, "--tolerate"]).status.success());

    // A URL is enough if the default kubeconfig has it.
    let by_url = |kubeconfig: &str| {
        let arguments = ["replay", &one, "--against", other.url(), "--from", &from, "--tolerate", "--speed", "max"];
        Command::new(binary()).args(arguments).env("KUBECONFIG", kubeconfig).output().expect("run holdfast")
    };
    succeeds(by_url(&two));
    fails(by_url(&one), &["cannot be reached"]);

    // Bad input is refused before anything is sent.
    let newest = there.get(&format!("{MAPS}?limit=1")).await.expect(200).json()["metadata"]["resourceVersion"].clone();
    let cut = text_of(&folder.join("cut"));
    let whole = std::fs::read(&export).expect("an export");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("written");
    for (log, more, parts) in [
        (cut.as_str(), &[][..], &["has no line feed at its end"][..]),
        ("/no/such/export", &[], &["there is no /no/such/export"]),
        (&text_of(&folder.join("two/pki/ca.crt")), &[], &["is not a log: give an export"]),
        (&export, &["--from", "999999"], &["--from 999999 is behind the last event"]),
        (&export, &["--to", "999999"], &["--to 999999: the log ends with event"]),
        (&export, &["--speed", "fast"], &["how many times as fast"]),
        (&two, &[], &["is the server that the log is of"]),
    ] {
        fails(replayed(log, more), parts);
    }
    fails(holdfast(["replay", &export, "--against", "https://127.0.0.1:1"]), &["cannot be reached"]);
    fails(holdfast(["replay", &export, "--against", "/no/kubeconfig"]), &["neither an existing kubeconfig nor a URL"]);
    let now = there.get(&format!("{MAPS}?limit=1")).await.expect(200).json()["metadata"]["resourceVersion"].clone();
    assert_eq!(now, newest, "nothing was written");
    server.stop();
    other.stop();
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

/// Namespaces that are created and deleted, a custom kind, owners, statuses, finalizers, a bound pod.
async fn a_day(admin: &HttpClient) {
    const NAMESPACES: &str = "/api/v1/namespaces";
    let namespace = |name: &str| json!({"metadata": {"name": name}});
    admin.post(NAMESPACES, &namespace("shop")).await.expect(201);
    admin.post(DEFINITIONS, &definition()).await.expect(201);
    let ferry = json!({"apiVersion": "example.com/v1", "kind": "Ferry", "metadata": {"name": "star",
        "finalizers": ["example.com/moored"]}, "spec": {"stops": 1}});
    holdfast_tests::eventually(std::time::Duration::from_secs(10), async || {
        let answer = admin.post(FERRIES, &ferry).await;
        if answer.code == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    let mut star = admin.get(&format!("{FERRIES}/star")).await.expect(200).json();
    star["status"] = json!({"at": "pier"});
    let mut star =
        admin.send(Method::PUT, &format!("{FERRIES}/star/status"), &JSON, star.to_string()).await.expect(200).json();
    star["spec"]["stops"] = 2.into();
    admin.send(Method::PUT, &format!("{FERRIES}/star"), &JSON, star.to_string()).await.expect(200);
    let mut sunk = ferry.clone();
    sunk["metadata"]["name"] = "sunk".into();
    admin.post(FERRIES, &sunk).await.expect(201);
    admin.send(Method::DELETE, &format!("{FERRIES}/sunk"), &[], "").await.expect(200);
    let free = [("content-type", "application/merge-patch+json")];
    let patch_body = json!({"metadata": {"finalizers": null}}).to_string();
    admin.send(Method::PATCH, &format!("{FERRIES}/sunk"), &free, patch_body).await.expect(200);
    let owner = admin.post(MAPS, &map("owner", "x")).await.expect(201).json();
    let mut owned = map("owned", "x");
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    admin.post(MAPS, &owned).await.expect(201);
    for turn in 0..20 {
        patch(admin, "owner", &json!({"data": {"text": turn.to_string()}})).await;
    }
    admin.post("/api/v1/nodes", &json!({"metadata": {"name": "n"}})).await.expect(201);
    const PODS: &str = "/api/v1/namespaces/shop/pods";
    let account = json!({"metadata": {"name": "default"}});
    admin.post("/api/v1/namespaces/shop/serviceaccounts", &account).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    admin.post(PODS, &pod).await.expect(201);
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    admin.post(&format!("{PODS}/p/binding"), &binding).await.expect(201);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    admin.post("/api/v1/namespaces/shop/services", &service).await.expect(201);
    // A namespace is deleted with its content, and created again under the same name.
    admin.post(NAMESPACES, &namespace("twice")).await.expect(201);
    admin.post("/api/v1/namespaces/twice/configmaps", &map("held", "x")).await.expect(201);
    admin.send(Method::DELETE, &format!("{NAMESPACES}/twice"), &[], "").await.expect(200);
    holdfast_tests::eventually(std::time::Duration::from_secs(10), async || {
        let answer = admin.post(NAMESPACES, &namespace("twice")).await;
        if answer.code == 201 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
}

/// Checks that two servers have the same objects, except for fields that each server sets itself.
async fn same(one: &HttpClient, two: &HttpClient) {
    for path in [
        "/api/v1/configmaps",
        "/api/v1/namespaces",
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/namespaces/shop/services",
        "/apis/example.com/v1/ferries",
        DEFINITIONS,
    ] {
        let told = async |wire: &HttpClient| -> Vec<Value> {
            let list = wire.get(path).await.expect(200).json();
            let mut items = list["items"].as_array().expect("items").clone();
            items.retain(|item| !matches!(item["metadata"]["namespace"].as_str(), Some("kube-system" | "kube-public")));
            for item in &mut items {
                let metadata = item["metadata"].as_object_mut().expect("metadata");
                for field in
                    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "ownerReferences"]
                {
                    metadata.remove(field);
                }
                // Each server sets the times of its conditions itself.
                if let Some(conditions) = item["status"]["conditions"].as_array_mut() {
                    conditions
                        .iter_mut()
                        .for_each(|condition| _ = condition.as_object_mut().map(|c| c.remove("lastTransitionTime")));
                }
            }
            items
        };
        assert_eq!(told(one).await, told(two).await, "{path}");
    }
}

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ferries.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "ferries", "singular": "ferry", "kind": "Ferry"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

/// Patches a ConfigMap and returns its new version.
async fn patch(admin: &HttpClient, name: &str, body: &Value) -> u64 {
    let headers = [("content-type", "application/merge-patch+json")];
    version(&admin.send(Method::PATCH, &format!("{MAPS}/{name}"), &headers, body.to_string()).await.expect(200).json())
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok()).expect("a version")
}

/// The version of the newest event on a ConfigMap.
fn last_version(kubeconfig: &str, name: &str) -> u64 {
    let history = as_json(&["history", "cm", name, "--kubeconfig", kubeconfig]);
    history["versions"].as_array().and_then(|versions| versions.last()?["version"].as_u64()).expect("a version")
}

async fn client(kubeconfig: &str, context: Option<&str>) -> kube::Client {
    let config = kube::config::Kubeconfig::read_from(PathBuf::from(kubeconfig)).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.expect("a usable kubeconfig");
    kube::Client::try_from(config).expect("a client")
}

fn text_of(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[track_caller]
fn as_json(arguments: &[&str]) -> Value {
    told(holdfast([arguments, &["-o", "json"]].concat()))
}

/// The JSON report of a command that must succeed.
#[track_caller]
fn told(output: Output) -> Value {
    serde_json::from_str(&succeeds(output)).expect("JSON")
}

/// The output of a command that must succeed.
#[track_caller]
fn done(arguments: &[&str]) -> String {
    succeeds(holdfast(arguments))
}

#[track_caller]
fn refused(arguments: &[&str], parts: &[&str]) {
    fails(holdfast(arguments), parts);
}
