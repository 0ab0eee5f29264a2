//! Suites of Go operators: the steps of controller-runtime's envtest with the programs in `KUBEBUILDER_ASSETS`, and the
//! later steps of suites.

use holdfast_tests::Folder;
use holdfast_tests::envtest::{
    ControlPlane, Program, SuiteSettings, arguments, assets, free_port, is_listening, write_certificates,
};
use holdfast_tests::eventually;
use holdfast_tests::server::{binary, fails, succeeds};
use holdfast_tests::wire::HttpClient;
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

const NAMESPACES: &str = "/api/v1/namespaces";
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const PATIENCE: Duration = Duration::from_secs(30);

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

async fn create_namespace(admin: &HttpClient, name: &str) {
    admin.post(NAMESPACES, &json!({"metadata": {"name": name}})).await.expect(201);
}

async fn delete_namespace(admin: &HttpClient, name: &str) {
    admin.send(Method::DELETE, &format!("{NAMESPACES}/{name}"), &[], "").await.expect(200);
}

#[tokio::test]
async fn a_suite_lives_as_with_kubernetes() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let assets = assets(cache.path());
    write_certificates(folder.path());
    let before = files(folder.path());
    let pair = ["apiserver.crt", "apiserver.key"].map(|name| std::fs::read(folder.join(name)).expect("a file"));
    let options = ["--feature-gates=DryRun=true", "--runtime-config=api/all=true", "--v=2", "--vmodule=watch=3"];
    let wanted = SuiteSettings { options: &options, ..SuiteSettings::default() };
    let plane = ControlPlane::start(&assets, folder.path(), &wanted).await;
    let (port, etcd_port) = (plane.port, plane.etcd_port);

    // The server allows every request of the administrator, and the requests that its roles allow of a user who is
    // added while the server runs.
    let admin = plane.admin();
    let maps = format!("{NAMESPACES}/default/configmaps");
    admin.post(&maps, &json!({"metadata": {"name": "a"}})).await.expect(201);
    let jane = plane.user("jane", &["devs"]);
    jane.get(&maps).await.refused(403, "Forbidden");
    let binding = json!({
        "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    admin.post(bindings, &binding).await.expect(201);
    jane.get(&maps).await.expect(200);
    plane.wire.get(&maps).await.refused(403, "Forbidden");

    // Service account tokens are signed with the key that envtest writes, and verified with the key's certificate.
    let accounts = format!("{NAMESPACES}/default/serviceaccounts");
    admin.post(&accounts, &json!({"metadata": {"name": "robot"}})).await.expect(201);
    let token = admin.post(&format!("{accounts}/robot/token"), &json!({"spec": {}})).await.expect(201).json();
    let robot = plane.wire.clone().with_token(token["status"]["token"].as_str().expect("a token"));
    let refused = robot.get(&maps).await.refused(403, "Forbidden");
    assert!(refused["message"].as_str().is_some_and(|text| text.contains("system:serviceaccount:default:robot")));

    // Past versions can be read from a log in memory, as from a log on a disk.
    let version = admin.get(&maps).await.json()["metadata"]["resourceVersion"].as_str().expect("one").to_owned();
    admin.send(Method::DELETE, &format!("{maps}/a"), &[], "").await.expect(200);
    let past = format!("{maps}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(admin.get(&past).await.json()["items"][0]["metadata"]["name"], "a");

    plane.stop().await;
    assert_eq!(files(folder.path()), before, "nothing is left behind");
    assert!(!is_listening(port) && !is_listening(etcd_port));
    let after = ["apiserver.crt", "apiserver.key"].map(|name| std::fs::read(folder.join(name)).expect("a file"));
    assert!(pair == after, "the pair is served as it is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_suites_run_side_by_side() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let assets = assets(cache.path());
    let mut suites = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (assets, cert_dir) = (assets.clone(), folder.join(&number.to_string()));
        suites.spawn(async move {
            let plane = ControlPlane::start(&assets, &cert_dir, &SuiteSettings::default()).await;
            create_namespace(&plane.admin(), &format!("of-{number}")).await;
            plane
        });
    }
    let planes = suites.join_all().await;
    for plane in planes {
        let own = format!("of-{}", plane.cert_dir.file_name().and_then(|name| name.to_str()).expect("a number"));
        let found = plane.admin().get(NAMESPACES).await.json();
        let names = found["items"].as_array().expect("namespaces").iter().map(|item| item["metadata"]["name"].clone());
        assert_eq!(
            names.filter(|name| name.as_str().is_some_and(|name| name.starts_with("of-"))).collect::<Vec<_>>(),
            [own]
        );
        plane.stop().await;
    }
}

/// etcd's options decide whether objects outlive the control plane.
#[tokio::test]
async fn a_suite_starts_again_in_its_folder() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let assets = assets(cache.path());
    for (fsync, expected) in [(false, 404), (true, 200)] {
        let cert_dir = folder.join(&fsync.to_string());
        let wanted = SuiteSettings { fsync, ..SuiteSettings::default() };
        let plane = ControlPlane::start(&assets, &cert_dir, &wanted).await;
        create_namespace(&plane.admin(), "mine").await;
        plane.stop().await;
        let plane = ControlPlane::start(&assets, &cert_dir, &wanted).await;
        plane.admin().get(&format!("{NAMESPACES}/mine")).await.expect(expected);
        plane.stop().await;
    }
}

#[tokio::test]
async fn who_finalizes_a_namespace_finds_it() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let plane = ControlPlane::start(&assets(cache.path()), folder.path(), &SuiteSettings::default()).await;
    let admin = plane.admin();
    let path = format!("{NAMESPACES}/shop");

    // Finalizes a namespace as suites do: gets it, some time after its deletion, removes the finalizer and puts it.
    create_namespace(&admin, "shop").await;
    delete_namespace(&admin, "shop").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut namespace = admin.get(&path).await.expect(200).json();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    namespace["spec"]["finalizers"] = json!([]);
    admin.send(Method::PUT, &format!("{path}/finalize"), JSON, namespace.to_string()).await.expect(200);
    admin.get(&path).await.refused(404, "NotFound");

    // Finalizes a namespace by its name alone, without reading it.
    create_namespace(&admin, "shop").await;
    delete_namespace(&admin, "shop").await;
    let bare = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}, "spec": {}});
    admin.send(Method::PUT, &format!("{path}/finalize"), JSON, bare.to_string()).await.expect(200);
    admin.get(&path).await.refused(404, "NotFound");

    // A namespace that the suite does not finalize is deleted with its content.
    create_namespace(&admin, "shop").await;
    admin.post(&format!("{path}/configmaps"), &json!({"metadata": {"name": "a"}})).await.expect(201);
    delete_namespace(&admin, "shop").await;
    admin.get(&format!("{path}/configmaps/a")).await.expect(200);
    let gone = || async {
        match admin.get(&path).await.code {
            404 => Ok(()),
            code => Err(code),
        }
    };
    eventually(PATIENCE, gone).await;
    admin.get(&format!("{path}/configmaps/a")).await.expect(404);
    plane.stop().await;
}

