//! Controllers, the scheduler and simulated nodes as processes of their own, each with the rights of its own account
//! only: from the creation of typical objects to their deletion, no request of these processes is forbidden.

use holdfast_core::object::yaml;
use holdfast_tests::server::binary;
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, eventually};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(90);
const ADMIN: &str = "admin";
/// The components' accounts, each with its name as its token.
const ACCOUNTS: &str = "\
admin,admin,admin,\"system:masters\"
manager,system:kube-controller-manager,manager
scheduler,system:kube-scheduler,scheduler
nodes,system:serviceaccount:kube-system:simulated-nodes,nodes,\"system:serviceaccounts\"
waiting,waiting,waiting
working,working,working
hollow,hollow,hollow
reading,reading,reading
";
const POLICY: &str = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived, ResponseStarted],
  rules: [{level: Metadata}]}";

/// The template of the nodes. Its annotation means that a controller attaches volumes to the nodes.
const NODES: &str = "annotations: {volumes.kubernetes.io/controller-managed-attach-detach: 'true'}";

struct Cluster {
    folder: Folder,
    server: Server,
    admin: HttpClient,
}

/// A component, killed with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints the forbidden requests if the test fails, because a forbidden request may have caused a timeout.
impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("forbidden: {:#?}", self.asked().1);
        }
    }
}

impl Cluster {
    fn start() -> Cluster {
        let folder = Folder::new();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("write");
        write("tokens", ACCOUNTS);
        write("policy", POLICY);
        write("template", NODES);
        let options = [
            "--controllers=-*".to_owned(),
            "--enable-bootstrap-token-auth".to_owned(),
            format!("--token-auth-file={}", folder.join("tokens").display()),
            format!("--audit-policy-file={}", folder.join("policy").display()),
            format!("--audit-log-path={}", folder.join("audit").display()),
        ];
        let server = Server::start(&folder.join("data"), &options.each_ref().map(String::as_str));
        let admin = HttpClient::anonymous(&server).with_token(ADMIN);
        Cluster { folder, server, admin }
    }

    /// A kubeconfig with one of the tokens.
    fn kubeconfig(&self, token: &str) -> PathBuf {
        let text = std::fs::read_to_string(self.server.kubeconfig()).expect("the administrator's");
        let mut config: Value = yaml::read(&text).expect("YAML");
        config["users"][0]["user"] = json!({"token": token});
        let path = self.folder.join(token);
        std::fs::write(&path, config.to_string()).expect("write");
        path
    }

    fn run(&self, token: &str, options: &[&str]) -> Process {
        let mut command = Command::new(binary());
        command.args(options).arg("--kubeconfig").arg(self.kubeconfig(token));
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs"))
    }

