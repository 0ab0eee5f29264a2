//! The cloud controller manager with the real binary, real kubectl, and providers in other languages.

use holdfast_tests::authority::Authority;
use holdfast_tests::server::{binary, holdfast};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clients, eventually};
use http::Method;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const NODES: &str = "/api/v1/nodes";
/// How long the tests wait for any condition.
const PATIENCE: Duration = Duration::from_secs(60);

const CLOUD: &str = "
addresses: [192.0.2.0/24]
instances:
- {name: one, id: i-one, type: m.large, zone: zone-a, addresses: [{type: InternalIP, address: 10.0.0.1}]}
- {name: two, id: i-two, type: m.large, zone: zone-b, addresses: [{type: InternalIP, address: 10.0.0.2}]}
";

/// A process that is killed with the test.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    fn start(command: &mut Command, log: PathBuf) -> Running {
        let file = std::fs::File::create(&log).expect("a log");
        let out = file.try_clone().expect("a log");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(file).spawn().expect("it runs");
        Running { child, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

fn write(folder: &Folder, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("write");
    path.to_str().expect("UTF-8").to_owned()
}

/// A cloud controller manager for a server.
fn manager(server: &Server, folder: &Folder, options: &[&str]) -> (Running, u16) {
    let port = free_port();
    let mut command = Command::new(binary());
    command.arg("cloud-controller-manager").arg("--kubeconfig").arg(server.kubeconfig());
    command.args(["--bind-address=127.0.0.1", "--kube-api-qps=1000", "--kube-api-burst=1000"]);
    command.arg("--cert-dir").arg(folder.join("certificates")).arg(format!("--secure-port={port}")).args(options);
    (Running::start(&mut command, folder.join("manager.log")), port)
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]},
    })
}

async fn address(wire: &HttpClient, name: &str) -> String {
    eventually(PATIENCE, || async {
        let service = wire.get(&format!("{SERVICES}/{name}")).await.expect(200).json();
        let ip = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        ip.as_str().map(str::to_owned).ok_or_else(|| service["status"].to_string())
    })
    .await
}

/// Waits for an Event with this text.
async fn told(wire: &HttpClient, part: &str) {
    eventually(PATIENCE, || async {
        let events = wire.get("/api/v1/events").await.expect(200).json();
        let lines: Vec<String> = events["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|event| format!("{} {}", event["reason"], event["message"]))
            .collect();
        if lines.iter().any(|line| line.contains(part)) { Ok(()) } else { Err(lines.join("\n")) }
    })
    .await;
}

fn kubectl_script(kubectl: &str) {
    let folder = Folder::new();
    let cloud = write(&folder, "cloud.yaml", CLOUD);
    let options = ["--controllers=*", "--cloud-provider=simulated", "--cloud-config", &cloud];
    let server = Server::start(&folder.join("data"), &options);
    let program = clients().join(kubectl);
    let script = holdfast_tests::folder().join("clients/cloud.sh");
    let output = Command::new(script)
        .arg(program)
        .arg(&cloud)
        .env("KUBECONFIG", server.kubeconfig())
        .output()
        .expect("run the script");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}\n{}", server.stderr());
}

#[test]
fn kubectl_sees_a_cloud() {
    kubectl_script("kubectl-1.37");
}

#[test]
fn an_old_kubectl_sees_a_cloud() {
    kubectl_script("kubectl-1.20");
}