/// A deleted namespace is left to the suite, unless a client such as `kubectl delete` watches for its end.
#[tokio::test]
async fn who_waits_for_a_namespace_does_not_wait_long() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let options = ["--namespace-grace-period=1h"];
    let wanted = SuiteSettings { options: &options, ..SuiteSettings::default() };
    let plane = ControlPlane::start(&assets(cache.path()), folder.path(), &wanted).await;
    let admin = plane.admin();
    for name in ["left", "awaited"] {
        create_namespace(&admin, name).await;
        delete_namespace(&admin, name).await;
    }
    let watch = format!("{NAMESPACES}?watch=true&fieldSelector=metadata.name%3Dawaited&resourceVersion=0");
    let mut events = admin.open(Method::GET, &watch, &[], "".into()).await.expect("a watch").into_body();
    let ended = async {
        let mut read = String::new();
        while !read.contains("\"type\":\"DELETED\"") {
            let frame = events.frame().await.expect("more events").expect("a frame");
            read += &String::from_utf8_lossy(frame.data_ref().expect("data"));
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("it ends");
    admin.get(&format!("{NAMESPACES}/awaited")).await.refused(404, "NotFound");
    let left: Value = admin.get(&format!("{NAMESPACES}/left")).await.expect(200).json();
    assert_eq!(left["status"]["phase"], "Terminating");
    plane.stop().await;
}

#[test]
fn a_folder_for_assets_is_made_or_refused() {
    let folder = Folder::new();
    let envtest = |folder: &Path| -> Output {
        Command::new(binary()).arg("envtest").arg("--assets-dir").arg(folder).output().expect("run holdfast")
    };
    // The command runs twice. The second run replaces a link that leads elsewhere.
    let made = folder.join("made");
    for _ in 0..2 {
        assert_eq!(succeeds(envtest(&made)).trim_end(), made.to_str().expect("UTF-8"));
        let links = files(&made);
        assert!(links.contains("etcd") && links.contains("kube-apiserver"), "{links:?}");
        std::fs::remove_file(made.join("etcd")).expect("removed");
        std::os::unix::fs::symlink("/nowhere", made.join("etcd")).expect("a link");
    }
    // A file `kube-apiserver` that is no link, such as Kubernetes' own program, is not overwritten.
    let theirs = folder.join("theirs");
    std::fs::create_dir(&theirs).expect("made");
    std::fs::write(theirs.join("kube-apiserver"), "theirs").expect("written");
    fails(envtest(&theirs), &["kube-apiserver is there and no link", "--assets-dir"]);
    assert_eq!(std::fs::read_to_string(theirs.join("kube-apiserver")).expect("text"), "theirs");
    // The folder cannot be made, because its parent `kube-apiserver` is a file.
    fails(envtest(&theirs.join("kube-apiserver/assets")), &["make the folder of assets", "kube-apiserver/assets"]);
    let nowhere = Command::new(binary()).arg("envtest").env_remove("HOME").env_remove("XDG_CACHE_HOME").output();
    fails(nowhere.expect("run holdfast"), &["--assets-dir"]);
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_name() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let assets = assets(cache.path());
    let plane = ControlPlane::start(&assets, folder.path(), &SuiteSettings::default()).await;
    let other = Folder::new();
    write_certificates(other.path());
    let other_etcd = free_port();
    let client_url = format!("--listen-client-urls=http://127.0.0.1:{other_etcd}");
    let etcd = Program::start(&assets.join("etcd"), &[client_url.clone(), "--unsafe-no-fsync".into()]);
    let is_there = || async { is_listening(other_etcd).then_some(()).ok_or("etcd is not there") };
    eventually(PATIENCE, is_there).await;
    let server = |cert_dir: &Path, port: u16, etcd_port: u16, options: &[&str]| {
        let arguments = arguments(cert_dir, port, etcd_port, options);
        // `timeout` ends a server that is not refused, because such a server would run for ever.
        let mut command = Command::new("timeout");
        command.arg("60").arg(assets.join("kube-apiserver")).args(arguments).output().expect("run kube-apiserver")
    };
    let (own, port) = (plane.cert_dir.clone(), free_port());
    fails(server(&own, port, other_etcd, &[]), &["is in use by another process"]);
    fails(server(other.path(), port, plane.etcd_port, &[]), &["another API server is in use with the etcd"]);
    fails(server(other.path(), plane.port, other_etcd, &[]), &["listen on", "in use"]);
    fails(server(other.path(), port, plane.port, &[]), &["--etcd-servers", "no member answers"]);
    for (option, why) in [
        ("--etcd-servers-overrides=/pods#http://127.0.0.1:1", "/pods must stay in the etcd of --etcd-servers"),
        ("--etcd-prefix=/a/../b", "it has a part"),
        ("--encryption-provider-config=/nowhere", "No such file"),
        ("--disable-admission-plugins=Nonsense", "plugin \"Nonsense\" is unknown"),
        ("--runtime-config=batch/v1=maybe", "maybe"),
        ("--feature-gates=NoSuchGate=true", "unrecognized feature gate: NoSuchGate"),
        ("--etcd-servers=https://127.0.0.1:1,http://127.0.0.1:2", "no member answers"),
        ("--etcd-servers=ftp://127.0.0.1:1", "is not an address of etcd"),
    ] {
        let name = option.split('=').next().expect("a name").trim_start_matches("--");
        fails(server(other.path(), port, other_etcd, &[option]), &[name, why]);
    }
    std::fs::remove_file(other.join("apiserver.key")).expect("removed");
    fails(server(other.path(), port, other_etcd, &[]), &["apiserver.key is missing"]);

    let run_etcd = |options: &[&str]| Command::new(assets.join("etcd")).args(options).output().expect("run etcd");
    fails(run_etcd(&[&client_url]), &["listen on", "in use"]);
    fails(run_etcd(&["--cert-file=c"]), &["--cert-file"]);
    fails(run_etcd(&["--listen-client-urls=https://127.0.0.1:1"]), &["--listen-client-urls", "only http"]);
    etcd.stop().await;
    plane.stop().await;
}

/// How many times the programs are started and stopped: `HOLDFAST_ENVTEST_STARTS`, or 5.
fn starts() -> usize {
    std::env::var("HOLDFAST_ENVTEST_STARTS").map_or(5, |text| text.parse().expect("a number of starts"))
}

#[tokio::test]
async fn starts_and_stops_leave_nothing_behind() {
    let (cache, folder) = (Folder::new(), Folder::new());
    let assets = assets(cache.path());
    let links = files(&assets);
    let cert_dir = folder.join("suite");
    let mut before = None;
    for start in 0..starts() {
        let plane = ControlPlane::start(&assets, &cert_dir, &SuiteSettings::default()).await;
        let (port, etcd_port) = (plane.port, plane.etcd_port);
        let processes = [plane.server.pid(), plane.etcd.pid()];
        plane.stop().await;
        assert!(!is_listening(port) && !is_listening(etcd_port), "start {start}");
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "start {start}: process {process}");
        }
        let expected = (files(&cert_dir), files(folder.path()), files(&assets));
        let before = before.get_or_insert_with(|| expected.clone());
        assert_eq!(*before, expected, "start {start}");
        assert_eq!(links, expected.2);
    }
}