    /// Runs a component with its output in a file, for tests that read it.
    fn run_aloud(&self, token: &str, options: &[&str]) -> (Process, PathBuf) {
        let said = self.folder.join(&format!("{token}.log"));
        let file = std::fs::File::create(&said).expect("a file");
        let mut command = Command::new(binary());
        command.args(options).arg("--kubeconfig").arg(self.kubeconfig(token)).stderr(file);
        (Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it runs")), said)
    }

    fn run_all(&self) -> [Process; 3] {
        let pki = |name: &str| self.folder.join("data").join("pki").join(name).display().to_string();
        let (authority, key) = (pki("ca.crt"), pki("ca.key"));
        let manager = [
            "controller-manager",
            "--secure-port=0",
            "--use-service-account-credentials",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
            "--controllers=*,bootstrapsigner,tokencleaner,selinux-warning-controller",
            "--enable-hostpath-provisioner",
            "--allocate-node-cidrs",
            "--cluster-cidr=10.64.0.0/16",
            "--feature-gates=DRADeviceTaints=true",
            "--horizontal-pod-autoscaler-sync-period=1s",
            &format!("--root-ca-file={authority}"),
            &format!("--cluster-signing-cert-file={authority}"),
            &format!("--cluster-signing-key-file={key}"),
            &format!("--service-account-private-key-file={}", pki("sa.key")),
        ];
        [
            self.run("manager", &manager),
            self.run("scheduler", &["scheduler", "--secure-port=0"]),
            self.run(
                "nodes",
                &["nodes", "--count=3", &format!("--node-template={}", self.folder.join("template").display())],
            ),
        ]
    }

    async fn make(&self, path: &str, name: &str, rest: Value) -> Value {
        let mut object = rest;
        object["metadata"]["name"] = name.into();
        eventually(PATIENCE, || async {
            let answer = self.admin.post(path, &object).await;
            // The request is repeated, because a new kind is not served at once and a new namespace does not have its
            // service account at once.
            if answer.code == 201 { Ok(answer.json()) } else { Err(answer.json()) }
        })
        .await
    }

    async fn patch(&self, path: &str, patch: Value) {
        let merge = [("content-type", "application/merge-patch+json")];
        self.admin.send(Method::PATCH, path, &merge, patch.to_string()).await.expect(200);
    }

    async fn delete(&self, path: &str, options: Value) {
        let plain = [("content-type", "application/json")];
        self.admin.send(Method::DELETE, path, &plain, options.to_string()).await.expect(200);
    }

    /// Waits until an object satisfies a condition.
    async fn until(&self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(PATIENCE, || async {
            let object = self.admin.get(path).await.json();
            if is(&object) { Ok(object) } else { Err(format!("{path}: {object}")) }
        })
        .await
    }

    /// Waits until a list has exactly `count` objects.
    async fn count(&self, path: &str, count: usize) {
        self.until(path, |list| list["items"].as_array().is_some_and(|items| items.len() == count)).await;
    }

    async fn gone(&self, path: &str) {
        self.until(path, |object| object["reason"] == "NotFound").await;
    }

    /// The number of the components' requests, and the forbidden requests.
    fn asked(&self) -> (usize, BTreeSet<String>) {
        let trail = std::fs::read_to_string(self.folder.join("audit")).expect("the trail");
        let events = trail.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        let (mut asked, mut forbidden) = (0, BTreeSet::new());
        for event in events.filter(|event| event["user"]["username"] != ADMIN) {
            asked += 1;
            let is_refused = event["annotations"]["authorization.k8s.io/decision"] == "forbid"
                || event["responseStatus"]["code"] == 401;
            if is_refused {
                let part = |part: &Value| part.as_str().unwrap_or_default().to_owned();
                let (verb, uri) = (part(&event["verb"]), part(&event["requestURI"]));
                forbidden.insert(format!("{}: {verb} {uri}", part(&event["user"]["username"])));
            }
        }
        (asked, forbidden)
    }
}

/// The times at which the server received a user's requests to paths with a prefix, in seconds.
fn times(trail: &Path, user: &str, prefix: &str) -> Vec<f64> {
    let trail = std::fs::read_to_string(trail).expect("the trail");
    let events = trail.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_user = events.filter(|event| {
        event["user"]["username"] == user && event["requestURI"].as_str().is_some_and(|path| path.starts_with(prefix))
    });
    // A request may have an event for each of its stages.
    let by_id: BTreeMap<String, f64> = of_user
        .map(|event| {
            let text = |field: &str| event[field].as_str().expect("text").to_owned();
            let received: jiff::Timestamp = text("requestReceivedTimestamp").parse().expect("a time");
            (text("auditID"), received.as_microsecond() as f64 / 1e6)
        })
        .collect();
    let mut times: Vec<f64> = by_id.into_values().collect();
    times.sort_by(f64::total_cmp);
    times
}

/// A component without rights reports what is refused, retries with growing pauses, and works as soon as it has the
/// rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_rights_they_say_so_and_wait() {
    const MANY_NODES: usize = 300;
    let cluster = Cluster::start();
    let rights = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view-nodes"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reading"}]});
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let rules = json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]});
    cluster.make(ROLES, "view-nodes", rules).await;
    cluster.make(BINDINGS, "reading", rights).await;
    let count = format!("--count={MANY_NODES}");
    let manager = ["controller-manager", "--secure-port=0"];
    let alone = [&manager[..], &["--leader-elect=false"]].concat();
    let all = [
        ("waiting", &manager[..], "leases"),
        ("working", &alone[..], "deployments"),
        ("hollow", &["nodes", "--count=3"], "nodes"),
        ("reading", &["nodes", &count], "nodes"),
    ];
    let mut running: Vec<_> = all.map(|(user, options, _)| cluster.run_aloud(user, options)).into();
    let trail = cluster.folder.join("audit");
    let at_least = async |user: &str, prefix: &str, count: usize| {
        eventually(PATIENCE, || async {
            let times = times(&trail, user, prefix);
            if times.len() >= count { Ok(times) } else { Err(format!("{user}: {times:?}")) }
        })
        .await
    };
    // Each pause must be at least this long, in seconds. The pauses have no maximum, because a slow machine makes them
    // longer.
    let pauses = [
        ("waiting", "/apis/coordination.k8s.io/", [1.9, 1.9]),
        ("working", "/apis/apps/v1/deployments", [0.8, 1.6]),
        ("hollow", "/api/v1/nodes", [0.8, 1.6]),
    ];
    for (user, prefix, shortest) in pauses {
        let times = at_least(user, prefix, 3).await;
        let pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.iter().zip(shortest).all(|(pause, shortest)| *pause >= shortest), "{user}: {pauses:?}");
    }
    // After two requests for each node, the component sends ten requests a second, however many nodes there are.
    let first = 2 * MANY_NODES;
    let times = at_least("reading", "/api/v1/nodes", first + 60).await.split_off(first);
    let seconds = times[times.len() - 1] - times[0];
    assert!(times.len() as f64 <= 10.0 * seconds + 20.0, "{} requests in {seconds} s", times.len());
    for ((user, _, what), (_, said)) in all.iter().zip(&running) {
        let said = std::fs::read_to_string(said).expect("what it says");
        let told = said.lines().find(|line| line.contains("is forbidden") && line.contains(user));
        assert!(told.is_some_and(|_| said.contains(what)), "{user} says:\n{said}");
    }
    for (process, _) in &mut running {
        assert!(process.0.try_wait().expect("ask").is_none(), "it waits for its rights");
    }
    let everything = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hollow"}]});
    cluster.make(BINDINGS, "hollow", everything).await;
    cluster.count("/api/v1/nodes", 3).await;
}