#[tokio::test]
async fn a_manager_beside_an_api_server_does_what_its_options_say() {
    let folder = Folder::new();
    let cloud = write(&folder, "cloud.yaml", CLOUD);
    let server = Server::start(&folder.join("data"), &[]);
    let wire = HttpClient::admin(&server);
    let options = [
        "--cloud-provider=simulated",
        "--cloud-config",
        &cloud,
        "--controllers=*,-cloud-node-lifecycle",
        "--allocate-node-cidrs",
        "--cluster-cidr=10.244.0.0/16",
        "--route-reconciliation-period=1s",
        "--use-service-account-credentials",
        "--leader-elect-retry-period=100ms",
        "--authorization-always-allow-paths=/healthz,/metrics,/configz",
    ];
    let (running, port) = manager(&server, &folder, &options);
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    node["spec"]["taints"] =
        json!([{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]);
    wire.send(Method::POST, NODES, &[], node.to_string()).await.expect(201);
    assert!(address(&wire, "web").await.starts_with("192.0.2."), "{}", running.log());
    let found = eventually(PATIENCE, || async {
        let node = wire.get(&format!("{NODES}/one")).await.expect(200).json();
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let has_route = conditions.iter().any(|of| of["type"] == "NetworkUnavailable" && of["status"] == "False");
        if has_route && node["spec"]["providerID"] == "simulated://i-one" { Ok(node) } else { Err(node.to_string()) }
    })
    .await;
    // The node's managed fields show that each controller wrote under its own name.
    let managers = found["metadata"]["managedFields"].to_string();
    for name in ["cloud-node-controller", "node-route-controller"] {
        assert!(managers.contains(name), "{name} in {managers}");
    }
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
    wire.get(lease).await.expect(200);
    let own = HttpClient {
        address: format!("127.0.0.1:{port}"),
        authority: std::fs::read_to_string(folder.join("certificates/cloud-controller-manager.crt")).expect("made"),
        ..HttpClient::anonymous(&server)
    };
    own.get("/healthz").await.expect(200);
    let metrics = own.get("/metrics").await.expect(200).text();
    assert!(
        metrics.contains("cloudprovider_api_request_duration_seconds_count{request=\"EnsureBalancer\"} 1"),
        "{metrics}"
    );
    // The balancer of the simulated cloud checks its backend, and finds that the backend's instance is shut down.
    let backends = async |health: &str| {
        let line = format!("simulated_cloud_backends{{service=\"default/web\",health=\"{health}\"}} 1");
        eventually(PATIENCE, || async {
            let metrics = own.get("/metrics").await.expect(200).text();
            if metrics.lines().any(|told| told == line) { Ok(()) } else { Err(metrics) }
        })
        .await;
    };
    backends("healthy").await;
    write(&folder, "cloud.yaml", &CLOUD.replace("name: one,", "name: one, shutDown: true,"));
    backends("shutDown").await;
    let configuration = own.get("/configz").await.expect(200).json();
    let shared = &configuration["cloudcontrollermanager.config.k8s.io"]["KubeCloudShared"];
    assert_eq!((&shared["ClusterCIDR"], &shared["ClusterName"]), (&json!("10.244.0.0/16"), &json!("kubernetes")));
    let kubeconfig = server.kubeconfig().to_str().expect("UTF-8");
    let blamed = holdfast(["blame", "service", "web", "--kubeconfig", kubeconfig]);
    let blamed = String::from_utf8_lossy(&blamed.stdout).into_owned() + &String::from_utf8_lossy(&blamed.stderr);
    assert!(blamed.contains("service-controller"), "{blamed}");
}

#[tokio::test]
async fn a_description_in_a_config_map_is_followed() {
    let folder = Folder::new();
    let server = Server::start(&folder.join("data"), &[]);
    let wire = HttpClient::admin(&server);
    let options = ["--cloud-provider=simulated", "--cloud-config=configmap:kube-system/cloud", "--leader-elect=false"];
    // Without a required option the manager ends, and names the missing option.
    let (mut running, _) = manager(&server, &folder, &options);
    let status = running.child.wait().expect("it ends");
    let said = running.log();
    assert!(!status.success() && said.contains("/api/v1/namespaces/kube-system/configmaps/cloud"), "{said}");
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let described = |text: &str| {
        let metadata = json!({"name": "cloud"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"cloud.yaml": text}}).to_string()
    };
    let describe = async |text: &str| {
        wire.send(Method::PUT, &format!("{maps}/cloud"), &[], described(text)).await.expect(200);
    };
    wire.send(Method::POST, maps, &[], described("addresses: [192.0.2.0/24]")).await.expect(201);
    let (running, _) = manager(&server, &folder, &options);
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    let before = address(&wire, "web").await;
    assert!(before.starts_with("192.0.2."), "{before}: {}", running.log());
    // New balancers get the new addresses; existing ones keep theirs.
    describe("addresses: [198.51.100.0/24]").await;
    let mut asked = service("late");
    asked["spec"]["loadBalancerIP"] = "198.51.100.7".into();
    wire.send(Method::POST, SERVICES, &[], asked.to_string()).await.expect(201);
    assert_eq!(address(&wire, "late").await, "198.51.100.7", "{}", running.log());
    assert_eq!(address(&wire, "web").await, before);
    // A faulty description is reported, and changes nothing.
    describe("colour: red").await;
    let mut number = 0;
    let said = eventually(PATIENCE, || {
        number += 1;
        let (wire, running, name) = (&wire, &running, format!("more-{number}"));
        async move {
            wire.send(Method::POST, SERVICES, &[], service(&name).to_string()).await.expect(201);
            let given = address(wire, &name).await;
            assert!(given.starts_with("198.51.100."), "{given}: {}", running.log());
            let log = running.log();
            if log.contains("the cloud stays as it is described") { Ok(log) } else { Err(log) }
        }
    })
    .await;
    assert!(said.contains("unknown field") && said.contains("colour"), "{said}");
}

