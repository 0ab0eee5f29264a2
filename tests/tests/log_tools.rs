//! The tools of the log: verify, export, import and stats, and their refusals.

use holdfast_tests::server::{Refused, fails, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Runs `holdfast log ARGUMENTS --data-dir FOLDER`.
fn log(folder: &Path, arguments: &[&str]) -> Output {
    holdfast(["log"].iter().chain(arguments).copied().chain(["--data-dir", folder.to_str().expect("UTF-8")]))
}

#[track_caller]
fn verified(folder: &Path) -> Value {
    let verdict: Value =
        serde_json::from_str(&succeeds(log(folder, &["verify", "--json", "--every", "50"]))).expect("JSON");
    assert_eq!(verdict["intact"], true, "{verdict}");
    assert_eq!(verdict["digest"], verdict["servedDigest"]);
    verdict
}

/// Creates, changes and deletes objects, defines one custom kind, and defines and deletes another.
async fn fill(admin: &HttpClient) {
    let definition = |name: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{name}s.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": format!("{name}s"), "singular": name, "kind": name.to_uppercase()},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
    };
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for name in ["widget", "gadget"] {
        admin.post(DEFINITIONS, &definition(name)).await.expect(201);
    }
    for nth in 0..20 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{nth}")},
            "data": {"text": "a \"quoted\" line\nand \u{fc}ml\u{e4}uts"}});
        admin.post(MAPS, &map).await.expect(201);
        let widget = json!({"apiVersion": "example.com/v1", "kind": "WIDGET", "metadata": {"name": format!("w{nth}")},
            "object": {"size": 1.5}});
        admin.post(WIDGETS, &widget).await.expect(201);
    }
    let patch = [("content-type", "application/merge-patch+json")];
    for nth in 0..10 {
        let path = format!("{MAPS}/m{nth}");
        admin.send(Method::PATCH, &path, &patch, r#"{"data":{"more":"x"}}"#).await.expect(200);
    }
    for nth in 5..15 {
        admin.send(Method::DELETE, &format!("{MAPS}/m{nth}"), &[], "").await.expect(200);
    }
    let again = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m7"}});
    admin.post(MAPS, &again).await.expect(201);
    admin.send(Method::DELETE, &format!("{DEFINITIONS}/gadgets.example.com"), &[], "").await.expect(200);
}

#[tokio::test]
async fn an_export_makes_the_same_cluster_elsewhere() {
    let (folder, files) = (Folder::new(), Folder::new());
    let server = Server::start(folder.path(), &[]);
    let admin = HttpClient::admin(&server);
    fill(&admin).await;
    // `holdfast log verify` also works while the server is running.
    let beside = verified(folder.path());
    assert!(beside["checkpoints"].as_array().is_some_and(|all| !all.is_empty()), "{beside}");
    let stats: Value = serde_json::from_str(&succeeds(log(folder.path(), &["stats", "--json"]))).expect("JSON");
    let maps = stats["kinds"].as_array().unwrap().iter().find(|row| row["resource"] == "configmaps").unwrap();
    assert!(maps["events"].as_u64() >= Some(41), "{maps}");
    for part in ["kinds", "actors", "hours"] {
        let sum: u64 = stats[part].as_array().unwrap().iter().map(|row| row["events"].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), stats["events"].as_u64(), "{part}");
    }
    let text = succeeds(log(folder.path(), &["stats"]));
    assert!(text.contains("\nKIND ") && text.contains("\nACTOR ") && text.contains("\nHOUR "), "{text}");
    let mut lists = Vec::new();
    for path in [MAPS, WIDGETS] {
        lists.push(admin.get(path).await.expect(200).json()["items"].clone());
    }
    server.stop();

    let whole = verified(folder.path());
    let file = files.join("export.ndjson");
    let name = file.to_str().unwrap();
    succeeds(log(folder.path(), &["export", "-o", name]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), succeeds(log(folder.path(), &["export"])), "both ways alike");
    let copy = files.join("copy");
    succeeds(log(&copy, &["import", name]));
    let imported = verified(&copy);
    for field in ["digest", "events", "last", "objects", "checkpoints"] {
        assert_eq!(imported[field], whole[field], "{field}");
    }
    assert_eq!(succeeds(log(&copy, &["export"])), std::fs::read_to_string(&file).unwrap(), "there and back");

    let server = Server::start(&copy, &[]);
    let admin = HttpClient::admin(&server);
    for (path, items) in [MAPS, WIDGETS].iter().zip(lists) {
        assert_eq!(admin.get(path).await.expect(200).json()["items"], items, "{path}");
    }
    admin.post(MAPS, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}})).await.expect(201);
    server.stop();
    fails(log(&copy, &["import", name]), &["is not empty", "Name a new folder"]);
    verified(&copy);
}