const CORE: &str = "/api/v1/namespaces/shop";
const APPS: &str = "/apis/apps/v1/namespaces/shop";

fn labels(app: &str) -> Value {
    json!({"app": app})
}

fn template(app: &str) -> Value {
    json!({"metadata": {"labels": labels(app)}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn selected(app: &str) -> Value {
    json!({"spec": {"replicas": 2, "selector": {"matchLabels": labels(app)}, "template": template(app)}})
}

fn claim(storage: &str) -> Value {
    json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "host",
        "resources": {"requests": {"storage": storage}}}})
}

fn job() -> Value {
    json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_forbidden_anything() {
    let cluster = Cluster::start();
    // The rights that an administrator grants the nodes' account, and the objects that they need.
    for action in [holdfast_nodes::objects::rights(), holdfast_nodes::objects::needed()].concat() {
        let (path, object) = match action.verb {
            holdfast_world::Verb::Create(object) | holdfast_world::Verb::Apply(object) => (action.resource, object),
            other => panic!("{other:?}"),
        };
        let path =
            format!("/apis/{}/{}/{}", path.group(), path.version(), path.plural()).replace("/apis//v1", "/api/v1");
        let answer = cluster.admin.post(&path, &object.into()).await;
        assert!(matches!(answer.code, 201 | 409), "{path}: {}", answer.text());
    }
    let _processes = cluster.run_all();
    cluster.make("/api/v1/namespaces", "shop", json!({})).await;
    cluster.count(&format!("{CORE}/serviceaccounts"), 1).await;
    cluster.count(&format!("{CORE}/configmaps?fieldSelector=metadata.name=kube-root-ca.crt"), 1).await;
    cluster.count("/api/v1/nodes", 3).await;
    workloads(&cluster).await;
    storage(&cluster).await;
    devices(&cluster).await;
    certificates_and_tokens(&cluster).await;
    owners(&cluster).await;
    nodes(&cluster).await;
    cluster.delete("/api/v1/namespaces/shop", json!({})).await;
    cluster.gone("/api/v1/namespaces/shop").await;
    let (asked, forbidden) = cluster.asked();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    assert!(asked > 500, "the trail tells of {asked} requests of components");
}

async fn workloads(cluster: &Cluster) {
    cluster.make(&format!("{CORE}/resourcequotas"), "q", json!({"spec": {"hard": {"pods": "100"}}})).await;
    cluster.make(&format!("{APPS}/deployments"), "web", selected("web")).await;
    cluster
        .make(
            &format!("{CORE}/replicationcontrollers"),
            "old",
            json!({"spec": {"replicas": 1,
        "selector": labels("old"), "template": template("old")}}),
        )
        .await;
    let mut daemons = selected("daemon");
    daemons["spec"].as_object_mut().expect("a spec").remove("replicas");
    cluster.make(&format!("{APPS}/daemonsets"), "daemon", daemons).await;
    let mut stateful = selected("db");
    stateful["spec"]["serviceName"] = "db".into();
    cluster.make(&format!("{APPS}/statefulsets"), "db", stateful).await;
    let mut once = job();
    once["ttlSecondsAfterFinished"] = 0.into();
    const BATCH: &str = "/apis/batch/v1/namespaces/shop";
    cluster.make(&format!("{BATCH}/jobs"), "once", json!({"spec": job()})).await;
    cluster.make(&format!("{BATCH}/jobs"), "passing", json!({"spec": once})).await;
    let often = json!({"spec": {"schedule": "@every 1s", "successfulJobsHistoryLimit": 0,
        "jobTemplate": {"spec": job()}}});
    cluster.make(&format!("{BATCH}/cronjobs"), "often", often).await;
    let budget = json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": labels("web")}}});
    cluster.make("/apis/policy/v1/namespaces/shop/poddisruptionbudgets", "web", budget).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let scaler = json!({"spec": {"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 4}});
    let scalers = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers";
    cluster.make(scalers, "web", scaler).await;
    let ports = json!([{"port": 80}]);
    cluster
        .make(&format!("{CORE}/services"), "web", json!({"spec": {"selector": labels("web"), "ports": ports}}))
        .await;
    cluster.make(&format!("{CORE}/services"), "far", json!({"spec": {"ports": ports}})).await;
    let far = json!({"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": ports}]});
    cluster.make(&format!("{CORE}/endpoints"), "far", far).await;

    cluster.until(&format!("{APPS}/deployments/web"), |web| web["status"]["readyReplicas"] == 3).await;
    cluster.until(&format!("{APPS}/statefulsets/db"), |db| db["status"]["readyReplicas"] == 2).await;
    cluster.until(&format!("{APPS}/daemonsets/daemon"), |daemon| daemon["status"]["numberReady"] == 3).await;
    cluster.until(&format!("{CORE}/replicationcontrollers/old"), |old| old["status"]["readyReplicas"] == 1).await;
    cluster.until(&format!("{BATCH}/jobs/once"), |once| once["status"]["succeeded"] == 1).await;
    cluster.gone(&format!("{BATCH}/jobs/passing")).await;
    // Wait until the CronJob has started Jobs, and until the oldest of these Jobs have been deleted.
    let fired = |often: &Value| often["status"]["lastSuccessfulTime"].is_string();
    cluster.until(&format!("{BATCH}/cronjobs/often"), fired).await;
    let deleted = "/api/v1/namespaces/shop/events?fieldSelector=reason=SuccessfulDelete,involvedObject.name=often";
    cluster.until(deleted, |list| list["items"].as_array().is_some_and(|items| !items.is_empty())).await;
    cluster.delete(&format!("{BATCH}/cronjobs/often"), json!({})).await;
    for service in ["web", "far"] {
        let slices =
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name";
        cluster.count(&format!("{slices}={service}"), 1).await;
    }
    // Rolls a new template out, and rolls it back.
    let image = |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    for (kind, name) in [("deployments", "web"), ("statefulsets", "db"), ("daemonsets", "daemon")] {
        let path = format!("{APPS}/{kind}/{name}");
        for new in ["j", "i"] {
            cluster.patch(&path, image(new)).await;
            let updated = |object: &Value| {
                let (status, meta) = (&object["status"], &object["metadata"]);
                let [all, updated, ready] = match kind {
                    "daemonsets" => ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"],
                    _ => ["replicas", "updatedReplicas", "availableReplicas"],
                };
                status["observedGeneration"] == meta["generation"]
                    && status[all] == status[updated]
                    && status[all] == status[ready]
            };
            cluster.until(&path, updated).await;
        }
    }
    cluster.patch(&format!("{APPS}/statefulsets/db"), json!({"spec": {"replicas": 1}})).await;
    cluster.count(&format!("{CORE}/pods?labelSelector=app=db"), 1).await;
}

async fn storage(cluster: &Cluster) {
    let class = json!({"provisioner": "kubernetes.io/host-path", "allowVolumeExpansion": true});
    cluster.make("/apis/storage.k8s.io/v1/storageclasses", "host", class).await;
    let claims = format!("{CORE}/persistentvolumeclaims");
    cluster.make(&claims, "data", claim("1Gi")).await;
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": claim("1Gi")}},
    ]);
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}});
    cluster.make(&format!("{CORE}/pods"), "storing", pod).await;
    cluster.until(&format!("{CORE}/pods/storing"), |pod| pod["status"]["phase"] == "Running").await;
    let bound = cluster.until(&format!("{claims}/data"), |claim| claim["status"]["phase"] == "Bound").await;
    cluster.patch(&format!("{claims}/data"), json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})).await;
    // The deletion of a claim in use waits for the deletion of its pod. The volume is deleted together with the claim.
    cluster.delete(&format!("{claims}/data"), json!({})).await;
    cluster.until(&format!("{claims}/data"), |claim| claim["metadata"]["deletionTimestamp"].is_string()).await;
    cluster.delete(&format!("{CORE}/pods/storing"), json!({})).await;
    cluster.gone(&format!("{claims}/data")).await;
    cluster.gone(&format!("/api/v1/persistentvolumes/{}", bound["spec"]["volumeName"].as_str().expect("bound"))).await;
    // A driver's volume is attached to the node of its pod.
    cluster.make("/apis/storage.k8s.io/v1/csidrivers", "csi.example.com", json!({"spec": {}})).await;
    let csi = json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "host", "claimRef": {"namespace": "shop", "name": "far"},
        "csi": {"driver": "csi.example.com", "volumeHandle": "h"}}});
    cluster.make("/api/v1/persistentvolumes", "far", csi).await;
    cluster.make(&claims, "far", claim("1Gi")).await;
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "far", "persistentVolumeClaim": {"claimName": "far"}}]}});
    cluster.make(&format!("{CORE}/pods"), "far", pod).await;
    cluster.count("/apis/storage.k8s.io/v1/volumeattachments", 1).await;
    cluster.delete(&format!("{CORE}/pods/far"), json!({})).await;
    cluster.count("/apis/storage.k8s.io/v1/volumeattachments", 0).await;
    let attributes = json!({"driverName": "csi.example.com", "parameters": {"a": "b"}});
    cluster.make("/apis/storage.k8s.io/v1/volumeattributesclasses", "gold", attributes).await;
    cluster.delete("/apis/storage.k8s.io/v1/volumeattributesclasses/gold", json!({})).await;
    cluster.gone("/apis/storage.k8s.io/v1/volumeattributesclasses/gold").await;
}