/// Two managers each hold a lease of their own, and compete for a second lease, which the leader migration names. Only
/// the holder of the second lease runs the migrating controllers; the other manager takes them over when the holder has
/// ended.
#[tokio::test]
async fn a_controller_that_moves_is_run_by_one_of_two_managers() {
    let folder = Folder::new();
    let cloud = write(&folder, "cloud.yaml", CLOUD);
    let migration = write(
        &folder,
        "migration.yaml",
        "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\nleaderName: moving\n\
         controllerLeaders: [{name: service, component: '*'}]\n",
    );
    let server = Server::start(&folder.join("data"), &[]);
    let wire = HttpClient::admin(&server);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let start = |own_lease: &str| {
        let (folder, own_lease) = (Folder::new(), format!("--leader-elect-resource-name={own_lease}"));
        let options = [
            "--cloud-provider=simulated",
            "--cloud-config",
            &cloud,
            "--enable-leader-migration",
            "--leader-migration-config",
            &migration,
            &own_lease,
            "--leader-elect-lease-duration=3s",
            "--leader-elect-renew-deadline=2s",
            "--leader-elect-retry-period=200ms",
            "--authorization-always-allow-paths=/metrics",
        ];
        let (running, port) = manager(&server, &folder, &options);
        (folder, running, port)
    };
    // How many balancers a manager has created.
    let made = async |folder: &Folder, port: u16| {
        let own = HttpClient {
            address: format!("127.0.0.1:{port}"),
            authority: std::fs::read_to_string(folder.join("certificates/cloud-controller-manager.crt")).expect("made"),
            ..HttpClient::anonymous(&server)
        };
        let metrics = own.get("/metrics").await.expect(200).text();
        let counter = "cloudprovider_api_request_duration_seconds_count{request=\"EnsureBalancer\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(counter)).map_or(0, |count| count.parse().expect("a count"))
    };
    let holder = async || {
        let lease = wire.get(&format!("{leases}/moving")).await.expect(200).json();
        lease["spec"]["holderIdentity"].as_str().expect("a holder").to_owned()
    };
    let (first_folder, mut first, first_port) = start("kube-controller-manager");
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    address(&wire, "web").await;
    let held_by = holder().await;
    // The second manager holds its own lease, and does not run the migrating controllers.
    let (second_folder, second, second_port) = start("cloud-controller-manager");
    let leads_its_own = async || match wire.get(&format!("{leases}/cloud-controller-manager")).await.code {
        200 if second.log().contains("cloud-node-lifecycle-controller") => Ok(()),
        _ => Err(second.log()),
    };
    eventually(PATIENCE, leads_its_own).await;
    wire.send(Method::POST, SERVICES, &[], service("more").to_string()).await.expect(201);
    address(&wire, "more").await;
    assert_eq!(holder().await, held_by);
    assert_eq!((made(&first_folder, first_port).await, made(&second_folder, second_port).await), (2, 0));
    assert!(!second.log().contains("service-lb-controller"), "{}", second.log());
    // When the first manager has ended, the second takes over the existing objects.
    first.kill();
    wire.send(Method::POST, SERVICES, &[], service("late").to_string()).await.expect(201);
    address(&wire, "late").await;
    let all_made = async || match made(&second_folder, second_port).await {
        3 => Ok(()),
        count => Err(format!("{count} of 3 balancers: {}", second.log())),
    };
    eventually(PATIENCE, all_made).await;
    assert_ne!(holder().await, held_by);
    let leads = r#"controllers start names="[\"service-lb-controller\"]"#;
    assert!(first.log().contains(leads) && second.log().contains(leads), "{}", second.log());
}

