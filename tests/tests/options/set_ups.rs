//! The option sets of common installers start the server, and wrong values are refused by name.

use super::text_of;
use holdfast_tests::authority::{Authority, Pair};
use holdfast_tests::server::{binary, holdfast, succeeds};
use holdfast_tests::wire::HttpClient;
use holdfast_tests::{Folder, Server};
use http::Method;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Options about etcd and about connections to nodes, which these tests leave out.
const LEFT_OUT: [&str; 3] = ["--etcd-", "--kubelet-", "--egress-selector-config-file=/"];

/// A running `holdfast apiserver`, killed with the test.
struct ApiServer {
    child: Child,
    admin: HttpClient,
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
    /// Starts a server with an installer's options from a file, in a folder with the files that the options name.
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
        let admin = HttpClient {
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
    // All faults are reported, although one of the options cannot be parsed.
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
