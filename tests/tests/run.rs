//! `holdfast run`, a cluster for one command: the command's environment, the report of its exit, and the removal of all
//! files.

use holdfast_core::event::Offset;
use holdfast_engine::LogRead;
use holdfast_storage_rocks::RocksLog;
use holdfast_tests::server::binary;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `holdfast run`, with its own folder for temporary files.
fn command(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("run").args(arguments).env("TMPDIR", temporary).env_remove("KUBECONFIG");
    command
}

fn run(temporary: &Path, arguments: &[&str]) -> Output {
    command(temporary, arguments).stdin(Stdio::null()).output().expect("run holdfast")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn is_empty(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn the_command_has_a_cluster_and_its_end_is_the_end() {
    let folder = Folder::new();
    let script = "echo $USE_EXISTING_CLUSTER $HOLDFAST_URL; test -s $KUBECONFIG && test -d $HOLDFAST_DATA_DIR/log; \
                  cat; echo complaint >&2; exit 7";
    let mut child = command(folder.path(), &["--", "sh", "-c", script]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = text(&output.stdout);
    assert!(stdout.starts_with("true https://127.0.0.1:") && stdout.ends_with("\ntyped\n"), "{stdout}");
    assert_eq!(text(&output.stderr), "complaint\n", "nothing but what the command wrote");
    assert_eq!(output.status.code(), Some(7));
    is_empty(folder.path());
}

#[test]
fn ends_are_told_as_shells_tell_them() {
    let folder = Folder::new();
    let plain = folder.join("plain");
    std::fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    let files = Folder::new();
    for (arguments, code, complaint) in [
        (&["--", "true"][..], 0, ""),
        (&["--", "sh", "-c", "kill -KILL $$"], 137, ""),
        (&["--", "sh", "-c", "kill -TERM $$"], 143, ""),
        (&["--", "no-such-command"], 127, "no-such-command: there is no such command"),
        (&["--", plain], 126, "cannot be run"),
        (&["--from", "/nowhere", "--", "true"], 125, "/nowhere holds no Holdfast log"),
        (&["--data-dir", files.path().parent().unwrap().to_str().unwrap(), "--", "true"], 125, "is not empty"),
        (&["--secure-port", "1", "--bind-address", "192.0.2.1", "--", "true"], 125, "listen on 192.0.2.1:1"),
        (&["--at", "5", "--", "true"], 2, "--from"),
        (&[], 2, "CMD"),
        (&["true"], 2, "true"),
        (&["--ssh-user", "x", "--", "true"], 1, "--ssh-user was removed"),
    ] {
        let output = run(files.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(complaint), "{arguments:?}: {output:?}");
        assert_eq!(complaint.is_empty(), output.stderr.is_empty(), "{arguments:?}: {output:?}");
        is_empty(files.path());
    }
}

#[test]
fn signals_reach_the_command() {
    let folder = Folder::new();
    for (signal, number, code) in [("TERM", 15, 33), ("INT", 2, 44), ("HUP", 1, 55), ("QUIT", 3, 66)] {
        if is_ignored(number) {
            // The signal is ignored, for example under nohup, so the command ignores the signal, too.
            continue;
        }
        let script = "trap 'exit 33' TERM; trap 'exit 44' INT; trap 'exit 55' HUP; trap 'exit 66' QUIT; echo ready; \
                      while :; do sleep 0.05; done";
        let mut child = command(folder.path(), &["--", "bash", "-c", script]);
        // The child gets a process group of its own, so that signals from the tests' terminal do not reach it.
        let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        is_empty(folder.path());
    }
}

/// Whether this process, and so its children, ignores the signal.
fn is_ignored(signal: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("what the kernel tells of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("ignored signals");
    u64::from_str_radix(line.trim(), 16).expect("a mask") >> (signal - 1) & 1 == 1
}

#[test]
fn what_is_kept_can_be_started() {
    let folder = Folder::new();
    let output = run(folder.path(), &["--keep", "--", "sh", "-c", "echo $HOLDFAST_DATA_DIR; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    let kept = text(&output.stdout).trim().to_owned();
    let told = text(&output.stderr);
    assert!(told.contains(&format!("holdfast up --data-dir {kept}")), "{told}");
    let log = RocksLog::open(Path::new(&kept)).expect("its log");
    assert!(log.last().unwrap() > Offset(50), "the objects that every cluster has");
    drop(log);
    Server::start(Path::new(&kept), &[]).stop();

    let named = folder.join("named");
    let name = named.to_str().unwrap();
    assert!(run(folder.path(), &["--data-dir", name, "--", "test", "-d", name]).status.success());
    assert!(!named.exists(), "a folder that was named goes, too");
    let file = folder.join("log-file");
    let logged = ["--log-file", file.to_str().unwrap(), "--", "true"];
    let output = run(folder.path(), &logged);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(file.exists());
}

#[tokio::test]
async fn a_command_begins_where_another_cluster_was() {
    let folders = Folder::new();
    let (source, temporary) = (folders.join("source"), folders.join("temporary"));
    std::fs::create_dir(&temporary).unwrap();
    let server = Server::start(&source, &[]);
    let admin = HttpClient::admin(&server);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = admin.post(maps, &map("first")).await.expect(201).json();
    let version = made["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    admin.post(maps, &map("second")).await.expect(201);
    // The command reads the objects from the log of its own cluster, without sending a request.
    let names =
        "log() { \"$0\" log tail --data-dir $HOLDFAST_DATA_DIR; }; log | grep -o 'created configmaps/default/.[^ ]*'";
    let program = binary().to_str().unwrap();
    let from = source.to_str().unwrap();
    let now = run(&temporary, &["--from", from, "--", "bash", "-c", names, program]);
    assert!(text(&now.stdout).contains("default/first") && text(&now.stdout).contains("default/second"), "{now:?}");
    let past = run(&temporary, &["--from", from, "--at", &version, "--", "bash", "-c", names, program]);
    assert!(text(&past.stdout).contains("default/first") && !text(&past.stdout).contains("second"), "{past:?}");
    is_empty(&temporary);
    let early = run(&temporary, &["--from", from, "--at", "9999", "--", "true"]);
    assert_eq!(early.status.code(), Some(125));
    assert!(text(&early.stderr).contains("version 9999 is in the future"), "{early:?}");
    is_empty(&temporary);
    admin.get(&format!("{maps}/second")).await.expect(200);
    server.stop();
}

#[test]
fn many_run_side_by_side() {
    let folder = Folder::new();
    // Each command waits until all six commands are running.
    let barrier = "touch $0/$1; while [ $(ls $0 | grep -c '^n') -lt 6 ]; do sleep 0.02; done; echo $HOLDFAST_URL";
    let meeting = folder.join("meeting");
    let temporary = folder.join("temporary");
    std::fs::create_dir(&meeting).unwrap();
    std::fs::create_dir(&temporary).unwrap();
    let children: Vec<_> = (0..6)
        .map(|nth| {
            let name = format!("n{nth}");
            let mut child = command(&temporary, &["--", "sh", "-c", barrier, meeting.to_str().unwrap(), &name]);
            child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut urls = Vec::new();
    for mut child in children {
        let mut url = String::new();
        child.stdout.take().unwrap().read_to_string(&mut url).unwrap();
        assert!(child.wait().unwrap().success());
        urls.push(url);
    }
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 6, "{urls:?}");
    is_empty(&temporary);
}

/// Like an operator's tests: finds the present cluster with kube-rs.
#[tokio::test]
#[ignore = "runs under `holdfast run`, by the test below"]
async fn under_run() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{Api, DeleteParams, ListParams, PostParams};
    let client = kube::Client::try_default().await.expect("the cluster that KUBECONFIG names");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}, "data": {"x": "y"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    let found = maps.list(&ListParams::default().fields("metadata.name=a")).await.expect("a list");
    assert_eq!(found.items[0].data, map.data);
    maps.delete("a", &DeleteParams::default()).await.expect("deleted");
}

#[test]
fn tests_with_kube_run_in_it() {
    let folder = Folder::new();
    let own = std::env::current_exe().expect("the test's own path");
    let output = run(folder.path(), &["--", own.to_str().unwrap(), "--exact", "under_run", "--ignored"]);
    let told = text(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
    is_empty(folder.path());
}