async fn devices(cluster: &Cluster) {
    cluster.make("/apis/resource.k8s.io/v1/deviceclasses", "gpu", json!({"spec": {}})).await;
    let slice = json!({"spec": {"driver": "d.example.com", "nodeName": "node-0", "devices": [{"name": "one"}],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}});
    cluster.make("/apis/resource.k8s.io/v1/resourceslices", "s", slice).await;
    let template =
        json!({"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}});
    cluster.make("/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates", "t", template).await;
    let pod = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "g"}]}}],
        "resourceClaims": [{"name": "g", "resourceClaimTemplateName": "t"}]}});
    cluster.make(&format!("{CORE}/pods"), "computing", pod).await;
    cluster.until(&format!("{CORE}/pods/computing"), |pod| pod["status"]["phase"] == "Running").await;
    cluster.delete(&format!("{CORE}/pods/computing"), json!({})).await;
    cluster.count("/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims", 0).await;
}

async fn certificates_and_tokens(cluster: &Cluster) {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::default();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "system:node:node-0");
    let request = parameters.serialize_request(&key).expect("a request").pem().expect("PEM");
    let request = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, request);
    let spec = json!({"spec": {"request": request, "usages": ["digital signature", "client auth"],
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet"}});
    cluster.make(REQUESTS, "kubelet", spec).await;
    cluster.until(&format!("{REQUESTS}/kubelet"), |request| request["status"]["certificate"].is_string()).await;

    const SYSTEM: &str = "/api/v1/namespaces/kube-system";
    let kubeconfig = json!({"data": {"kubeconfig": "{apiVersion: v1, kind: Config}"}});
    cluster.make("/api/v1/namespaces/kube-public/configmaps", "cluster-info", kubeconfig).await;
    let token = |id: &str, until: &str| {
        json!({"type": "bootstrap.kubernetes.io/token", "stringData": {"token-id": id, "expiration": until,
            "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"}})
    };
    cluster.make(&format!("{SYSTEM}/secrets"), "bootstrap-token-abcdef", token("abcdef", "2999-01-01T00:00:00Z")).await;
    cluster.make(&format!("{SYSTEM}/secrets"), "bootstrap-token-passed", token("passed", "2020-01-01T00:00:00Z")).await;
    let signed = |map: &Value| map["data"]["jws-kubeconfig-abcdef"].is_string();
    cluster.until("/api/v1/namespaces/kube-public/configmaps/cluster-info", signed).await;
    cluster.gone(&format!("{SYSTEM}/secrets/bootstrap-token-passed")).await;

    let secret = json!({"type": "kubernetes.io/service-account-token",
        "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}}});
    cluster.make(&format!("{CORE}/secrets"), "token", secret).await;
    cluster.until(&format!("{CORE}/secrets/token"), |secret| secret["data"]["token"].is_string()).await;
    cluster.delete(&format!("{CORE}/serviceaccounts/default"), json!({})).await;
    cluster.gone(&format!("{CORE}/secrets/token")).await;
    cluster.count(&format!("{CORE}/serviceaccounts"), 1).await;

    let policy = json!({"spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["deployments"]}]},
        "validations": [{"expression": "object.spec.replicas < 1000"}]}});
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    cluster.make(POLICIES, "few", policy).await;
    cluster.until(&format!("{POLICIES}/few"), |policy| policy["status"]["typeChecking"].is_object()).await;
    const RANGES: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    cluster.make(RANGES, "more", json!({"spec": {"cidrs": ["192.168.128.0/24"]}})).await;
    cluster.until(&format!("{RANGES}/more"), |range| range["status"]["conditions"][0]["status"] == "True").await;
    cluster.delete(&format!("{RANGES}/more"), json!({})).await;
    cluster.gone(&format!("{RANGES}/more")).await;
}

/// Owners of a custom kind are deleted with each of the three propagation policies.
async fn owners(cluster: &Cluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let spec = json!({"spec": {"group": "shop.example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    cluster.make(definitions, "widgets.shop.example.com", spec).await;
    let widgets = "/apis/shop.example.com/v1/namespaces/shop/widgets";
    for (policy, left) in [("Foreground", 0), ("Background", 0), ("Orphan", 1)] {
        let kind = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget"});
        let uid = cluster.make(widgets, "w", kind).await["metadata"]["uid"].clone();
        let owner = json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "name": "w", "uid": uid,
            "blockOwnerDeletion": true});
        let owned = json!({"metadata": {"labels": {"owned": "yes"}, "ownerReferences": [owner]}});
        cluster.make(&format!("{CORE}/configmaps"), "owned", owned).await;
        cluster.delete(&format!("{widgets}/w"), json!({"propagationPolicy": policy})).await;
        cluster.gone(&format!("{widgets}/w")).await;
        cluster.count(&format!("{CORE}/configmaps?labelSelector=owned=yes"), left).await;
    }
    let kept = cluster.admin.get(&format!("{CORE}/configmaps/owned")).await.expect(200).json();
    assert_eq!(kept["metadata"]["ownerReferences"], Value::Null);
}

/// Pods leave a node by eviction, because of a taint, and because the node is deleted.
async fn nodes(cluster: &Cluster) {
    let node = cluster.until("/api/v1/nodes/node-1", |node| node["spec"]["podCIDR"].is_string()).await;
    assert_eq!(node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"], "0");
    cluster.patch("/api/v1/nodes/node-1", json!({"spec": {"unschedulable": true}})).await;
    let on = |node: &str| format!("{CORE}/pods?labelSelector=app=web&fieldSelector=spec.nodeName={node}");
    let list = cluster.admin.get(&on("node-1")).await.expect(200).json();
    for pod in list["items"].as_array().into_iter().flatten() {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        eventually(PATIENCE, || async {
            match cluster.admin.post(&format!("{CORE}/pods/{name}/eviction"), &eviction).await.code {
                201 | 404 => Ok(()),
                code => Err(code),
            }
        })
        .await;
    }
    cluster.count(&on("node-1"), 0).await;
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}], "unschedulable": false}});
    cluster.patch("/api/v1/nodes/node-2", taint).await;
    cluster.count(&on("node-2"), 0).await;
    cluster.delete("/api/v1/nodes/node-0", json!({})).await;
    cluster.count(&on("node-0"), 0).await;
    cluster.patch("/api/v1/nodes/node-1", json!({"spec": {"unschedulable": null}})).await;
    cluster.until(&format!("{APPS}/deployments/web"), |web| web["status"]["readyReplicas"] == 3).await;
}
