//! Options: the option sets of common installers start the server, and each option about serving has its effect.

use bytes::Bytes;
use holdfast_tests::authority::{Authority, Pair};
use holdfast_tests::server::{binary, holdfast, succeeds};
use holdfast_tests::wire::{Answer, Wire};
use holdfast_tests::{Folder, Server, eventually};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Options about etcd and about connections to nodes, which these tests leave out.
const LEFT_OUT: [&str; 3] = ["--etcd-", "--kubelet-", "--egress-selector-config-file=/"];

/// A running `holdfast apiserver`, killed with the test.
struct ApiServer {
    child: Child,
    admin: Wire,
    log: std::path::PathBuf,
    _folder: Folder,
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ApiServer {
    /// Starts it with an installer's options from a file, in a folder with the files that they name.
    async fn start(set: &str) -> ApiServer {
        let folder = Folder::new();
        let (pki, port) = (folder.join("pki"), free_port());
        std::fs::create_dir_all(&pki).expect("a folder");
        let (authority, proxies) = (Authority::new("kubernetes"), Authority::new("front-proxy-ca"));
        std::fs::write(pki.join("ca.crt"), authority.pem()).expect("write");
        std::fs::write(pki.join("front-proxy-ca.crt"), proxies.pem()).expect("write");
        let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
        std::fs::write(folder.join("audit-policy.yaml"), policy).expect("write");
        authority.server(&["localhost", "kubernetes.default.svc"]).write(&pki, "apiserver");
        proxies.client("front-proxy-client", &[]).write(&pki, "front-proxy-client");
        let account: Pair = authority.client("nobody", &[]);
        std::fs::write(pki.join("sa.key"), &account.key).expect("write");
        let text = std::fs::read_to_string(holdfast_tests::folder().join("data/flag-sets").join(set)).expect("a set");
        let text = text.replace("$PKI", text_of(&pki)).replace("$DIR", text_of(folder.path()));
        let text = text.replace("$PORT", &port.to_string());
        let options = text.lines().filter(|line| !LEFT_OUT.iter().any(|left_out| line.starts_with(left_out)));
        let log = folder.join("log");
        let child = Command::new(binary())
            .arg("apiserver")
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).expect("a log"))
            .spawn()
            .expect("run holdfast");
        let admin = Wire {
            address: format!("127.0.0.1:{port}"),
            authority: authority.pem().to_owned(),
            server_name: "localhost".into(),
            identity: None,
            token: None,
            http2: true,
            tls: rustls::ALL_VERSIONS,
        };
        let admin = admin.with_identity(authority.client("kubernetes-admin", &["system:masters"]));
        let mut server = ApiServer { child, admin, log, _folder: folder };
        server.wait().await;
        server
    }

    async fn wait(&mut self) {
        loop {
            let ended = self.child.try_wait().expect("its state");
            assert!(ended.is_none(), "it ended: {}", self.log());
            let ready = self.admin.try_send(Method::GET, "/readyz", &[], Default::default()).await;
            if ready.is_ok_and(|ready| ready.code == 200) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn text_of(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn start(options: &[&str]) -> (Folder, Server) {
    let folder = Folder::new();
    let server = Server::start(folder.path(), options);
    (folder, server)
}

#[tokio::test]
async fn flag_sets_of_common_set_ups_start_the_server() {
    let sets = ["kubeadm", "kind", "k3s", "local-up", "old-envtest"];
    for set in sets {
        let server = ApiServer::start(set).await;
        server.admin.get("/livez").await.expect(200);
        let service = server.admin.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
        assert_eq!(service["spec"]["ports"][0]["port"], 443, "{set}");
        if set == "k3s" {
            let endpoints =
                server.admin.get("/api/v1/namespaces/default/endpoints/kubernetes").await.expect(200).json();
            assert_eq!(
                endpoints["subsets"][0]["ports"][0]["port"], 6443,
                "what stands before the server listens there"
            );
        }
        let told = server.log().matches("--insecure-port has been deprecated").count();
        assert_eq!(told, usize::from(set == "old-envtest"), "{set}: {}", server.log());
    }
}

/// The table must agree with the code; `UPDATE_OPTIONS=1` writes it.
#[test]
fn the_table_says_what_the_commands_say() {
    let file = holdfast_tests::folder().join("../docs/OPTIONS.md");
    let table = succeeds(holdfast(["options"]));
    if std::env::var_os("UPDATE_OPTIONS").is_some() {
        std::fs::write(&file, &table).expect("write the table");
    }
    let kept = std::fs::read_to_string(&file).expect("docs/OPTIONS.md");
    assert!(kept == table, "docs/OPTIONS.md is old: run `holdfast options > docs/OPTIONS.md`");
    let api_server = table.split("\n## ").nth(1).expect("the API server's table");
    let all = std::fs::read_to_string(holdfast_tests::folder().join("data/options-1.18.txt")).expect("the list");
    for name in all.lines() {
        let row = api_server.lines().find(|line| line.starts_with(&format!("| `--{name}` |")));
        let row = row.unwrap_or_else(|| panic!("--{name} is in no row"));
        assert!(!row.ends_with("|  |"), "--{name} says nothing of what it does");
        assert!(!row.contains("| refused: ") || name.starts_with("ssh-"), "--{name} is refused");
    }
    let cloud = table.split("\n## ").find(|part| part.starts_with("Cloud controller manager")).expect("its table");
    let all = std::fs::read_to_string(holdfast_tests::folder().join("data/options-cloud-1.18.txt")).expect("the list");
    for name in all.lines() {
        let row = cloud.lines().find(|line| line.starts_with(&format!("| `--{name}` |")));
        let row = row.unwrap_or_else(|| panic!("--{name} is in no row"));
        assert!(!row.ends_with("|  |") && !row.contains("| refused: "), "--{name} is refused, or says nothing");
    }
}

#[tokio::test]
async fn what_is_wrong_is_refused_at_once_and_by_name() {
    let folder = Folder::new();
    let options = [
        "--cors-allowed-origins=example.com",
        "--goaway-chance=1",
        "--endpoint-reconciler-type=ring",
        "--emulated-version=1.2",
        "--runtime-config=nonsense.io/v1",
        "--allow-metric-labels=a",
        "--peer-ca-file=/nowhere/ca.crt",
        "--authorization-config=/nowhere/authorization.yaml",
        "--audit-policy-file=/nowhere/audit.yaml",
        "--encryption-provider-config=/nowhere/encryption.yaml",
        "--tls-cipher-suites=TLS_NONSENSE",
        "--enable-admission-plugins=Nonsense",
        "--token-auth-file=/nowhere/tokens.csv",
    ];
    let refused = Server::try_start(folder.path(), &options).err().expect("a refusal");
    assert_eq!(refused.status.code(), Some(1));
    for option in [
        "--cors-allowed-origins",
        "--goaway-chance",
        "ring",
        "1.2",
        "nonsense.io",
        "--allow-metric-labels",
        "/nowhere/ca.crt",
        "--authorization-config",
        "--audit-policy-file",
        "--encryption-provider-config",
        "TLS_NONSENSE",
        "Nonsense",
        "token-auth-file",
    ] {
        assert!(refused.stderr.contains(option), "{option} in {}", refused.stderr);
    }
    // An option that cannot be parsed does not hide other faults.
    let options = [
        "--no-such-option",
        "--secure-port=x",
        "--etcd-servers-overrides=/r#x",
        "--goaway-chance=1",
        "--event-ttl=long",
    ];
    let refused = Server::try_start(folder.path(), &options).err().expect("a refusal");
    assert_eq!(refused.status.code(), Some(1), "as when one alone is wrong");
    for option in [
        "unknown flag: --no-such-option",
        "--secure-port",
        "--etcd-servers-overrides is about etcd",
        "--goaway-chance",
        "--event-ttl",
    ] {
        assert_eq!(refused.stderr.matches(option).count(), 1, "{option} in {}", refused.stderr);
    }
}

#[tokio::test]
async fn browsers_are_told_who_may_read() {
    let options =
        ["--cors-allowed-origins=^https://.*\\.example\\.com$", "--strict-transport-security-directives=max-age=9"];
    let (_folder, server) = start(&options);
    let (admin, anonymous) = (Wire::admin(&server), Wire::anonymous(&server));
    let origin = |origin: &'static str| [("origin", origin)];
    let allowed = origin("https://a.example.com");
    let preflight = anonymous.send(Method::OPTIONS, MAPS, &allowed, "").await.expect(204);
    assert_eq!(preflight.header("access-control-allow-origin"), "https://a.example.com");
    assert_eq!(preflight.header("access-control-allow-methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH");
    assert!(!preflight.header("audit-id").is_empty());
    let read = admin.send(Method::GET, MAPS, &allowed, "").await.expect(200);
    assert_eq!(read.header("access-control-expose-headers"), "Date");
    assert_eq!(read.header("strict-transport-security"), "max-age=9");
    let other = origin("https://example.org");
    let read = admin.send(Method::GET, MAPS, &other, "").await.expect(200);
    assert_eq!(read.header("access-control-allow-origin"), "");
    anonymous.send(Method::OPTIONS, MAPS, &other, "").await.expect(403);
    server.stop();
}

/// A real browser sends a preflight request before it sends a token, and hides the answer from pages of other origins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_allowed_origins_read_in_a_browser() {
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if system.contains("\nID=ubuntu\n") {
        println!("left out: scripts/setup.sh finds no browser on Ubuntu");
        return;
    }
    let (site, folder) = (TcpListener::bind("127.0.0.1:0").expect("a port"), Folder::new());
    let port = site.local_addr().expect("an address").port();
    let tokens = folder.join("tokens.csv");
    std::fs::write(&tokens, "tok,admin,admin,\"system:masters\"\n").expect("write the tokens");
    let (tokens, origins) = (
        format!("--token-auth-file={}", tokens.display()),
        format!("--cors-allowed-origins=^http://127\\.0\\.0\\.1:{port}$"),
    );
    let (_data, server) = start(&[&tokens, &origins]);
    let page = format!(
        "<!doctype html><body>nothing yet</body><script>fetch('{}{MAPS}', {{headers: {{authorization: 'Bearer tok'}}}})\
         .then(answer => answer.json()).then(read => 'read a ' + read.kind, error => 'failed: ' + error)\
         .then(text => document.body.textContent = text)</script>",
        server.url()
    );
    std::thread::spawn(move || serve_page(&site, &page));
    assert!(seen_in_browser(&folder, &format!("http://127.0.0.1:{port}/")).contains("read a ConfigMapList"));
    assert!(seen_in_browser(&folder, &format!("http://localhost:{port}/")).contains("failed: TypeError"));
    server.stop();
}

/// Answers every request with the page.
fn serve_page(site: &TcpListener, page: &str) {
    for stream in site.incoming() {
        let Ok(mut stream) = stream else { continue };
        // The head of such a request fits.
        _ = stream.read(&mut [0; 4096]);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n", page.len());
        _ = stream.write_all(format!("{head}connection: close\r\n\r\n{page}").as_bytes());
    }
}

/// A page's content after its scripts have run, in a browser that accepts the server's certificate.
fn seen_in_browser(folder: &Folder, url: &str) -> String {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--ignore-certificate-errors", "--virtual-time-budget=20000", "--dump-dom", &profile, url])
        .output()
        .expect("run chromium");
    succeeds(output)
}

#[tokio::test]
async fn privileged_containers_are_refused_where_they_are_not_allowed() {
    let template = json!({"metadata": {"name": "t"}, "template": {"spec": {"containers":
        [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}});
    for (options, code) in [(&["--allow-privileged=false"][..], 422), (&[], 201)] {
        let (_folder, server) = start(options);
        let answer = Wire::admin(&server).post("/api/v1/namespaces/default/podtemplates", &template).await.expect(code);
        let field = "template.spec.containers[0].securityContext.privileged";
        assert_eq!(code == 422, answer.text().contains(field), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_end_comes_in_steps() {
    let options =
        ["--shutdown-delay-duration=1s", "--shutdown-send-retry-after", "--shutdown-watch-termination-grace-period=2s"];
    let (_folder, mut server) = start(&options);
    let admin = Wire::admin(&server);
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(admin.open(Method::GET, &format!("{MAPS}?watch=1"), &[], Default::default()).await.unwrap());
    }
    server.signal("TERM");
    let unready = eventually(Duration::from_secs(5), || async {
        let ready = admin.get("/readyz").await;
        if ready.code == 500 { Ok(ready.text()) } else { Err("it is still ready") }
    })
    .await;
    assert!(unready.contains("[-]shutdown failed"), "{unready}");
    admin.get(MAPS).await.expect(200);
    let refused = eventually(Duration::from_secs(5), || async {
        let answer = admin.get(MAPS).await;
        if answer.code == 429 { Ok(answer) } else { Err("it still answers") }
    })
    .await;
    assert_eq!(refused.header("retry-after"), "5");
    assert!(refused.text().contains("shutting down, please try again later"), "{}", refused.text());
    admin.get("/livez").await.expect(200);
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    drop(watches);
}

#[tokio::test]
async fn requests_end_when_their_time_is_over() {
    let (_folder, server) = start(&["--request-timeout=3s", "--min-request-timeout=1"]);
    let admin = Wire::admin(&server);
    admin.get(&format!("{MAPS}?timeout=1s")).await.expect(200);
    let refused = admin.get(&format!("{MAPS}?timeout=1")).await.refused(400, "BadRequest");
    let expected = "invalid timeout specified in the request URL - time: missing unit in duration \"1\"";
    assert_eq!(refused["message"], expected);
    // It waits for a version that does not exist yet, until its timeout.
    let late = admin.get(&format!("{MAPS}?resourceVersion=999999&timeout=100ms")).await;
    let status = late.refused(504, "Timeout");
    assert_eq!(status["message"], "Timeout: request did not complete within the allotted timeout");
    // A watch without a timeout lasts a second or two here.
    let watch = admin.get(&format!("{MAPS}?watch=1")).await.expect(200);
    assert!(watch.text().contains("kube-root-ca.crt") || watch.text().is_empty(), "{}", watch.text());
    let metrics = admin.get("/metrics").await.expect(200).text();
    assert!(value(&metrics, "apiserver_request_terminations_total{component=\"apiserver\",code=\"504\"}") >= 1.0);
    server.stop();
}

#[tokio::test]
async fn an_older_release_is_stood_for() {
    let (_folder, server) = start(&["--emulated-version=1.18", "--runtime-config=batch/v1beta1=false"]);
    let admin = Wire::admin(&server);
    let version = admin.get("/version").await.expect(200).json();
    assert_eq!((&version["minor"], &version["emulationMinor"]), (&json!("35"), &json!("18")));
    let groups = admin.get("/apis").await.expect(200).text();
    assert!(groups.contains("policy/v1beta1") && !groups.contains("\"policy/v1\""), "{groups}");
    for (path, code) in [
        ("/apis/policy/v1", 404),
        ("/apis/policy/v1/poddisruptionbudgets", 404),
        ("/apis/batch/v1/cronjobs", 404),
        ("/apis/batch/v1beta1/cronjobs", 404),
        ("/apis/batch/v2alpha1/cronjobs", 200),
        ("/apis/extensions/v1beta1/ingresses", 200),
        ("/apis/apps/v1/deployments", 200),
    ] {
        assert_eq!(admin.get(path).await.code, code, "{path}");
    }
    let services = admin.get("/apis/apiregistration.k8s.io/v1/apiservices").await.expect(200).text();
    assert!(services.contains("\"v1.apps\"") && !services.contains("\"v1.policy\""), "{services}");
    for path in ["/apis/extensions/v1beta1/ingresses", "/api/v1/endpoints"] {
        assert_eq!(admin.get(path).await.expect(200).header("warning"), "", "1.18 warned of nothing: {path}");
    }
    let maps = admin.get("/api/v1/namespaces").await.expect(200).json();
    assert!(maps["metadata"]["selfLink"].is_string(), "1.18 told where objects are: {}", maps["metadata"]);
    assert_eq!(admin.get("/statusz").await.code, 404, "1.18 had no such page");
    server.stop();
}

#[tokio::test]
async fn all_gates_of_a_stage_are_turned_on_at_once() {
    let (_folder, server) = start(&["--feature-gates=AllBeta=true"]);
    let admin = Wire::admin(&server);
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let made = admin.post(definitions, &definition).await.expect(201).json();
    let status = &made["status"];
    assert_eq!((&status["observedGeneration"], &status["conditions"][0]["observedGeneration"]), (&json!(1), &json!(1)));
    let metrics = admin.get("/metrics").await.text();
    let on = "kubernetes_feature_enabled{name=\"CRDObservedGenerationTracking\",stage=\"BETA\"} 1";
    assert!(metrics.contains(on), "{metrics}");
    server.stop();
}

#[tokio::test]
async fn the_cluster_is_told_of_the_server() {
    let options = [
        "--advertise-address=192.0.2.7",
        "--kubernetes-service-node-port=30443",
        "--identity-lease-duration-seconds=60",
        "--endpoint-reconciler-type=master-count",
        "--apiserver-count=2",
    ];
    let folder = Folder::new();
    let server = Server::start(folder.path(), &options);
    let admin = Wire::admin(&server);
    let endpoints = "/api/v1/namespaces/default/endpoints/kubernetes";
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    let addresses = |endpoints: &Value| endpoints["subsets"][0]["addresses"].clone();
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.7"}]));
    let service = admin.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
    assert_eq!(
        (&service["spec"]["type"], &service["spec"]["ports"][0]["nodePort"]),
        (&json!("NodePort"), &json!(30443))
    );
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let leases = admin.get(&format!("{leases}?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver")).await;
    let leases = leases.expect(200).json();
    let name = leases["items"][0]["metadata"]["name"].as_str().expect("a lease").to_owned();
    assert!(name.starts_with("apiserver-") && name.len() == 36, "{name}");
    assert_eq!(leases["items"][0]["spec"]["leaseDurationSeconds"], 60);
    server.stop();

    // A new address is added to the previous one, and later stays alone.
    let moved = ["--advertise-address=192.0.2.8", "--endpoint-reconciler-type=master-count", "--apiserver-count=2"];
    let server = Server::start(folder.path(), &moved);
    let admin = Wire::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}]));
    let service = admin.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200).json();
    assert_eq!(service["spec"]["type"], "ClusterIP");
    server.stop();
    let server = Server::start(folder.path(), &["--advertise-address=192.0.2.8"]);
    let admin = Wire::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.8"}]));
    let told = admin.get(slice).await.expect(200).json();
    assert_eq!(told["endpoints"][0]["addresses"], json!(["192.0.2.8"]));
    assert_eq!(told["endpoints"].as_array().map(Vec::len), Some(1));
    server.stop();
    let server = Server::start(folder.path(), &["--advertise-address=192.0.2.9", "--endpoint-reconciler-type=none"]);
    let admin = Wire::admin(&server);
    assert_eq!(addresses(&admin.get(endpoints).await.json()), json!([{"ip": "192.0.2.8"}]));
    server.stop();
}

#[tokio::test]
async fn nobody_waits_for_a_garbage_collector_that_is_off() {
    for (option, code) in [("--enable-garbage-collector=false", 404), ("--enable-garbage-collector=true", 200)] {
        let (_folder, server) = start(&[option]);
        let admin = Wire::admin(&server);
        admin.post(MAPS, &json!({"metadata": {"name": "owner"}})).await.expect(201);
        let owner = format!("{MAPS}/owner");
        admin.send(Method::DELETE, &format!("{owner}?propagationPolicy=Foreground"), &[], "").await.expect(200);
        assert_eq!(admin.get(&owner).await.code, code, "{option}");
        server.stop();
    }
}

#[tokio::test]
async fn the_server_tells_of_itself() {
    let folder = Folder::new();
    let socket = folder.join("debug.sock");
    let pages = "--feature-gates=ComponentFlagz=true,ComponentStatusz=true";
    let options = ["--debug-socket-path", text_of(&socket), "--disable-http2-serving", "--contention-profiling", pages];
    let server = Server::start(&folder.join("data"), &options);
    let admin = Wire { http2: false, ..Wire::admin(&server) };
    assert!(admin.get("/flagz").await.expect(200).text().contains("\ndisable-http2-serving=true\n"));
    let flags = admin.get_as("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz").await.expect(200).json();
    assert_eq!(flags["flags"]["secure-port"], "");
    assert!(admin.get("/statusz").await.expect(200).text().starts_with("\nkube-apiserver statusz\n"));
    let refused = admin.get("/debug/pprof/heap").await.expect(501);
    assert!(refused.text().contains("no Go runtime"), "{}", refused.text());
    let set = admin.send(Method::PUT, "/debug/flags/v", &[], "4").await.expect(200);
    assert!(set.text().contains("4"), "{}", set.text());
    Wire { http2: false, ..Wire::anonymous(&server) }.get("/flagz").await.expect(403);
    let slis = admin.get("/metrics/slis").await.expect(200).text();
    assert!(slis.contains("kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 1\n"), "{slis}");
    let connection = Wire { http2: true, ..Wire::admin(&server) }.connect().await;
    let spoken = connection.ok().and_then(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
    assert_ne!(spoken.as_deref(), Some(&b"h2"[..]));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).expect("a socket").permissions());
    assert_eq!(mode & 0o777, 0o600);
    server.stop();
    let server = Server::start(&folder.join("data"), &["--profiling=false"]);
    Wire::admin(&server).get("/debug/pprof/heap").await.expect(404);
    server.stop();
}

/// A span collector that keeps the messages received.
async fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let kept: Arc<Mutex<Vec<u8>>> = Arc::default();
    let seen = kept.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let seen = seen.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let seen = seen.clone();
                async move {
                    assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
                    let body = request.into_body().collect().await?.to_bytes();
                    seen.lock().unwrap().extend(&body[5..]);
                    let answer = Full::new(Bytes::from_static(b"\0\0\0\0\0"));
                    Ok::<_, hyper::Error>(Response::builder().header("grpc-status", "0").body(answer).unwrap())
                }
            });
            let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    (address, kept)
}

