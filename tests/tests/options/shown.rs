//! Options about the pages and metrics that the server shows.

use super::{MAPS, start, text_of};
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn the_server_tells_of_itself() {
    let folder = Folder::new();
    let socket = folder.join("debug.sock");
    let pages = "--feature-gates=ComponentFlagz=true,ComponentStatusz=true";
    let options = ["--debug-socket-path", text_of(&socket), "--disable-http2-serving", "--contention-profiling", pages];
    let server = Server::start(&folder.join("data"), &options);
    let admin = HttpClient { http2: false, ..HttpClient::admin(&server) };
    assert!(admin.get("/flagz").await.expect(200).text().contains("\ndisable-http2-serving=true\n"));
    let flags = admin.get_as("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz").await.expect(200).json();
    assert_eq!(flags["flags"]["secure-port"], "");
    assert!(admin.get("/statusz").await.expect(200).text().starts_with("\nkube-apiserver statusz\n"));
    let refused = admin.get("/debug/pprof/heap").await.expect(501);
    assert!(refused.text().contains("no Go runtime"), "{}", refused.text());
    let set = admin.send(Method::PUT, "/debug/flags/v", &[], "4").await.expect(200);
    assert!(set.text().contains("4"), "{}", set.text());
    HttpClient { http2: false, ..HttpClient::anonymous(&server) }.get("/flagz").await.expect(403);
    let slis = admin.get("/metrics/slis").await.expect(200).text();
    assert!(slis.contains("kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 1\n"), "{slis}");
    let connection = HttpClient { http2: true, ..HttpClient::admin(&server) }.connect().await;
    let spoken = connection.ok().and_then(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
    assert_ne!(spoken.as_deref(), Some(&b"h2"[..]));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).expect("a socket").permissions());
    assert_eq!(mode & 0o777, 0o600);
    server.stop();
    let server = Server::start(&folder.join("data"), &["--profiling=false"]);
    HttpClient::admin(&server).get("/debug/pprof/heap").await.expect(404);
    server.stop();
}

/// The metrics that kubernetes-mixin's rules, alerts and dashboards use of an API server.
const MIXIN: [&str; 16] = [
    "aggregator_unavailable_apiservice",
    "aggregator_unavailable_apiservice_total",
    "apiserver_client_certificate_expiration_seconds_bucket",
    "apiserver_client_certificate_expiration_seconds_count",
    "apiserver_request_duration_seconds_bucket",
    "apiserver_request_sli_duration_seconds_bucket",
    "apiserver_request_sli_duration_seconds_count",
    "apiserver_request_terminations_total",
    "apiserver_request_total",
    "go_goroutines",
    "kubernetes_build_info",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "workqueue_adds_total",
    "workqueue_depth",
    "workqueue_queue_duration_seconds_bucket",
];

/// The value of the first line with this prefix.
pub fn value(metrics: &str, start: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("{start} is not in {metrics}"));
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number")
}

#[tokio::test]
async fn dashboards_find_what_they_ask_for() {
    let (_folder, server) = start(&[]);
    let admin = HttpClient::admin(&server);
    let api_service = json!({"metadata": {"name": "v1.nowhere.example"}, "spec": {"group": "nowhere.example", "version": "v1",
        "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true,
        "service": {"name": "nowhere", "namespace": "default"}}});
    admin.post("/apis/apiregistration.k8s.io/v1/apiservices", &api_service).await.expect(201);
    admin.get(&format!("{MAPS}?resourceVersion=999999&timeout=50ms")).await.expect(504);
    admin.post(MAPS, &json!({"metadata": {"name": "one"}})).await.expect(201);
    let metrics = eventually(Duration::from_secs(10), || async {
        let metrics = admin.get("/metrics").await.expect(200).text();
        let missing: Vec<&str> = MIXIN
            .into_iter()
            .filter(|name| {
                !metrics
                    .lines()
                    .any(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")))
            })
            .collect();
        if missing.is_empty() { Ok(metrics) } else { Err(format!("{missing:?} missing in {metrics}")) }
    })
    .await;
    let created = "apiserver_request_total{verb=\"POST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",\
                   scope=\"resource\",component=\"apiserver\",dry_run=\"\",code=\"201\"}";
    let before = value(&metrics, created);
    admin.post(MAPS, &json!({"metadata": {"name": "two"}})).await.expect(201);
    let after: Answer = admin.get("/metrics").await.expect(200);
    assert_eq!(value(&after.text(), created), before + 1.0, "it moves");
    for (name, labels) in [
        ("demand_seats", "priority_level=\"exempt\""),
        ("priority_level_seat_utilization", "phase=\"executing\",priority_level=\"exempt\""),
        ("priority_level_request_utilization", "phase=\"executing\",priority_level=\"exempt\""),
        ("read_vs_write_current_requests", "phase=\"executing\",request_kind=\"mutating\""),
    ] {
        let row = |part: &str| format!("apiserver_flowcontrol_{name}_{part}{{{labels}");
        let (nanos, sum) = (value(&after.text(), &row("count")), value(&after.text(), &row("sum")));
        assert!(nanos > 0.0 && sum > 0.0, "{name}: {sum} over {nanos}");
    }
    server.stop();
}

#[tokio::test]
async fn metrics_are_shown_as_the_operator_wants() {
    let options =
        ["--disabled-metrics=holdfast_log_offset", "--allow-metric-labels=apiserver_request_total,verb='GET'"];
    let (_folder, server) = start(&options);
    let metrics = HttpClient::admin(&server).get("/metrics").await.expect(200).text();
    assert!(!metrics.contains("holdfast_log_offset"));
    assert!(metrics.contains("apiserver_request_total{verb=\"unexpected\""), "{metrics}");
    assert!(!metrics.contains("apiserver_request_total{verb=\"POST\""), "{metrics}");
    server.stop();
}