#[tokio::test]
async fn what_cannot_be_is_refused_by_name() {
    let folder = Folder::new();
    let refused = |options: &[&str]| {
        let output = holdfast(["cloud-controller-manager"].iter().chain(options));
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (options, part) in [
        (&[][..], "--cloud-provider cannot be empty"),
        (&["--cloud-provider=aws"], "--cloud-provider=external"),
        (&["--cloud-provider=nimbus"], "unknown cloud provider"),
        (&["--cloud-provider=simulated", "--controllers=nodes"], "is not in the list of known controllers"),
        (&["--cloud-provider=simulated", "--cluster-cidr=10.0.0.0/33"], "10.0.0.0/33"),
        (&["--cloud-provider=simulated", "--leader-elect-lease-duration=1s"], "leaseDuration"),
        (&["--cloud-provider=simulated", "--no-such-option"], "unknown flag: --no-such-option"),
    ] {
        let said = refused(options);
        assert!(said.contains(part), "{options:?}: {said}");
    }
    // An unknown field is reported with the file's name.
    let server = Server::start(&folder.join("data"), &[]);
    let faulty = write(&folder, "cloud.yaml", "colour: red\n");
    let options = ["--cloud-provider=simulated", "--cloud-config", &faulty, "--leader-elect=false"];
    let (mut running, _) = manager(&server, &folder, &options);
    let status = running.child.wait().expect("it ends");
    let said = running.log();
    assert!(!status.success() && said.contains("unknown field \"colour\"") && said.contains(&faulty), "{said}");
}

/// Starts the example provider in Python at a socket.
fn python(folder: &Folder, socket: &Path, options: &[&str]) -> Running {
    let example = holdfast_tests::folder().join("../clients/cloud/python/provider.py");
    let mut command = Command::new(clients().join("python/bin/python"));
    command.arg(example).arg(format!("unix://{}", socket.display())).args(options);
    Running::start(&mut command, folder.join("provider.log"))
}

/// Starts a provider that misbehaves in one way.
fn liar(folder: &Folder, socket: &Path, mode: &str, options: &[&str]) -> Running {
    let script = holdfast_tests::folder().join("clients/lying_cloud.py");
    let mut command = Command::new(clients().join("python/bin/python"));
    command.arg(script).arg(mode).arg(format!("unix://{}", socket.display())).args(options);
    Running::start(&mut command, folder.join("provider.log"))
}

/// A server, a manager and a provider, which is started with the socket.
async fn beside(start: impl FnOnce(&Folder, &Path) -> Running) -> (Folder, Server, Running, Running) {
    let folder = Folder::new();
    let socket = folder.join("cloud.sock");
    let config = format!("endpoint: unix://{}\ndeadline: 500ms\n", socket.display());
    let config = write(&folder, "external.yaml", &config);
    let provider = start(&folder, &socket);
    until_ready(&provider).await;
    let server = Server::start(&folder.join("data"), &[]);
    let options =
        ["--cloud-provider=external", "--cloud-config", &config, "--leader-elect=false", "--node-monitor-period=200ms"];
    let (running, _) = manager(&server, &folder, &options);
    (folder, server, provider, running)
}

#[tokio::test]
async fn a_provider_that_lies_or_is_slow_is_told_of_by_name() {
    for (mode, part) in [
        ("slow", "code = DeadlineExceeded desc = no answer within 500ms"),
        ("cluster", "the cloud answers with balancer"),
    ] {
        let (_folder, server, _provider, _running) = beside(|folder, socket| liar(folder, socket, mode, &[])).await;
        let wire = HttpClient::admin(&server);
        wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
        told(&wire, part).await;
    }
    // If an instance is not found once, the provider is asked again, and the node stays.
    let (_folder, server, provider, _running) =
        beside(|folder, socket| liar(folder, socket, "gone", &["--node", "one"])).await;
    let wire = HttpClient::admin(&server);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"},
        "spec": {"providerID": "example://one"}});
    wire.send(Method::POST, NODES, &[], node.to_string()).await.expect(201);
    // The provider's first answer is wrong. The manager asks a third time only after it has acted upon the second
    // answer.
    eventually(PATIENCE, || async {
        let log = provider.log();
        if log.matches("an instance is asked for").count() >= 3 { Ok(()) } else { Err(log) }
    })
    .await;
    wire.get(&format!("{NODES}/one")).await.expect(200);
    let (_folder, _server, _provider, mut running) =
        beside(|folder, socket| liar(folder, socket, "version", &[])).await;
    let status = running.child.wait().expect("it ends");
    assert!(!status.success() && running.log().contains("the provider speaks version \"v9\""), "{}", running.log());
}