#[tokio::test]
async fn requests_are_followed_to_a_collector() {
    let (address, kept) = collector().await;
    let folder = Folder::new();
    let file = folder.join("tracing.yaml");
    let text =
        format!("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: TracingConfiguration\nendpoint: {address}\n");
    std::fs::write(&file, text).expect("write");
    let server = Server::start(&folder.join("data"), &["--tracing-config-file", text_of(&file)]);
    let admin = Wire::admin(&server);
    let parent = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    // Nothing listens there: the call is traced all the same.
    let webhook = json!({"metadata": {"name": "absent"}, "webhooks": [{
        "name": "absent.example.com", "clientConfig": {"url": "https://127.0.0.1:1/absent"}, "failurePolicy": "Ignore",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.post(webhooks, &webhook).await.expect(201);
    admin.get(&format!("{MAPS}/unfollowed")).await.expect(404);
    admin.post(MAPS, &json!({"metadata": {"name": "unfollowed"}})).await.expect(201);
    admin.send(Method::GET, &format!("{MAPS}/followed"), &parent, "").await.expect(404);
    let made = json!({"metadata": {"name": "made"}}).to_string();
    let json = ("content-type", "application/json");
    admin.send(Method::POST, MAPS, &[parent[0], json], made).await.expect(201);
    let (sent, calls) = eventually(Duration::from_secs(20), || async {
        let sent = kept.lock().unwrap().clone();
        let calls = sent.windows(9).filter(|window| window == b"HTTP POST").count();
        if calls == 0 { Err("nothing has come of the webhook") } else { Ok((sent, calls)) }
    })
    .await;
    let has = |bytes: &[u8]| sent.windows(bytes.len()).any(|window| window == bytes);
    assert!(has(b"GET /api/v1/namespaces/{:namespace}/configmaps/{:name}"));
    assert!(has(b"POST /api/v1/namespaces/{:namespace}/configmaps"));
    assert!(has(b"https://127.0.0.1:1/absent?timeout=10s"));
    assert_eq!(calls, 1, "the webhook was called for one request that is followed");
    assert!(
        has(&0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes())
            && has(&0xb7ad_6b71_6920_3331_u64.to_be_bytes())
    );
    assert!(has(b"/configmaps/followed") && !has(b"/configmaps/unfollowed"));
    server.stop();

    std::fs::write(
        &file,
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n",
    )
    .expect("write");
    let refused = Server::try_start(&folder.join("data"), &["--tracing-config-file", text_of(&file)]).err();
    let refused = refused.expect("a refusal").stderr;
    assert!(refused.contains("--tracing-config-file") && refused.contains("samplingRatePerMillion"), "{refused}");
    let missing = Server::try_start(&folder.join("data"), &["--tracing-config-file=/nowhere.yaml"]).err();
    assert!(missing.expect("a refusal").stderr.contains("/nowhere.yaml"));
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_told_with_its_option() {
    let folder = Folder::new();
    for options in [
        &["--client-ca-file=/nowhere"][..],
        &["--requestheader-client-ca-file=/nowhere"],
        &["--proxy-client-cert-file=/nowhere", "--proxy-client-key-file=/nowhere"],
        &["--tls-cert-file=/nowhere", "--tls-private-key-file=/nowhere"],
        &["--authorization-config=/nowhere"],
        &["--authentication-config=/nowhere"],
        &["--audit-policy-file=/nowhere"],
        &["--encryption-provider-config=/nowhere"],
    ] {
        let refused = Server::try_start(&folder.join("data"), options).err().expect("a refusal").stderr;
        let name = options[0].trim_start_matches("--").split('=').next().expect("a name");
        assert!(refused.contains(name) && refused.contains("/nowhere"), "{options:?}: {refused}");
    }
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
fn value(metrics: &str, start: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("{start} is not in {metrics}"));
    line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok()).expect("a number")
}

#[tokio::test]
async fn dashboards_find_what_they_ask_for() {
    let (_folder, server) = start(&[]);
    let admin = Wire::admin(&server);
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
    let metrics = Wire::admin(&server).get("/metrics").await.expect(200).text();
    assert!(!metrics.contains("holdfast_log_offset"));
    assert!(metrics.contains("apiserver_request_total{verb=\"unexpected\""), "{metrics}");
    assert!(!metrics.contains("apiserver_request_total{verb=\"POST\""), "{metrics}");
    server.stop();
}

const GROUP: &str = "/apis/coordination.k8s.io";

/// A candidate for a lease that has just renewed.
fn candidate(name: &str, emulated: &str) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({"apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": {"name": name},
        "spec": {"leaseName": "work", "binaryVersion": "1.35.0", "emulationVersion": emulated,
            "strategy": "OldestEmulationVersion", "renewTime": now}})
}

#[tokio::test]
async fn the_server_elects_holders_of_leases() {
    let options = ["--feature-gates=CoordinatedLeaderElection=true", "--coordinated-leadership-lease-duration=20s"];
    let (_folder, server) = start(&options);
    let admin = Wire::admin(&server);
    let candidates = format!("{GROUP}/v1beta1/namespaces/default/leasecandidates");
    let lease = format!("{GROUP}/v1/namespaces/default/leases/work");
    let patience = Duration::from_secs(60);
    let own = eventually(patience, || async {
        let own = admin.get(&format!("{GROUP}/v1/namespaces/kube-system/leases/leader-election-controller")).await;
        if own.code == 200 { Ok(own.json()) } else { Err("nobody coordinates") }
    })
    .await;
    assert_eq!(own["spec"]["leaseDurationSeconds"], 20);
    admin.post(&candidates, &candidate("newer", "1.35.0")).await.expect(201);
    let elected = eventually(patience, || async {
        let lease = admin.get(&lease).await;
        if lease.code == 200 { Ok(lease.json()) } else { Err("nobody is elected") }
    })
    .await;
    assert_eq!(
        (&elected["spec"]["holderIdentity"], &elected["spec"]["strategy"]),
        (&json!("newer"), &json!("OldestEmulationVersion"))
    );
    // Its holder renews it, so a better candidate must wait until the holder is asked to release it.
    let mut held = elected;
    held["spec"]["leaseDurationSeconds"] = 600.into();
    let json = [("content-type", "application/json")];
    admin.send(Method::PUT, &lease, &json, held.to_string()).await.expect(200);
    admin.post(&candidates, &candidate("older", "1.34.0")).await.expect(201);
    eventually(patience, || async {
        // Both candidates answer whenever they are pinged.
        for name in ["newer", "older"] {
            let path = format!("{candidates}/{name}");
            let mut answer = admin.get(&path).await.json();
            if answer["spec"]["pingTime"].as_str() > answer["spec"]["renewTime"].as_str() {
                answer["spec"]["renewTime"] = candidate("", "")["spec"]["renewTime"].clone();
                admin.send(Method::PUT, &path, &json, answer.to_string()).await;
            }
        }
        let lease = admin.get(&lease).await.json();
        let preferred = lease["spec"]["preferredHolder"] == "older" && lease["spec"]["holderIdentity"] == "newer";
        if preferred { Ok(()) } else { Err(format!("not preferred: {lease}")) }
    })
    .await;
    server.stop();

    // With the gate off no candidate is elected, and leases have no strategy.
    let (_folder, server) = start(&[]);
    let admin = Wire::admin(&server);
    let lease =
        json!({"metadata": {"name": "own"}, "spec": {"holderIdentity": "me", "strategy": "OldestEmulationVersion"}});
    let made = admin.post(&format!("{GROUP}/v1/namespaces/default/leases"), &lease).await.expect(201).json();
    assert_eq!(made["spec"], json!({"holderIdentity": "me"}));
    server.stop();
}

#[tokio::test]
async fn gates_turn_what_they_say() {
    let options = [
        "--feature-gates=ServiceAccountIssuerDiscovery=false,APIPriorityAndFairness=false,PodLevelResources=false",
        "--feature-gates=TTLAfterFinished=false,ContainerStopSignals=true",
        "--version=v1.35.0-own.1",
        "--tls-curve-preferences=23",
    ];
    let (_folder, server) = start(&options);
    let admin = Wire::admin(&server);
    assert_eq!(admin.get("/version").await.json()["gitVersion"], "v1.35.0-own.1");
    admin.get("/openid/v1/jwks").await.expect(404);
    let metrics = admin.get("/metrics").await.text();
    assert!(!metrics.contains("apiserver_flowcontrol_dispatched_requests_total{"), "nobody waits for a turn");
    let spec = json!({"restartPolicy": "Never", "os": {"name": "linux"}, "resources": {"limits": {"cpu": "1"}},
        "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGINT"}}]});
    let job = json!({"metadata": {"name": "j"}, "spec": {"ttlSecondsAfterFinished": 5, "template": {"spec": spec}}});
    let made = admin.post("/apis/batch/v1/namespaces/default/jobs", &job).await.expect(201).json();
    let pods = &made["spec"]["template"]["spec"];
    assert!(made["spec"]["ttlSecondsAfterFinished"].is_null() && pods["resources"].is_null(), "{made}");
    assert_eq!(pods["containers"][0]["lifecycle"], json!({"stopSignal": "SIGINT"}));
    server.stop();

    let folder = Folder::new();
    let options = [
        "--feature-gates=HPAScaleToZero=true,X=true",
        "--version=v1.34.0",
        "--tls-curve-preferences=1",
        "--egress-selector-config-file=/e",
    ];
    let refused = Server::try_start(folder.path(), &options).err().expect("a refusal").stderr;
    for part in [
        "X",
        "match major/minor/patch",
        "--tls-curve-preferences: 1 is not served",
        "egress-selector-config-file /e does not exist",
    ] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let one = ["--feature-gates=StrictIPCIDRValidation=true"];
    let refused = Server::try_start(folder.path(), &one).err().expect("a refusal").stderr;
    assert!(
        refused.contains(
            "cannot set feature gate StrictIPCIDRValidation to true: addresses are validated as in older releases"
        ),
        "{refused}"
    );
}
