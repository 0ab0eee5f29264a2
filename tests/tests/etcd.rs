//! Servers on a real etcd: their options, their reports about etcd, and the values that they store in etcd.

use holdfast_tests::authority::Authority;
use holdfast_tests::etcd::{Cluster, TlsFiles, has};
use holdfast_tests::server::{fails, holdfast};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": "b"}})).expect("a map")
}

async fn create(server: &Server, name: &str) {
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    api.create(&PostParams::default(), &map(name)).await.expect("created");
}

async fn names(server: &Server) -> Vec<String> {
    let api: Api<ConfigMap> = Api::default_namespaced(server.client().await);
    let found = api.list(&ListParams::default()).await.expect("a list").items;
    let names = found.into_iter().filter_map(|map| map.metadata.name);
    names.filter(|name| name.starts_with("own-")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_share_a_prefix_and_say_how_etcd_is() {
    let mut etcd = Cluster::single();
    let folders = [Folder::new(), Folder::new()];
    let options = |address: &str| {
        [
            format!("--etcd-servers={}", etcd.urls()),
            "--etcd-prefix=clusters/one/".to_owned(),
            format!("--advertise-address={address}"),
            "--etcd-db-metric-poll-interval=100ms".to_owned(),
            "--etcd-compaction-interval=300ms".to_owned(),
            "--etcd-healthcheck-timeout=500ms".to_owned(),
            "--storage-media-type=application/json".to_owned(),
        ]
    };
    let start = |nth: usize, address: &str| {
        let options = options(address);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Server::start(folders[nth].path(), &options)
    };
    let servers = [start(0, "10.1.1.1"), start(1, "10.1.1.2")];
    create(&servers[0], "own-a").await;
    assert_eq!(names(&servers[1]).await, ["own-a"], "the other server has it at once");
    let stored = etcd.ctl(&["get", "/clusters/one/configmaps/default/own-a", "--print-value-only"]);
    assert!(stored.starts_with(r#"{"kind":"ConfigMap""#) || stored.starts_with(r#"{"apiVersion":"v1""#), "{stored}");
    assert_eq!(etcd.ctl(&["get", "/registry", "--prefix", "--keys-only"]).trim(), "");

    // The Service `kubernetes` has both servers as endpoints, and loses the endpoint of a server that stops.
    let addresses = async |server: &Server| {
        let endpoints = HttpClient::admin(server).get("/api/v1/namespaces/default/endpoints/kubernetes").await.json();
        let mut found: Vec<String> = endpoints["subsets"][0]["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|address| address["ip"].as_str().map(str::to_owned))
            .collect();
        found.sort();
        found
    };
    let become_ = async |server: &Server, expected: &[&str]| {
        eventually(PATIENCE, async || match addresses(server).await {
            found if found == expected => Ok(()),
            found => Err(format!("{found:?}")),
        })
        .await
    };
    become_(&servers[0], &["10.1.1.1", "10.1.1.2"]).await;
    let [server, other] = servers;
    other.stop();
    become_(&server, &["10.1.1.1"]).await;

    // Metrics about etcd have the same names as in Kubernetes.
    let wire = HttpClient::admin(&server);
    let metrics = async || wire.get("/metrics").await.expect(200).text();
    let line = "etcd_requests_total{operation=\"create\",group=\"\",resource=\"configmaps\"} ";
    eventually(PATIENCE, async || {
        let text = metrics().await;
        let has = |start: &str| text.lines().any(|line| line.starts_with(start) && !line.ends_with(" 0"));
        let all = [
            line,
            "apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} ",
            "etcd_request_duration_seconds_count{",
        ];
        if all.iter().all(|start| has(start)) { Ok(()) } else { Err(text) }
    })
    .await;
    // Old revisions are compacted: the value of kube-apiserver's key is the last compacted revision.
    eventually(PATIENCE, async || match etcd.ctl(&["get", "compact_rev_key", "--print-value-only"]).trim() {
        "" | "0" => Err("nothing is compacted"),
        _ => Ok(()),
    })
    .await;

    // Without etcd, `/readyz` fails and `/livez` does not. With etcd, the server is ready again.
    let ready = async |path: &str| wire.get(path).await;
    assert_eq!(ready("/readyz").await.text(), "ok");
    etcd.member(0).pause();
    eventually(PATIENCE, async || match ready("/readyz/etcd").await {
        answer if answer.code == 500 => Ok(()),
        _ => Err("etcd is well"),
    })
    .await;
    assert!(ready("/readyz").await.text().contains("[-]etcd failed: error getting data from etcd: "));
    assert_eq!(ready("/livez").await.text(), "ok");
    etcd.member(0).resume();
    eventually(PATIENCE, async || match ready("/readyz").await.text() {
        text if text == "ok" => Ok(()),
        text => Err(text),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_go_with_leases() {
    let (etcd, folder) = (Cluster::single(), Folder::new());
    let servers = format!("--etcd-servers={}", etcd.urls());
    let server = Server::start(folder.path(), &[&servers, "--event-ttl=3s", "--lease-reuse-duration-seconds=0"]);
    let api: Api<Event> = Api::default_namespaced(server.client().await);
    let news = json!({"metadata": {"name": "own-news"}, "involvedObject": {"namespace": "default"}, "reason": "x"});
    api.create(&PostParams::default(), &serde_json::from_value(news).expect("news")).await.expect("created");
    let stored = etcd.ctl(&["get", "/registry/events/default/own-news", "-w", "json"]);
    assert!(stored.contains("\"lease\":"), "{stored}");
    eventually(PATIENCE, async || match api.get_opt("own-news").await.expect("an answer") {
        None => Ok(()),
        Some(_) => Err("it is still there"),
    })
    .await;
    assert_eq!(etcd.ctl(&["get", "/registry/events/", "--prefix", "--keys-only"]).trim(), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_known_by_their_certificates_and_want_ours() {
    let (authority, folder) = (Authority::new("etcd-ca"), Folder::new());
    let files = |name: &str| folder.join(name);
    std::fs::write(files("ca.crt"), authority.pem()).expect("a file");
    let (certificate, key) = authority.member(&["127.0.0.1", "localhost"]).write(folder.path(), "etcd");
    let (own, own_key) = authority.client("kube-apiserver-etcd-client", &[]).write(folder.path(), "client");
    let etcd = Cluster::secured(TlsFiles { authority: files("ca.crt"), certificate, key });
    let shown = |path: &std::path::Path| path.display().to_string();
    let options = [
        format!("--etcd-servers={}", etcd.urls()),
        format!("--etcd-cafile={}", shown(&files("ca.crt"))),
        format!("--etcd-certfile={}", shown(&own)),
        format!("--etcd-keyfile={}", shown(&own_key)),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Server::start(&folder.join("data"), &options);
    create(&server, "own-secured").await;
    assert!(etcd.ctl(&["get", "/registry/configmaps/default/own-secured", "--keys-only"]).contains("own-secured"));
    server.stop();
    // Two sets of options fail: one with another authority, and one without a client certificate.
    std::fs::write(files("other.crt"), Authority::new("other").pem()).expect("a file");
    let other = format!("--etcd-cafile={}", shown(&files("other.crt")));
    for options in [vec![options[0], &other, options[2], options[3]], vec![options[0], options[1]]] {
        let data = folder.join("refused");
        let refused = Server::try_start(&data, &options).err().expect("a refusal");
        assert!(refused.stderr.contains("no member answers: https://127.0.0.1:"), "{}", refused.stderr);
        assert!(!data.join("log").exists(), "nothing is left behind");
    }
}

#[test]
fn what_is_wrong_is_told_with_its_option() {
    let folder = Folder::new();
    let data = folder.path().display().to_string();
    let refused = |options: &[&str], parts: &[&str]| {
        let all = ["apiserver", "--secure-port=0", "--data-dir", &data].into_iter().chain(options.iter().copied());
        fails(holdfast(all), parts);
    };
    refused(
        &["--etcd-servers=ftp://127.0.0.1:1"],
        &["--etcd-servers", "ftp://127.0.0.1:1", "is not an address of etcd"],
    );
    let nobody = "--etcd-servers=http://127.0.0.1:1,http://127.0.0.1:2";
    refused(&[nobody], &[nobody, "no member answers: http://127.0.0.1:1: ", "http://127.0.0.1:2: "]);
    refused(&["--etcd-prefix=/a"], &["--etcd-prefix is about etcd, and --etcd-servers names none"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_with_other_ranges_or_another_prefix_are_refused() {
    let (etcd, folders) = (Cluster::single(), [Folder::new(), Folder::new()]);
    let servers = format!("--etcd-servers={}", etcd.urls());
    let first = Server::start(folders[0].path(), &[&servers, "--advertise-address=10.1.1.1"]);
    let refusal = |nth: usize, options: &[&str]| {
        let options: Vec<&str> = [servers.as_str()].into_iter().chain(options.iter().copied()).collect();
        Server::try_start(folders[nth].path(), &options).err().expect("a refusal").stderr
    };
    for (option, own, others) in [
        ("--service-cluster-ip-range", "10.7.0.0/16", "10.0.0.0/24"),
        ("--service-node-port-range", "31000-31999", "30000-32767"),
    ] {
        let told = refusal(1, &[&format!("{option}={own}")]);
        let expected = format!("{option}={own}, and the server at 10.1.1.1 has {others}");
        assert!(told.contains(&expected), "{expected}: {told}");
    }
    let second = Server::start(folders[1].path(), &[&servers, "--advertise-address=10.1.1.2"]);
    second.stop();
    first.stop();
    let told = refusal(0, &["--etcd-prefix=/other"]);
    assert!(
        told.contains("the data folder has events of the prefix /registry/, and --etcd-prefix is /other/"),
        "{told}"
    );
    // Servers that have stopped do not prevent a start with other options.
    Server::start(folders[1].path(), &[&servers, "--service-node-port-range=31000-31999"]).stop();
}

/// Debian's release has known bugs: it works, with warnings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_etcd_works_and_is_warned_of() {
    if !has("3.4") {
        return;
    }
    let (etcd, folders) = (Cluster::start("3.4", 1, &[]), [Folder::new(), Folder::new()]);
    let options = format!("--etcd-servers={}", etcd.urls());
    let servers = folders.each_ref().map(|folder| Server::start(folder.path(), &[&options]));
    for nth in 0..5 {
        create(&servers[nth % 2], &format!("own-{nth}")).await;
        assert_eq!(names(&servers[(nth + 1) % 2]).await.len(), nth + 1);
    }
    let warnings = servers[0].stderr();
    assert!(warnings.contains("is etcd 3.4.23: a watch that starves"), "{warnings}");
}
