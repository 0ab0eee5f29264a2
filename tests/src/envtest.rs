//! Does what controller-runtime's envtest does with `KUBEBUILDER_ASSETS`: the same programs, options, files and polls.

use crate::authority::{Authority, Pair};
use crate::server::{binary, succeeds};
use crate::wire::HttpClient;
use bytes::Bytes;
use http::Method;
use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which envtest polls a program's health.
const POLL: Duration = Duration::from_millis(100);
/// How long envtest polls a program's health before it gives up.
const START_MAX: Duration = Duration::from_secs(20);
/// How long a program may take to stop.
const STOP_MAX: Duration = Duration::from_secs(20);

/// The folder that `holdfast envtest` prints.
pub fn assets(cache: &Path) -> PathBuf {
    let mut command = Command::new(binary());
    command.arg("envtest").env("XDG_CACHE_HOME", cache).stdin(Stdio::null());
    succeeds(command.output().expect("run holdfast")).trim_end().into()
}

/// A free port that no other test of this process gets.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("its address").port();
        if given.insert(port) {
            return port;
        }
    }
}

pub fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A program of the assets, killed when dropped.
pub struct Program(Child);

impl Program {
    pub fn start(path: &Path, arguments: &[String]) -> Program {
        let mut command = Command::new(path);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Program(command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("wait for a program").is_some()
    }

    /// Sends SIGTERM, and waits for the end.
    pub async fn stop(mut self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.pid().to_string()]).status().expect("run kill");
        assert!(sent.success());
        let deadline = Instant::now() + STOP_MAX;
        while !self.has_ended() {
            assert!(Instant::now() < deadline, "still running {STOP_MAX:?} after it was to stop");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(self.0.wait().expect("its end").code(), Some(0));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A control plane that is started as `envtest.Environment` starts it.
pub struct ControlPlane {
    pub cert_dir: PathBuf,
    pub port: u16,
    pub etcd_port: u16,
    pub etcd: Program,
    pub server: Program,
    /// The authority that signs client certificates.
    clients: Authority,
    /// A client without credentials.
    pub wire: HttpClient,
}

/// The settings of a suite, as far as suites differ.
#[derive(Default)]
pub struct SuiteSettings<'a> {
    /// Options of kube-apiserver in addition to the options that envtest passes.
    pub options: &'a [&'a str],
    /// Whether writes are flushed to the disk, so that events outlive the process. envtest turns this off if etcd's
    /// help lists `--unsafe-no-fsync`.
    pub fsync: bool,
}

impl ControlPlane {
    pub async fn start(assets: &Path, cert_dir: &Path, wanted: &SuiteSettings<'_>) -> ControlPlane {
        std::fs::create_dir_all(cert_dir).expect("a folder for certificates");
        let (port, etcd_port) = (free_port(), free_port());
        let etcd = start_etcd(assets, etcd_port, cert_dir, wanted.fsync).await;
        let clients = write_certificates(cert_dir);
        let path = assets.join("kube-apiserver");
        let help = help(&path);
        assert!(!help.lines().any(|line| line.trim_start().starts_with("--insecure-port")), "{help}");
        let mut server = Program::start(&path, &arguments(cert_dir, port, etcd_port, wanted.options));
        let authority = std::fs::read_to_string(cert_dir.join("apiserver.crt")).expect("a certificate");
        let wire = HttpClient {
            address: format!("127.0.0.1:{port}"),
            authority,
            server_name: "localhost".into(),
            identity: None,
            token: None,
            http2: false,
            tls: rustls::ALL_VERSIONS,
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            let answer = wire.try_send(Method::GET, "/healthz", &[], Bytes::new()).await;
            if answer.is_ok_and(|answer| answer.code == 200) {
                break;
            }
            assert!(!server.has_ended(), "kube-apiserver ended before it was well");
            assert!(Instant::now() < deadline, "kube-apiserver is not well");
            tokio::time::sleep(POLL).await;
        }
        let plane = ControlPlane { cert_dir: cert_dir.to_owned(), port, etcd_port, etcd, server, clients, wire };
        // envtest waits for this namespace before it returns.
        plane.admin().get("/api/v1/namespaces/default").await.expect(200);
        plane
    }