#[tokio::test]
async fn a_provider_is_asked_over_tls_by_who_shows_a_certificate() {
    let folder = Folder::new();
    let (authority, port) = (Authority::new("cloud"), free_port());
    authority.server(&["cloud.internal"]).write(folder.path(), "provider");
    authority.client("manager", &[]).write(folder.path(), "manager");
    let ca = write(&folder, "ca.crt", authority.pem());
    let file = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let example = holdfast_tests::folder().join("../clients/cloud/python/provider.py");
    let mut command = Command::new(clients().join("python/bin/python"));
    command.arg(example).arg(format!("127.0.0.1:{port}")).args(["--certificate", &file("provider.crt")]);
    command.args(["--key", &file("provider.key"), "--client-ca", &ca]);
    let provider = Running::start(&mut command, folder.join("provider.log"));
    until_ready(&provider).await;
    let server = Server::start(&folder.join("data"), &[]);
    let config = |identity: &str| {
        format!(
            "endpoint: https://127.0.0.1:{port}\ndeadline: 2s\ncaFile: {ca}\nserverName: cloud.internal\n{identity}"
        )
    };
    let refused = write(&folder, "without.yaml", &config(""));
    let (mut running, _) =
        manager(&server, &folder, &["--cloud-provider=external", "--cloud-config", &refused, "--leader-elect=false"]);
    assert!(!running.child.wait().expect("it ends").success(), "{}", running.log());
    let identity = format!("certFile: {}\nkeyFile: {}\n", file("manager.crt"), file("manager.key"));
    let shown = write(&folder, "with.yaml", &config(&identity));
    let options = ["--cloud-provider=external", "--cloud-config", &shown, "--leader-elect=false"];
    let (running, _) = manager(&server, &folder, &options);
    let wire = HttpClient::admin(&server);
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    assert!(address(&wire, "web").await.starts_with("192.0.2."), "{}", running.log());
}

#[tokio::test]
#[ignore = "needs Go, which fetches modules"]
async fn a_provider_in_go_is_asked() {
    let built = Folder::new();
    let program = built.join("provider");
    let mut go = Command::new("go");
    go.current_dir(holdfast_tests::folder().join("../clients/cloud/go")).arg("build").arg("-o").arg(&program).arg(".");
    assert!(go.status().expect("run go").success());
    let (_folder, server, _provider, running) = beside(|folder, socket| {
        let mut command = Command::new(&program);
        command.arg("-listen").arg(format!("unix://{}", socket.display())).args(["-nodes", "one"]);
        Running::start(&mut command, folder.join("provider.log"))
    })
    .await;
    let wire = HttpClient::admin(&server);
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    assert!(address(&wire, "web").await.starts_with("192.0.2."), "{}", running.log());
}

async fn until_ready(provider: &Running) {
    eventually(PATIENCE, || async { if provider.log().contains("ready") { Ok(()) } else { Err(provider.log()) } })
        .await;
}

#[tokio::test]
async fn a_provider_in_python_is_asked_killed_and_asked_again() {
    let folder = Folder::new();
    let socket = folder.join("cloud.sock");
    let config = write(&folder, "external.yaml", &format!("endpoint: unix://{}\ndeadline: 5s\n", socket.display()));
    let provider = python(&folder, &socket, &["--node", "one"]);
    until_ready(&provider).await;
    let server = Server::start(&folder.join("data"), &[]);
    let wire = HttpClient::admin(&server);
    let options =
        ["--cloud-provider=external", "--cloud-config", &config, "--leader-elect=false", "--node-monitor-period=500ms"];
    let (running, _) = manager(&server, &folder, &options);
    wire.send(Method::POST, SERVICES, &[], service("web").to_string()).await.expect(201);
    assert!(address(&wire, "web").await.starts_with("192.0.2."), "{}", running.log());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"},
        "spec": {"providerID": "example://one"}});
    wire.send(Method::POST, NODES, &[], node.to_string()).await.expect(201);
    // The provider is killed: the existence of the node's instance is in doubt, and nothing is deleted.
    drop(provider);
    std::fs::remove_file(&socket).ok();
    wire.send(Method::POST, SERVICES, &[], service("late").to_string()).await.expect(201);
    told(&wire, "SyncLoadBalancerFailed\" \"Error syncing load balancer: failed to ensure load balancer").await;
    told(&wire, "Error asking cloud provider example for its instance").await;
    wire.get(&format!("{NODES}/one")).await.expect(200);
    // If a provider with another name answers at the socket, the manager sends no calls to it.
    let provider = python(&folder, &socket, &["--name", "stranger"]);
    until_ready(&provider).await;
    told(&wire, "provider stranger answers where example did").await;
    wire.get(&format!("{NODES}/one")).await.expect(200);
    drop(provider);
    std::fs::remove_file(&socket).ok();
    let provider = python(&folder, &socket, &["--node", "two"]);
    until_ready(&provider).await;
    // A provider with the first provider's name is called again. It reports that the node's instance does not exist.
    told(&wire, "does not exist in the cloud provider").await;
    assert!(address(&wire, "late").await.starts_with("192.0.2."), "{}", running.log());
}
