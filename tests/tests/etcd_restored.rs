//! A real etcd that is restored from a snapshot while servers use it: it is refused, or accepted as a new epoch.

use holdfast_tests::etcd::Cluster;
use holdfast_tests::server::{holdfast, succeeds};
use holdfast_tests::{Folder, Server, clients};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ACCEPT: &str = "--etcd-accept-restored";

fn start(etcd: &Cluster, folder: &Path, more: &[&str]) -> Server {
    try_start(etcd, folder, more).unwrap_or_else(|why| panic!("{why}"))
}

fn try_start(etcd: &Cluster, folder: &Path, more: &[&str]) -> Result<Server, String> {
    let urls = etcd.urls();
    Server::try_start(folder, &[&["--etcd-servers", &urls], more].concat()).map_err(|refused| refused.stderr)
}

fn kubectl(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(clients().join("kubectl-1.37"));
    command.arg("--kubeconfig").arg(server.kubeconfig()).args(arguments).output().expect("run kubectl")
}

fn does(server: &Server, arguments: &[&str]) -> String {
    succeeds(kubectl(server, arguments))
}

fn create(server: &Server, name: &str) {
    does(server, &["create", "configmap", name, "--from-literal=x=1"]);
}

fn change(server: &Server, name: &str, value: &str) {
    does(server, &["patch", "configmap", name, "-p", &json!({"data": {"x": value}}).to_string()]);
}

/// The names and values of the test's ConfigMaps, and the version of the list.
fn maps(server: &Server) -> (Vec<(String, String)>, u64) {
    let list: Value = serde_json::from_str(&does(server, &["get", "--raw", MAPS])).expect("JSON");
    let items = list["items"].as_array().expect("items").iter().map(|item| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&item["metadata"]["name"]), text(&item["data"]["x"]))
    });
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version").parse().expect("a number");
    (items.filter(|(name, _)| name.starts_with("c-")).collect(), version)
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The output of a watch that begins at a version and lasts one second.
fn watched(server: &Server, version: u64) -> String {
    let path = format!("{MAPS}?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let Output { stdout, stderr, .. } = kubectl(server, &["get", "--raw", &path]);
    format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr))
}

/// Restores etcd with these options of `etcdutl snapshot restore`, and checks that servers refuse it and then accept
/// it.
fn check(options: &[&str], refusal: &str) {
    let (mut etcd, folder) = (Cluster::single(), Folder::new());
    let (first, second, snapshot) = (folder.join("first"), folder.join("second"), folder.join("snapshot.db"));
    let servers = [start(&etcd, &first, &[]), start(&etcd, &second, &[])];
    for name in ["c-same", "c-changed", "c-gone", "c-both"] {
        create(&servers[0], name);
    }
    etcd.save(&snapshot);
    change(&servers[0], "c-changed", "2");
    does(&servers[1], &["delete", "configmap", "c-gone"]);
    create(&servers[1], "c-new");
    for nth in 0..30 {
        change(&servers[nth % 2], "c-both", &format!("{}", nth + 2));
    }
    let (all, before) = maps(&servers[0]);
    assert_eq!(all, pairs(&[("c-both", "31"), ("c-changed", "2"), ("c-new", "1"), ("c-same", "1")]));
    servers.into_iter().for_each(Server::stop);

    etcd.restore(&snapshot, options);
    for folder in [&first, &second] {
        let refused = try_start(&etcd, folder, &[]).err().expect("it is not the etcd that was there");
        assert!(refused.contains(refusal) && refused.contains(ACCEPT), "{refused}");
    }
    let restored = pairs(&[("c-both", "1"), ("c-changed", "1"), ("c-gone", "1"), ("c-same", "1")]);
    let server = start(&etcd, &first, &[ACCEPT]);
    let (all, now) = maps(&server);
    assert_eq!(all, restored);
    assert!(now > before, "the version went back from {before} to {now}");
    // Clients cannot resume watches at versions from before the restore.
    for version in [before - 20, before] {
        assert!(watched(&server, version).contains("too old resource version"), "{version}");
    }
    assert!(!watched(&server, now).contains("too old"), "the newest version can be watched from");
    // After the restore, objects can be updated and deleted, because the server knows their versions in etcd.
    change(&server, "c-both", "later");
    change(&server, "c-same", "2");
    does(&server, &["delete", "configmap", "c-changed"]);
    create(&server, "c-new");
    let newest = pairs(&[("c-both", "later"), ("c-gone", "1"), ("c-new", "1"), ("c-same", "2")]);
    assert_eq!(maps(&server).0, newest);
    server.stop();
    // Once a server has accepted the restored etcd, its next start needs no option.
    let server = start(&etcd, &first, &[]);
    assert_eq!(maps(&server).0, newest);

    // The second server's folder still has the events from before the restore, so this server, too, starts only with
    // the option.
    let refused = try_start(&etcd, &second, &[]).err().expect("it is in another epoch");
    assert!(refused.contains(ACCEPT), "{refused}");
    let other = start(&etcd, &second, &[ACCEPT]);
    assert_eq!(maps(&other).0, newest);
    change(&other, "c-gone", "2");
    change(&server, "c-gone", "3");
    let third = start(&etcd, &folder.join("third"), &[]);
    let all = [&server, &other, &third].map(maps);
    assert!(all.iter().all(|(maps, _)| maps.contains(&("c-gone".into(), "3".into()))), "{all:?}");
    assert!(all[0] == all[1] && all[1] == all[2], "{all:?}");
    drop((server, other, third));
    // History shows the objects that were put back, and the reason.
    for (folder, name) in [(&first, "c-changed"), (&first, "c-both"), (&first, "c-new"), (&second, "c-changed")] {
        let data = folder.to_str().expect("a path");
        let history = succeeds(holdfast(["history", "configmaps", name, "-n", "default", "--data-dir", data]));
        let put_back = history.lines().filter(|line| line.contains("restored") && line.contains("etcd"));
        assert_eq!(put_back.count(), 1, "{name}: {history}");
        succeeds(holdfast(["log", "verify", "--data-dir", data]));
    }
}

