//! Shared parts of components: authentication, leader election and configuration. The tests run the real binary against
//! a real API server.

use holdfast_tests::authority::{Authority, Pair};
use holdfast_tests::server::{binary, fails, holdfast, succeeds};
use holdfast_tests::wire::{Answer, HttpClient};
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ANNOTATION: &str = "control-plane.alpha.kubernetes.io/leader";
/// Enables `/flagz` and `/statusz`.
const PAGES: &str = "--feature-gates=ComponentFlagz=true,ComponentStatusz=true";
/// How long the tests wait for any condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server with the user jane, who has no rights yet.
struct Cluster {
    server: Server,
    folder: Folder,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = Folder::new();
        let tokens = folder.join("tokens.csv");
        std::fs::write(&tokens, "j,jane,1\n").unwrap();
        let server = Server::start(&folder.join("data"), &["--token-auth-file", tokens.to_str().unwrap()]);
        Cluster { server, folder }
    }

    /// A scheduler with more options, on a port of its own.
    fn scheduler(&self, name: &str, options: &[&str]) -> Scheduler {
        let kubeconfig = self.server.kubeconfig().to_str().unwrap();
        let folder = self.folder.join(name);
        let port = free_port();
        let log = std::fs::File::create(self.folder.join(&format!("{name}.log"))).unwrap();
        let mut command = Command::new(binary());
        command.args(["scheduler", "--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig]);
        command.args(["--authorization-kubeconfig", kubeconfig, "--bind-address=127.0.0.1"]);
        command.args([&format!("--secure-port={port}"), "--cert-dir"]).arg(&folder).args(options);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it runs");
        Scheduler { child, port, folder: folder.to_str().unwrap().to_owned() }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Scheduler {
    child: Child,
    port: u16,
    folder: String,
}

impl Scheduler {
    /// Waits until the scheduler serves requests. Returns a client without credentials.
    async fn anonymous(&self, cluster: &Cluster) -> HttpClient {
        let certificate = Path::new(&self.folder).join("kube-scheduler.crt");
        until("it serves", async || {
            let authority = std::fs::read_to_string(&certificate).ok()?;
            let address = format!("127.0.0.1:{}", self.port);
            let wire = HttpClient { address, authority, ..HttpClient::anonymous(&cluster.server) };
            let answer = wire.try_send(Method::GET, "/healthz", &[], Default::default()).await.ok()?;
            (answer.code == 200).then_some(wire)
        })
        .await
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn ended(&mut self) -> ExitStatus {
        until("it ends", async || self.child.try_wait().unwrap()).await
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn whom_the_api_server_lets_is_let_in() {
    let cluster = Cluster::start();
    let scheduler = cluster.scheduler("a", &["--authorization-webhook-cache-unauthorized-ttl=0", PAGES]);
    let anonymous = scheduler.anonymous(&cluster).await;
    for path in ["/healthz", "/livez"] {
        anonymous.get(path).await.expect(200);
    }
    eventually(PATIENCE, || async {
        let answer = anonymous.get("/readyz").await;
        if answer.code == 200 { Ok(()) } else { Err(answer.text()) }
    })
    .await;
    assert!(anonymous.get("/readyz?verbose").await.text().contains("[+]leaderElection ok"));
    let refused = anonymous.get("/metrics").await.refused(403, "Forbidden");
    assert_eq!(refused["message"], "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"");
    anonymous.clone().with_token("nobody's").get("/metrics").await.refused(401, "Unauthorized");
    let pretended = anonymous.send(Method::GET, "/metrics", &[("x-remote-user", "admin")], "").await;
    pretended.refused(403, "Forbidden");

    let jane = anonymous.clone().with_token("j");
    let refused = jane.get("/metrics").await.refused(403, "Forbidden");
    assert_eq!(refused["message"], "forbidden: User \"jane\" cannot get path \"/metrics\"");
    let admin = HttpClient::admin(&cluster.server);
    let rule = json!({"nonResourceURLs": ["/metrics", "/configz"], "verbs": ["get"]});
    let role = json!({"metadata": {"name": "watching"}, "rules": [rule]});
    admin.post(&format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "watching"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watching"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    admin.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    let metrics = jane.get("/metrics").await.expect(200).text();
    for name in ["leader_election_master_status{", "rest_client_requests_total{", "process_resident_memory_bytes "] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    let configz = jane.get("/configz").await.expect(200).json();
    assert_eq!(configz["componentconfig"]["kind"], "KubeSchedulerConfiguration");
    jane.get("/flagz").await.refused(403, "Forbidden");

    // The administrator's certificate is accepted as well: the component reads the authority of client certificates
    // from the API server.
    let identity = HttpClient::admin(&cluster.server).identity;
    let admin = HttpClient { identity, http2: false, ..anonymous };
    assert!(admin.get("/flagz").await.expect(200).text().contains("\nbind-address=127.0.0.1\n"));
    admin.get("/nowhere").await.expect(404);
    let told = admin.get("/debug/pprof/heap").await.expect(501).text();
    assert!(told.contains("no Go runtime"), "{told}");
}

/// The leader shows the resource requests of each pod. A scheduler that receives SIGUSR2 dumps its state and continues.
#[tokio::test]
async fn a_scheduler_shows_what_it_has() {
    let cluster = Cluster::start();
    let (health, metrics) = (free_port(), free_port());
    let file = cluster.folder.join("old.yaml");
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\nodd: 1\n\
         healthzBindAddress: 127.0.0.1:{health}\nmetricsBindAddress: 127.0.0.1:{metrics}\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = format!("--config={}", file.display());
    let mut scheduler = cluster.scheduler("a", &[&config, "--leader-elect=false"]);
    scheduler.anonymous(&cluster).await;
    let resources = json!({"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}});
    let container = json!({"name": "c", "image": "x", "resources": resources});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let admin = HttpClient::admin(&cluster.server);
    admin.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
    let get = async |port: u16, path: &str| plain(port, path).await;
    let labels = |resource: &str, unit: &str| {
        format!(
            "{{namespace=\"default\",node=\"\",pod=\"p\",priority=\"0\",resource=\"{resource}\",\
             scheduler=\"default-scheduler\",unit=\"{unit}\"}}"
        )
    };
    let wanted = [
        format!("kube_pod_resource_request{} 0.25\n", labels("cpu", "cores")),
        format!("kube_pod_resource_limit{} 1073741824\n", labels("memory", "bytes")),
    ];
    until("the pod is told of", async || {
        let page = get(metrics, "/metrics/resources").await;
        wanted.iter().all(|line| page.contains(line)).then_some(())
    })
    .await;
    let ready = get(health, "/readyz?verbose").await;
    assert!(
        ready.contains("[+]shutdown ok") && !ready.contains("ping") && !ready.contains("leaderElection"),
        "{ready}"
    );
    assert!(get(health, "/healthz/leaderElection").await.starts_with("HTTP/1.1 404"));
    assert!(get(health, "/healthz?verbose").await.contains("[+]ping ok"));

    scheduler.signal("USR2");
    let log = cluster.folder.join("a.log");
    until("the pod is in the log", async || {
        std::fs::read_to_string(&log).unwrap().contains("pod default/p: ").then_some(())
    })
    .await;
    assert!(std::fs::read_to_string(&log).unwrap().contains("unknown field"), "what nobody knows is told");
    assert_eq!(scheduler.child.try_wait().unwrap(), None);
    scheduler.signal("TERM");
    assert_eq!(scheduler.ended().await.code(), Some(0));
}

/// Gets a path over HTTP without TLS. Returns the whole response.
async fn plain(port: u16, path: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn own_authorities_and_proxies_say_who_asks() {
    let cluster = Cluster::start();
    let folder = cluster.folder.join("trust");
    std::fs::create_dir(&folder).unwrap();
    let (people, proxies) = (Authority::new("people"), Authority::new("proxies"));
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let people_file = format!("--client-ca-file={}", file("people.crt", people.pem()));
    let proxies_file = format!("--requestheader-client-ca-file={}", file("proxies.crt", proxies.pem()));
    let options = [
        people_file.as_str(),
        &proxies_file,
        "--requestheader-allowed-names=front",
        "--requestheader-username-headers=X-Who,X-Remote-User",
        "--requestheader-group-headers=X-Of",
        "--requestheader-extra-headers-prefix=X-More-",
    ];
    let scheduler = cluster.scheduler("a", &[&options[..], &[PAGES]].concat());
    let anonymous = scheduler.anonymous(&cluster).await;
    // One connection per request, because certificates are shown in the handshake.
    let shows = |pair: Pair| HttpClient { http2: false, ..anonymous.clone() }.with_identity(pair);
    let masters = &["system:masters"][..];
    let flags = async |wire: &HttpClient, headers: &[(&str, &str)]| wire.send(Method::GET, "/flagz", headers, "").await;
    let forbidden = async |wire: &HttpClient, headers: &[(&str, &str)]| {
        let refused = flags(wire, headers).await.refused(403, "Forbidden");
        refused["message"].as_str().unwrap().split('"').nth(1).unwrap().to_owned()
    };

    // The client certificate names the user and its groups, and headers are ignored.
    flags(&shows(people.client("root", masters)), &[]).await.expect(200);
    let jane = shows(people.client("jane", &["devs"]));
    assert_eq!(forbidden(&jane, &[]).await, "jane");
    let pretended = [("x-who", "root"), ("x-of", "system:masters")];
    assert_eq!(forbidden(&jane, &pretended).await, "jane", "people are no proxies");

    // A front proxy names its users in headers. The first configured header that is present is used.
    let front = shows(proxies.client("front", &[]));
    flags(&front, &pretended).await.expect(200);
    flags(&front, &[("x-remote-user", "root"), ("x-of", "devs"), ("x-of", "system:masters")]).await.expect(200);
    let both = [("x-remote-user", "root"), ("x-who", "ada"), ("x-of", "devs"), ("x-more-scopes", "all")];
    assert_eq!(forbidden(&front, &both).await, "ada");
    assert_eq!(forbidden(&front, &[("x-who", "ada"), ("x-remote-group", "system:masters")]).await, "ada");

    // A certificate of the front-proxy authority with another name belongs to no front proxy, and the client authority
    // has not signed it.
    let back = shows(proxies.client("back", masters));
    flags(&back, &pretended).await.refused(401, "Unauthorized");
    // A certificate of the client authority with the proxy's name does not make its owner a front proxy either.
    assert_eq!(forbidden(&shows(people.client("front", &[])), &pretended).await, "front");
    // A certificate of an unknown authority is rejected, with or without headers.
    let stranger = shows(Authority::new("strangers").client("root", masters));
    flags(&stranger, &pretended).await.refused(401, "Unauthorized");
}

static ONLY_OLD: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS12];

#[tokio::test]
async fn certificates_go_by_the_name_that_is_asked_for() {
    let cluster = Cluster::start();
    let folder = cluster.folder.join("certificates");
    std::fs::create_dir(&folder).unwrap();
    let authority = Authority::new("servers");
    let pair = |name: &str, hosts: &[&str]| {
        let (certificate, key) = authority.server(hosts).write(&folder, name);
        (certificate.display().to_string(), key.display().to_string())
    };
    let (usual, usual_key) = pair("usual", &["localhost"]);
    let (wild, wild_key) = pair("wild", &["*.example.test"]);
    let (named, named_key) = pair("named", &["ignored.test", "given.other.test"]);
    let options = [
        format!("--tls-cert-file={usual}"),
        format!("--tls-private-key-file={usual_key}"),
        format!("--tls-sni-cert-key={wild},{wild_key}"),
        format!("--tls-sni-cert-key={named},{named_key}:given.other.test"),
        "--tls-min-version=VersionTLS13".to_owned(),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let scheduler = cluster.scheduler("a", &options);
    let address = format!("127.0.0.1:{}", scheduler.port);
    let wire = HttpClient { address, authority: authority.pem().to_owned(), ..HttpClient::anonymous(&cluster.server) };
    until("it serves", async || wire.connect().await.ok()).await;
    let shown = async |name: &str| {
        let stream = HttpClient { server_name: name.to_owned(), ..wire.clone() }.connect().await.ok()?;
        let chain = stream.get_ref().1.peer_certificates()?;
        Some(chain[0].to_vec())
    };
    let written = |path: &str| Some(CertificateDer::from_pem_file(path).unwrap().to_vec());
    assert_eq!(shown("localhost").await, written(&usual));
    assert_eq!(shown("one.example.test").await, written(&wild));
    assert_eq!(shown("given.other.test").await, written(&named));
    assert_eq!(shown("deep.one.example.test").await, None, "a wildcard stands for one label");
    assert_eq!(shown("ignored.test").await, None, "the names that are given count, not those of the certificate");
    let old = HttpClient { tls: ONLY_OLD, server_name: "localhost".into(), ..wire.clone() };
    assert!(old.connect().await.is_err(), "it speaks TLS 1.3 alone");
    // With certificates from options, the scheduler does not create one of its own.
    assert!(!Path::new(&scheduler.folder).join("kube-scheduler.crt").exists());
}

#[tokio::test]
async fn what_is_logged_is_as_the_options_say() {
    let cluster = Cluster::start();
    // The log of a scheduler until a client without an acceptable TLS version has connected, which is logged at level
    // 4.
    let logged = async |name: &str, options: &[&str]| {
        let options = [&["--leader-elect=false", "--tls-min-version=VersionTLS13"], options].concat();
        let scheduler = cluster.scheduler(name, &options);
        let wire = scheduler.anonymous(&cluster).await;
        let old = HttpClient { tls: ONLY_OLD, ..wire.clone() };
        assert!(old.connect().await.is_err(), "it speaks TLS 1.3 alone");
        // A scheduler that ends while it lists objects for the first time logs that the lists failed, so the test waits
        // until the scheduler is ready.
        until("it has listed everything", async || (wire.get("/readyz").await.code == 200).then_some(())).await;
        scheduler.signal("TERM");
        let file = cluster.folder.join(&format!("{name}.log"));
        until("it has told that it ends", async || {
            let log = std::fs::read_to_string(&file).unwrap();
            log.contains("requested to terminate").then_some(log)
        })
        .await
    };
    let text = logged("text", &[]).await;
    let is_info = |line: &str| line.starts_with('I') && line.contains(".rs:") && line.contains("] ");
    assert!(text.lines().all(is_info), "{text}");

    let lines = |log: String| -> Vec<Value> {
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    };
    let ended = |lines: &[Value]| lines.iter().filter(|line| line["msg"] == "a connection ended").count();
    let json = lines(logged("json", &["--logging-format=json"]).await);
    assert!(json.iter().all(|line| line["v"] == 0 && line["ts"].is_number()), "{json:?}");
    let serving = json.iter().find(|line| line["msg"] == "serving securely").expect("it serves");
    assert!(serving["caller"].as_str().unwrap().contains("component.rs:"), "{serving}");
    assert!(serving["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{serving}");

    let more = lines(logged("more", &["--logging-format=json", "-v=4"]).await);
    assert_eq!(ended(&more), 1, "{more:?}");
    // `--vmodule` raises the level of one file: of `serving`, which logs the message, and then of another file.
    let own = lines(logged("own", &["--logging-format=json", "--vmodule=serving=4"]).await);
    assert_eq!(ended(&own), 1, "{own:?}");
    let other = lines(logged("other", &["--logging-format=json", "--vmodule=component=4"]).await);
    assert_eq!(ended(&other), 0, "{other:?}");
}

/// The leader and the number of transitions in the lock.
async fn record(admin: &HttpClient, form: &str) -> Option<(String, i64)> {
    let holder = |record: &Value, transitions: &str| {
        Some((record["holderIdentity"].as_str()?.to_owned(), record[transitions].as_i64()?))
    };
    let found = |answer: Answer| (answer.code == 200).then(|| answer.json());
    let of_lease =
        async || holder(&found(admin.get(&format!("{LEASES}/kube-scheduler")).await)?["spec"], "leaseTransitions");
    let of_annotation = async |resource: &str| {
        let object = found(admin.get(&format!("{SYSTEM}/{resource}/kube-scheduler")).await)?;
        let text = object["metadata"]["annotations"][ANNOTATION].as_str()?.to_owned();
        holder(&serde_json::from_str(&text).unwrap(), "leaderTransitions")
    };
    match form {
        "leases" => of_lease().await,
        "endpoints" | "configmaps" => of_annotation(form).await,
        both => {
            let old = of_annotation(both.trim_end_matches("leases")).await?;
            (of_lease().await? == old).then_some(old)
        }
    }
}

const QUICK: [&str; 3] =
    ["--leader-elect-lease-duration=2s", "--leader-elect-renew-deadline=1500ms", "--leader-elect-retry-period=200ms"];

#[tokio::test]
async fn one_leads_and_the_next_follows() {
    let cluster = Cluster::start();
    let admin = HttpClient::admin(&cluster.server);
    for form in ["leases", "endpoints", "configmaps", "endpointsleases", "configmapsleases"] {
        let lock = format!("--leader-elect-resource-lock={form}");
        let options = [&QUICK[..], &[&lock]].concat();
        let begun = record(&admin, form).await;
        let mut first = cluster.scheduler(&format!("{form}-1"), &options);
        let leads = async |not: &str| {
            until("somebody leads", async || {
                record(&admin, form).await.filter(|(who, _)| !who.is_empty() && who != not)
            })
            .await
        };
        let (one, transitions) = leads("").await;
        assert!(begun.is_none_or(|(holder, _)| holder.is_empty()), "{form}");
        let second = cluster.scheduler(&format!("{form}-2"), &options);
        second.anonymous(&cluster).await;
        assert_eq!(record(&admin, form).await.map(|(holder, _)| holder), Some(one.clone()), "{form}");
        // On SIGTERM the leader releases the lease and exits cleanly.
        first.signal("TERM");
        assert_eq!(first.ended().await.code(), Some(0), "{form}");
        let (two, next) = leads(&one).await;
        assert_eq!(next, transitions + 1, "{form}");
        // When a leader is killed, another candidate leads once the lease has expired.
        drop(second);
        let third = cluster.scheduler(&format!("{form}-3"), &options);
        let (_, last) = leads(&two).await;
        assert_eq!(last, transitions + 2, "{form}");
        third.signal("TERM");
        until("it is given back", async || record(&admin, form).await.filter(|(who, _)| who.is_empty())).await;
        // Deletes the records, so that the test of the next type of lock starts without them.
        for path in [
            format!("{LEASES}/kube-scheduler"),
            format!("{SYSTEM}/endpoints/kube-scheduler"),
            format!("{SYSTEM}/configmaps/kube-scheduler"),
        ] {
            admin.send(Method::DELETE, &path, &[], "").await;
        }
    }
    let events = admin.get(&format!("{SYSTEM}/events")).await.expect(200).json();
    let told: Vec<&Value> =
        events["items"].as_array().unwrap().iter().filter(|event| event["reason"] == "LeaderElection").collect();
    let has = |kind: &str, end: &str| {
        told.iter()
            .any(|event| event["involvedObject"]["kind"] == kind && event["message"].as_str().unwrap().ends_with(end))
    };
    assert!(
        has("Lease", " became leader") && has("Lease", " stopped leading") && has("Endpoints", " became leader"),
        "{told:#?}"
    );
}

#[tokio::test]
async fn who_loses_the_lease_ends() {
    let cluster = Cluster::start();
    let admin = HttpClient::admin(&cluster.server);
    let mut scheduler = cluster.scheduler("a", &QUICK);
    until("it leads", async || record(&admin, "leases").await).await;
    let patch = json!({"spec": {"holderIdentity": "somebody else"}}).to_string();
    let path = format!("{LEASES}/kube-scheduler");
    let patched = admin.send(Method::PATCH, &path, &[("content-type", "application/merge-patch+json")], patch).await;
    patched.expect(200);
    assert_eq!(scheduler.ended().await.code(), Some(1));
    let log = std::fs::read_to_string(cluster.folder.join("a.log")).unwrap();
    assert!(log.contains("leaderelection lost"), "{log}");
}

#[tokio::test]
async fn a_policy_may_be_in_the_cluster() {
    let cluster = Cluster::start();
    let admin = HttpClient::admin(&cluster.server);
    let kubeconfig = cluster.server.kubeconfig().to_str().unwrap();
    let file = cluster.folder.join("written.yaml");
    let write = |name: &str| {
        let map = format!("--policy-configmap={name}");
        holdfast(["scheduler", "--kubeconfig", kubeconfig, &map, "--write-config-to", file.to_str().unwrap()])
    };
    fails(write("absent"), &["couldn't get policy config map kube-system/absent", "not found"]);
    let policy = r#"{"kind": "Policy", "priorities": [{"name": "ImageLocalityPriority", "weight": 7}]}"#;
    for (name, data) in [("policy", json!({"policy.cfg": policy})), ("empty", json!({}))] {
        let map = json!({"metadata": {"name": name}, "data": data});
        admin.post(&format!("{SYSTEM}/configmaps"), &map).await.expect(201);
    }
    fails(write("empty"), &["missing policy config map value at key \"policy.cfg\""]);
    succeeds(write("policy"));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        written.contains("    score:\n      enabled:\n      - name: ImageLocality\n        weight: 7\n"),
        "{written}"
    );
}

#[test]
fn configurations_of_every_version_are_written_as_one_of_today() {
    let folder = Folder::new();
    for version in ["v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3", "v1"] {
        let (config, first, second) = (folder.join("config"), folder.join("first"), folder.join("second"));
        let header = format!("apiVersion: kubescheduler.config.k8s.io/{version}\nkind: KubeSchedulerConfiguration\n");
        std::fs::write(&config, format!("{header}parallelism: 3\nleaderElection:\n  leaseDuration: 1m\n")).unwrap();
        let write = |from: &Path, to: &Path| {
            succeeds(holdfast([
                "scheduler".as_ref(),
                "--config".as_ref(),
                from.as_os_str(),
                "--write-config-to".as_ref(),
                to.as_os_str(),
            ]));
            std::fs::read_to_string(to).unwrap()
        };
        let written = write(&config, &first);
        assert!(written.starts_with("apiVersion: kubescheduler.config.k8s.io/v1\n"), "{written}");
        assert!(written.contains("\nparallelism: 3\n") && written.contains("  leaseDuration: 1m0s\n"), "{written}");
        assert_eq!(write(&first, &second), written, "{version}");
    }
}

#[test]
fn what_is_wrong_is_told_at_once() {
    let folder = Folder::new();
    let config = folder.join("config.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparalelism: 3\n\
                profiles:\n- plugins:\n    score:\n      enabled: [{name: Nobody}, {name: NodeAffinity, weight: -1}]\n";
    std::fs::write(&config, text).unwrap();
    let config = format!("--config={}", config.display());
    fails(
        holdfast(["scheduler", &config, "--leader-elect-retry-period=9s"]),
        &[
            "unknown field \"paralelism\"",
            "profiles[0].plugins.score.enabled[0].name: ScorePlugin \"Nobody\" does not exist",
            "profiles[0].plugins.score.enabled[1].weight: Invalid value: -1",
            "leaderElection.renewDeadline: Invalid value: \"10s\": RenewDeadline must be greater than RetryPeriod*JitterFactor",
        ],
    );
    fails(holdfast(["scheduler", "--config=/nowhere"]), &["--config=/nowhere", "No such file"]);
    fails(holdfast(["scheduler", "--authorization-always-allow-paths=/a*b"]), &["only trailing * allowed"]);
    fails(
        holdfast(["scheduler", "--tls-curve-preferences=1"]),
        &["--tls-curve-preferences: 1 is not served; there are "],
    );
    let port = free_port();
    let options = ["scheduler", "--leader-elect=false", &format!("--secure-port={port}"), "--bind-address=127.0.0.1"];
    let refused = |option: &str, why: &str| fails(holdfast(options.iter().copied().chain([option])), &[why]);
    refused("--authentication-kubeconfig=/nowhere", "--authentication-kubeconfig=/nowhere");
    refused("--client-ca-file=/nowhere", "read /nowhere");
    refused("--tls-cipher-suites=TLS_NONSENSE", "Cipher suite TLS_NONSENSE not supported or doesn't exist");
    refused("--tls-min-version=VersionTLS99", "VersionTLS99");
    refused("--tls-sni-cert-key=one", "expected CERT,KEY[:DOMAINS]");
    assert_eq!(succeeds(holdfast(["scheduler", "--version"])), "Kubernetes v1.35.0\n");
}
