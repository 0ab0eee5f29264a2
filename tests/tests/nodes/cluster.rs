//! A server with a node whose kubelet is in this process.

use holdfast_tests::authority::Authority;
use holdfast_tests::kubelet::{Kubelet, address};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server, clients};
use http::Method;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const PODS: &str = "/api/v1/namespaces/default/pods";

pub struct Cluster {
    pub server: Server,
    pub admin: HttpClient,
    pub kubelet: Kubelet,
    pub authority: Authority,
    _folder: Folder,
}

impl Cluster {
    /// A server with a node whose kubelet is in this process, and a pod on this node for each name. Returns `None` if
    /// this machine has no address but loopback.
    pub async fn start(pods: &[&str]) -> Option<Cluster> {
        Cluster::start_with(pods, &[]).await
    }

    /// Like [`Cluster::start`], with more options of the server.
    pub async fn start_with(pods: &[&str], options: &[&str]) -> Option<Cluster> {
        let address = address()?;
        let (folder, authority) = (Folder::new(), Authority::new("kubelets"));
        std::fs::create_dir_all(folder.path()).expect("a folder");
        let ca = folder.join("kubelets.crt");
        std::fs::write(&ca, authority.pem()).expect("written");
        let (certificate, key) = authority.client("kube-apiserver-kubelet-client", &[]).write(folder.path(), "client");
        let kubelet = Kubelet::start(address, &authority, &address.to_string()).await;
        let own = [
            &format!("--kubelet-certificate-authority={}", ca.display()),
            &format!("--nodeagent-client-certificate={}", certificate.display()),
            &format!("--kubelet-client-key={}", key.display()),
            "--kubelet-preferred-address-types=InternalIP,Hostname",
        ];
        let server = Server::start(&folder.join("data"), &[&own[..], options].concat());
        let admin = HttpClient { http2: false, ..HttpClient::admin(&server) };
        let cluster = Cluster { server, admin, kubelet, authority, _folder: folder };
        cluster.node("n", &address.to_string(), cluster.kubelet.address.port()).await;
        for name in pods {
            cluster.pod(name, "n").await;
        }
        Some(cluster)
    }

    pub async fn node(&self, name: &str, address: &str, port: u16) {
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status});
        self.admin.post("/api/v1/nodes", &node).await.expect(201);
    }

    pub async fn pod(&self, name: &str, node: &str) {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        if !node.is_empty() {
            spec["nodeName"] = node.into();
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.admin.post(PODS, &pod).await.expect(201);
        // The test writes the status that a real kubelet would write.
        let path = format!("{PODS}/{name}/status");
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let patch = [("content-type", "application/merge-patch+json")];
        self.admin.send(Method::PATCH, &path, &patch, status.to_string()).await.expect(200);
    }

    /// Grants a user the right to read the subresources that lead to nodes, and the nodes' proxy, and nothing else.
    pub async fn let_read(&self, user: &str) {
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods/attach", "pods/exec", "pods/portforward", "pods/log", "nodes/proxy"],
                "verbs": ["get"]},
        ]);
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "reader"}, "rules": rules});
        self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await.expect(201);
        let group = "rbac.authorization.k8s.io";
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"}, "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
            "roleRef": {"kind": "ClusterRole", "name": "reader", "apiGroup": group}});
        self.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    }

    pub fn kubectl(&self, version: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(clients().join(format!("kubectl-{version}")));
        command.arg("--kubeconfig").arg(self.server.kubeconfig()).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs kubectl with this input; returns its exit code, output and errors.
    pub fn run(
        &self,
        version: &str,
        environment: (&str, &str),
        arguments: &[&str],
        input: &str,
    ) -> (i32, String, String) {
        let mut command = self.kubectl(version, arguments);
        let mut child = command.env(environment.0, environment.1).spawn().expect("kubectl runs");
        let mut stdin = child.stdin.take().expect("piped");
        let input = input.to_owned();
        let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let output = child.wait_with_output().expect("it ends");
        writing.join().expect("written");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    /// A WebSocket to a path with this protocol.
    pub async fn websocket(&self, path: &str, protocol: &str) -> WebSocketStream<TokioIo<hyper::upgrade::Upgraded>> {
        self.websocket_with(path, protocol, &[]).await
    }

    /// Like [`Cluster::websocket`], with more headers in the request.
    pub async fn websocket_with(
        &self,
        path: &str,
        protocol: &str,
        more: &[(&str, &str)],
    ) -> WebSocketStream<TokioIo<hyper::upgrade::Upgraded>> {
        let mut headers = websocket_headers(protocol);
        headers.extend(more);
        let response = self.admin.open(Method::GET, path, &headers, Default::default()).await.expect("an answer");
        assert_eq!(response.status(), 101, "{path}");
        assert_eq!(
            response.headers().get("sec-websocket-protocol").map_or("", |chosen| chosen.to_str().unwrap()),
            protocol
        );
        let upgraded = hyper::upgrade::on(response).await.expect("upgraded");
        WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await
    }
}

pub fn websocket_headers(protocol: &str) -> Vec<(&str, &str)> {
    let mut headers = vec![
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    if !protocol.is_empty() {
        headers.push(("sec-websocket-protocol", protocol));
    }
    headers
}

/// The installed versions of kubectl, each with its environment.
pub const KUBECTLS: [(&str, (&str, &str)); 3] = [
    ("1.20", ("X", "")),
    ("1.37", ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "true")),
    ("1.37", ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")),
];

pub fn here(version: &str) -> bool {
    clients().join(format!("kubectl-{version}")).exists()
}