#[test]
fn an_export_replaces_nothing_and_goes_on_where_it_was_cut() {
    let files = Folder::new();
    let folder = files.join("server");
    Server::start(&folder, &[]).stop();
    let good = succeeds(log(&folder, &["export"]));
    let (file, part) = (files.join("export"), files.join("export.part"));
    let name = file.to_str().unwrap();
    fails(log(&folder, &["export", "--resume"]), &["--output"]);
    fails(log(&folder, &["export", "-o", name, "--resume"]), &["no export to", "leave out --resume"]);
    fails(log(&folder, &["export", "-o", "/no/such/folder/x"]), &["No such file or directory"]);
    for bad in [&["--from", "999999"][..], &["--to", "999999"], &["--from", "9", "--to", "5"]] {
        fails(log(&folder, &[&["export", "-o", name], bad].concat()), &[bad[0]]);
    }
    assert!(!file.exists() && !part.exists());
    std::fs::write(&file, "text").unwrap();
    fails(log(&folder, &["export", "-o", name]), &["is there already", "name another file"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    std::fs::remove_file(&file).unwrap();

    std::fs::write(&part, &good[..good.len() / 2]).unwrap();
    fails(log(&folder, &["export", "-o", name]), &["export.part was left", "--resume", "remove it"]);
    let other = files.join("other");
    Server::start(&other, &[]).stop();
    fails(log(&other, &["export", "-o", name, "--resume"]), &["begun with the log", "go on with the other"]);
    assert_eq!(std::fs::read_to_string(&part).unwrap(), good[..good.len() / 2]);
    let held = std::fs::File::open(&part).unwrap();
    held.lock().unwrap();
    fails(log(&folder, &["export", "-o", name, "--resume"]), &["being written by another export"]);
    drop(held);
    succeeds(log(&folder, &["export", "-o", name, "--resume"]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), good);
    assert!(!part.exists());
}

#[test]
fn bad_exports_are_refused_by_line() {
    let files = Folder::new();
    let folder = files.join("server");
    Server::start(&folder, &[]).stop();
    let good = succeeds(log(&folder, &["export"]));
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let events = lines.len() - 2;
    let changed = |nth: usize, from: &str, to: &str| {
        let mut lines: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        assert!(lines[nth].contains(from), "{}", lines[nth]);
        lines[nth] = lines[nth].replacen(from, to, 1);
        lines.concat()
    };
    let import = |text: &str, target: &Path, more: &[&str]| {
        let file = files.join("export");
        std::fs::write(&file, text).expect("write an export");
        log(target, &[&["import", file.to_str().unwrap()][..], more].concat())
    };

    // If the first line of an export is invalid, the import writes nothing.
    let ranged = succeeds(log(&folder, &["export", "--from", "5", "--to", "7"]));
    assert_eq!(ranged.lines().count(), 5);
    let untouched = files.join("untouched");
    for (text, parts) in [
        ("", vec!["is empty"]),
        ("hello\n", vec!["line 1 is not a header"]),
        ("{\"format\":\"other\",\"version\":1}\n", vec!["line 1 is not a header"]),
        (changed(0, "\"version\":1", "\"version\":2").as_str(), vec!["line 1", "version 2", "newer release"]),
        (ranged.as_str(), vec!["begins with event 5", "without --from"]),
        ("{\"format\":", vec!["line 1 has no line feed at its end"]),
    ] {
        fails(import(text, &untouched, &[]), &parts);
        assert!(!untouched.exists(), "{parts:?}");
    }
    fails(import(&good, &untouched, &["--resume"]), &["no import into", "Leave out --resume"]);
    fails(log(&folder, &["export", "--to", "999999"]), &["the log ends with event"]);
    fails(log(&untouched, &["verify"]), &["holds no Holdfast log"]);

    let cut: String = lines[..events / 2].concat();
    let half_line = &good[..cut.len() + 20];
    let order = [&lines[..3], &lines[4..]].concat().concat();
    let namespace = lines.iter().position(|line| line.contains("\"resource\":\"namespaces\"")).expect("a namespace");
    let unknown = changed(namespace, "\"resource\":\"", "\"resource\":\"un");
    for (nth, (text, parts)) in [
        (cut.as_str(), vec![format!("ends after line {}", events / 2), "without its footer".into()]),
        (half_line, vec![format!("line {} has no line feed at its end", events / 2 + 1)]),
        (order.as_str(), vec!["line 4: event 4 comes after event 2".into()]),
        (changed(5, "\"actor\":", "\"author\":").as_str(), vec!["line 6 is damaged".into()]),
        (changed(5, "\"metadata\":{", "\"metadata\":[").as_str(), vec!["line 6 is damaged".into(), "JSON".into()]),
        (changed(5, "\"timeMs\":1", "\"timeMs\":2").as_str(), vec!["the footer is of other lines".into()]),
        (unknown.as_str(), vec![format!("line {}:", namespace + 1), "does not know".into()]),
        (format!("{good}\n").as_str(), vec!["more behind the footer".into()]),
    ]
    .into_iter()
    .enumerate()
    {
        let target = files.join(&format!("target-{nth}"));
        let parts: Vec<&str> = parts.iter().map(String::as_str).chain(["--resume", "is not finished"]).collect();
        fails(import(text, &target, &[]), &parts);
        // An unfinished import is not taken for a log.
        let Refused { stderr, .. } = Server::try_start(&target, &[]).err().expect("a refusal");
        assert!(stderr.contains("is not finished") && stderr.contains("holdfast log import --resume"), "{stderr}");
        for command in ["verify", "export", "stats", "tail", "repair"] {
            fails(log(&target, &[command]), &["is not finished"]);
        }
        fails(import(&good, &target, &[]), &["is not finished", "--resume"]);
    }

    // An export with two swapped lines, and an export with the footer of another export, are refused.
    let mut swapped = lines.clone();
    swapped.swap(7, 8);
    fails(import(&swapped.concat(), &files.join("swapped"), &[]), &["line 8: event 8 comes after event 6"]);
    let digits = lines[events + 1].replacen("sha256:", "sha256:0", 1);
    let other_digest = [&lines[..=events], &[digits.as_str()]].concat().concat();
    fails(import(&other_digest, &files.join("digest"), &[]), &["the footer is of other lines"]);

    // An unfinished import cannot be continued with another cluster's export.
    let other = files.join("other");
    Server::start(&other, &[]).stop();
    let target = files.join("target-0");
    let foreign = succeeds(log(&other, &["export"]));
    fails(import(&foreign, &target, &["--resume"]), &["begun with an export of the log", "continue with the other"]);
    // An unfinished import can be continued with the whole export.
    succeeds(import(&good, &target, &["--resume"]));
    assert_eq!(verified(&target)["digest"], verified(&folder)["digest"]);
    Server::start(&target, &[]).stop();
}