#[test]
fn a_restored_etcd_is_refused_and_can_be_accepted() {
    check(&[], "etcd was restored from a backup");
}

#[test]
fn a_restored_etcd_with_higher_revisions_is_told_by_what_it_has() {
    check(&["--bump-revision=1000000000", "--mark-compacted"], "etcd was restored from a backup");
}

#[test]
fn another_cluster_id_is_refused_and_can_be_accepted() {
    check(&["--initial-cluster-token=other"], "the etcd cluster has the id");
}

#[test]
fn an_etcd_that_is_restored_under_a_running_server_acknowledges_nothing() {
    let (mut etcd, folder) = (Cluster::single(), Folder::new());
    let (data, snapshot) = (folder.join("data"), folder.join("snapshot.db"));
    let server = start(&etcd, &data, &[]);
    create(&server, "c-a");
    etcd.save(&snapshot);
    for nth in 0..20 {
        create(&server, &format!("c-{nth}"));
    }
    etcd.restore(&snapshot, &[]);
    for nth in 0..3 {
        let name = format!("c-late-{nth}");
        let output = kubectl(&server, &["create", "configmap", &name, "--request-timeout=5s"]);
        assert!(!output.status.success(), "{name} was acknowledged in another epoch");
    }
    let refused = kubectl(&server, &["get", "configmaps", "--request-timeout=5s"]);
    assert!(!refused.status.success(), "the newest state cannot be known: {refused:?}");
    let known = does(&server, &["get", "--raw", &format!("{MAPS}?resourceVersion=0")]);
    assert!(known.contains("c-19"), "reads of the state as it was known go on");
    assert!(server.stderr().contains("restored from a backup"), "{}", server.stderr());
    server.kill();
    let server = start(&etcd, &data, &[ACCEPT]);
    let all = maps(&server).0;
    assert!(all.contains(&("c-a".into(), "1".into())), "{all:?}");
    assert!(!all.iter().any(|(name, _)| name == "c-19"), "{all:?}");
}

/// The server that accepts a restored etcd may have other overrides than before, and only the etcd that was restored
/// begins an epoch.
#[test]
fn a_restored_etcd_is_accepted_together_with_other_overrides() {
    let (mut main, mut events, folder) = (Cluster::single(), Cluster::single(), Folder::new());
    let (data, snapshot) = (folder.join("data"), folder.join("snapshot.db"));
    let overrides = format!("--etcd-servers-overrides=/events#{}", events.urls());
    let event = |server: &Server, name: &str| {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "Tested"});
        let file = folder.join(&format!("{name}.json"));
        std::fs::write(&file, event.to_string()).expect("written");
        does(server, &["create", "-f", file.to_str().expect("a path")]);
    };
    let seen = |server: &Server| -> Vec<String> {
        let list: Value = serde_json::from_str(&does(server, &["get", "events", "-o", "json"])).expect("JSON");
        let names = list["items"].as_array().expect("items").iter();
        let names = names.map(|event| event["metadata"]["name"].as_str().expect("a name").to_owned());
        names.filter(|name| name.starts_with("e-")).collect()
    };
    let server = start(&main, &data, &[]);
    create(&server, "c-a");
    event(&server, "e-main");
    main.save(&snapshot);
    change(&server, "c-a", "2");
    for name in ["c-b", "c-c"] {
        create(&server, name);
    }
    let before = maps(&server).1;
    server.stop();
    main.restore(&snapshot, &[]);
    let refused = try_start(&main, &data, &[&overrides]).err().expect("it is restored");
    assert!(refused.contains(ACCEPT) && refused.contains("--etcd-servers="), "{refused}");
    let server = start(&main, &data, &[&overrides, ACCEPT]);
    let (all, now) = maps(&server);
    assert_eq!(all, pairs(&[("c-a", "1")]));
    assert!(now > before, "the version went back from {before} to {now}");
    assert_eq!(seen(&server), Vec::<String>::new());
    event(&server, "e-a");
    change(&server, "c-a", "3");
    server.stop();

    // Here the etcd of Events is restored, and not the main etcd.
    events.save(&snapshot);
    let server = start(&main, &data, &[&overrides]);
    event(&server, "e-b");
    event(&server, "e-c");
    server.stop();
    events.restore(&snapshot, &[]);
    let refused = try_start(&main, &data, &[&overrides]).err().expect("it is restored");
    assert!(refused.contains(ACCEPT) && refused.contains(&overrides), "{refused}");
    let server = start(&main, &data, &[&overrides, ACCEPT]);
    assert_eq!((seen(&server), maps(&server).0), (vec!["e-a".to_owned()], pairs(&[("c-a", "3")])));
    event(&server, "e-b");
    server.stop();

    // Without the override, the server shows the Events of the restored main etcd again.
    let server = start(&main, &data, &[]);
    assert_eq!((seen(&server), maps(&server).0), (vec!["e-main".to_owned()], pairs(&[("c-a", "3")])));
    change(&server, "c-a", "4");
}