    /// Like envtest's `AddUser`: makes a certificate of the clients' authority while the server runs.
    pub fn user(&self, name: &str, groups: &[&str]) -> HttpClient {
        self.wire.clone().with_identity(self.clients.client(name, groups))
    }

    pub fn admin(&self) -> HttpClient {
        self.user("admin", &["system:masters"])
    }

    /// Stops both programs in envtest's order.
    pub async fn stop(self) {
        self.server.stop().await;
        self.etcd.stop().await;
    }
}

async fn start_etcd(assets: &Path, port: u16, folder: &Path, fsync: bool) -> Program {
    let path = assets.join("etcd");
    assert!(help(&path).lines().any(|line| line.trim_start().starts_with("--unsafe-no-fsync")));
    let mut arguments = vec![
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".into(),
    ];
    if !fsync {
        arguments.push("--unsafe-no-fsync=true".into());
    }
    let mut etcd = Program::start(&path, &arguments);
    let deadline = Instant::now() + START_MAX;
    while health(port).await != Some(200) {
        assert!(!etcd.has_ended(), "etcd ended before it was well");
        assert!(Instant::now() < deadline, "etcd is not well");
        tokio::time::sleep(POLL).await;
    }
    etcd
}

/// The status code of etcd's `/health`.
async fn health(port: u16) -> Option<u16> {
    use hyper_util::rt::TokioIo;
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let request = http::Request::get("/health").header("host", "127.0.0.1");
    let request = request.body(http_body_util::Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.ok()?;
    connection.abort();
    Some(answer.status().as_u16())
}

/// The options that envtest passes to kube-apiserver, with the options of the suite.
pub fn arguments(cert_dir: &Path, port: u16, etcd_port: u16, options: &[&str]) -> Vec<String> {
    let file = |name: &str| cert_dir.join(name).display().to_string();
    let mut arguments = vec![
        "--allow-privileged=true".into(),
        "--authorization-mode=RBAC".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--cert-dir={}", cert_dir.display()),
        format!("--client-ca-file={}", file("client-cert-auth-ca.crt")),
        "--disable-admission-plugins=ServiceAccount".into(),
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        format!("--service-account-issuer=https://127.0.0.1:{port}/"),
        format!("--service-account-key-file={}", file("sa-signer.crt")),
        format!("--service-account-signing-key-file={}", file("sa-signer.key")),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
    ];
    arguments.extend(options.iter().map(|option| (*option).to_owned()));
    arguments
}

/// Writes the files that envtest creates before it starts kube-apiserver; returns the authority of clients.
pub fn write_certificates(cert_dir: &Path) -> Authority {
    let write = |name: &str, text: &str| std::fs::write(cert_dir.join(name), text).expect("write a file");
    // If the folder is used again, the server's pair exists already.
    if !cert_dir.join("apiserver.crt").exists() {
        let servers = Authority::new("envtest-environment");
        let Pair { certificate, key } = servers.server(&["localhost", "127.0.0.1"]);
        write("apiserver.crt", &(certificate + servers.pem()));
        write("apiserver.key", &key);
        let Pair { certificate, key } = servers.client("sa-signer", &[]);
        write("sa-signer.crt", &certificate);
        write("sa-signer.key", &key);
    }
    let clients = Authority::new("envtest-clients");
    write("client-cert-auth-ca.crt", clients.pem());
    clients
}

fn help(path: &Path) -> String {
    let Output { status, mut stdout, stderr } = Command::new(path).arg("--help").output().expect("run a program");
    assert!(status.success());
    stdout.extend(stderr);
    String::from_utf8(stdout).expect("UTF-8")
}
