//! Real etcd servers on the loopback address: clusters of one or several members, which can be killed, paused and
//! restarted, and proxies that interrupt or delay connections to them.

mod kine;
mod member;
mod proxy;
pub mod receipts;
pub mod shared;

pub use kine::Kine;
pub use member::Member;
pub use proxy::Proxy;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a cluster may take to elect a leader and answer.
const READY_MAX: Duration = Duration::from_secs(60);

/// The newest release, which every test run has.
pub const NEWEST: &str = "3.6";

/// The files of a cluster with TLS. Clients must show a certificate of the same authority.
#[derive(Clone)]
pub struct TlsFiles {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A cluster. When dropped, its members are killed, and the ends of their logs are printed if the test is failing.
pub struct Cluster {
    version: String,
    files: Option<TlsFiles>,
    members: Vec<Member>,
    /// The proxies between the members, one in front of each member, if the members can be cut off from each other.
    peers: Vec<Proxy>,
    /// The ids with which the members name themselves to each other, by position.
    ids: Vec<String>,
    // The folder is dropped after the members, because they write to the folder.
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts a cluster with one member of the newest release.
    pub fn single() -> Cluster {
        Cluster::start(NEWEST, 1, &[])
    }

    /// Starts a cluster of a release, with more options, and waits until all members answer.
    pub fn start(version: &str, count: usize, options: &[&str]) -> Cluster {
        Cluster::start_with(version, count, options, None, false)
    }

    /// Members of the newest release that can be cut off from each other.
    pub fn partitionable(count: usize) -> Cluster {
        Cluster::start_with(NEWEST, count, &[], None, true)
    }

    /// Starts a cluster with one member, which uses TLS.
    pub fn secured(files: TlsFiles) -> Cluster {
        Cluster::start_with(NEWEST, 1, &[], Some(files), false)
    }

    fn start_with(
        version: &str,
        count: usize,
        options: &[&str],
        files: Option<TlsFiles>,
        has_proxies: bool,
    ) -> Cluster {
        let folder = tempfile::Builder::new().prefix("holdfast-etcd-").tempdir().expect("a temporary folder");
        let places: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let proxies: Vec<Proxy> = places.iter().filter(|_| has_proxies).map(|(_, peer)| Proxy::to(*peer)).collect();
        let peers: Vec<String> = match has_proxies {
            true => proxies.iter().map(Proxy::url).collect(),
            false => places.iter().map(|(_, peer)| format!("http://127.0.0.1:{peer}")).collect(),
        };
        let start = |(at, place): (usize, &(u16, u16))| {
            let program = program(version, "etcd");
            Member::start(program, folder.path(), at, *place, &peers, options, files.as_ref())
        };
        let members = places.iter().enumerate().map(start).collect();
        let (version, files) = (version.to_owned(), files.clone());
        let mut cluster = Cluster { version, files, members, peers: proxies, ids: Vec::new(), folder };
        for at in 0..count {
            cluster.await_ready(at);
        }
        if has_proxies {
            cluster.ids = (0..count).map(|at| cluster.id(at)).collect();
        }
        cluster
    }

    /// Saves a snapshot of a cluster of one member to a file.
    pub fn save(&self, file: &Path) {
        let saved = self.run_ctl(&self.members[0].url(), &["snapshot", "save", text(file)]);
        crate::server::succeeds(saved);
    }

    /// Replaces the data of a cluster of one member by a snapshot, like an operator, with more options of `etcdutl
    /// snapshot restore`.
    pub fn restore(&mut self, file: &Path, options: &[&str]) {
        let member = &mut self.members[0];
        member.kill();
        std::fs::remove_dir_all(member.data()).expect("remove the member's data");
        let mut command = Command::new(program(NEWEST, "etcdutl"));
        command.args(["snapshot", "restore", text(file)]).args(member.identity()).args(options);
        crate::server::succeeds(command.output().expect("run etcdutl"));
        self.members[0].restart();
        self.await_ready(0);
    }

    pub fn members(&mut self) -> &mut [Member] {
        &mut self.members
    }

    pub fn member(&mut self, at: usize) -> &mut Member {
        &mut self.members[at]
    }

    /// Cuts a member off from the other members, including the connections that the other members opened. Clients still
    /// reach this member.
    pub fn cut_off(&self, at: usize) {
        for (other, proxy) in self.peers.iter().enumerate() {
            if other == at { proxy.silence() } else { proxy.silence_member(&self.ids[at]) }
        }
    }

    /// Ends all cuts between members.
    pub fn heal(&self) {
        self.peers.iter().for_each(Proxy::heal);
    }

    /// The id of a member, in the form in which members name themselves to each other.
    fn id(&self, at: usize) -> String {
        let list: Value = serde_json::from_str(&self.ctl(&["member", "list", "-w", "json"])).expect("JSON");
        let name = format!("m{at}");
        let member = list["members"].as_array().into_iter().flatten().find(|member| member["name"] == name.as_str());
        format!("{:x}", member.and_then(|member| member["ID"].as_u64()).expect("a member's id"))
    }

    /// Waits until a member answers a linearizable read, which needs a leader.
    pub fn await_ready(&mut self, at: usize) {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let url = self.members[at].url();
            let output = self.run_ctl(&url, &["endpoint", "health"]);
            if output.status.success() {
                return;
            }
            self.members[at].assert_running();
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(Instant::now() < deadline, "member {at} is not ready within {READY_MAX:?}: {why}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The value of `--etcd-servers`: the URLs of all members.
    pub fn urls(&self) -> String {
        self.members.iter().map(Member::url).collect::<Vec<_>>().join(",")
    }

    /// Runs etcdctl against all members and returns its output.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        self.ctl_at(&self.urls(), arguments)
    }

    /// Runs etcdctl against these URLs, such as the URL of a proxy, and returns its output.
    pub fn ctl_at(&self, urls: &str, arguments: &[&str]) -> String {
        let mut output = self.run_ctl(urls, arguments);
        // Encrypted values are not UTF-8, so invalid bytes are replaced.
        output.stdout = String::from_utf8_lossy(&output.stdout).into_owned().into_bytes();
        crate::server::succeeds(output)
    }

    /// The events below a prefix from a revision to now.
    pub fn events(&self, prefix: &str, from_revision: u64) -> Vec<Event> {
        // The watch does not end by itself; it has shown all earlier events when it shows the write of the key `end`.
        let end = format!("{prefix}~end");
        self.ctl(&["put", &end, "end"]);
        let mut command = self.etcdctl(&self.urls());
        command.args(["watch", "--prefix", "--prev-kv", "-w", "json"]);
        command.arg(format!("--rev={from_revision}")).arg(prefix).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("run etcdctl");
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut events = Vec::new();
        'shown: for line in lines.map_while(Result::ok) {
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            for event in answer["Events"].as_array().into_iter().flatten() {
                let event = Event::read(event);
                if event.key == end {
                    break 'shown;
                }
                events.push(event);
            }
        }
        // An error means that the process has already ended.
        let _ = child.kill();
        let _ = child.wait();
        self.ctl(&["del", &end]);
        events
    }

    fn run_ctl(&self, urls: &str, arguments: &[&str]) -> Output {
        self.etcdctl(urls).arg("--command-timeout=10s").args(arguments).output().expect("run etcdctl")
    }

    fn etcdctl(&self, urls: &str) -> Command {
        // The newest etcdctl works with all releases but 3.4.
        let version = if self.version == "3.4" { "3.4" } else { NEWEST };
        let mut command = etcdctl_at(version, urls);
        if let Some(TlsFiles { authority, certificate, key }) = &self.files {
            command.arg("--cacert").arg(authority).arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        command
    }
}

/// The newest etcdctl, for another store that speaks etcd's protocol.
fn etcdctl_of(urls: &str) -> Command {
    etcdctl_at(NEWEST, urls)
}

fn etcdctl_at(version: &str, urls: &str) -> Command {
    let mut command = Command::new(program(version, "etcdctl"));
    command.env("ETCDCTL_API", "3").args(["--endpoints", urls]);
    command
}

/// An event of etcd: one write of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    pub revision: u64,
    pub is_delete: bool,
    /// Whether the key did not exist before the write.
    pub is_create: bool,
    /// The value that was written, or, for a deletion, the previous value.
    pub value: Vec<u8>,
}

impl Event {
    fn read(event: &Value) -> Event {
        let is_delete = event["type"] == 1 || event["type"] == "DELETE";
        let text = |value: &Value| STANDARD.decode(value.as_str().unwrap_or_default()).expect("base64");
        let number = |field: &str| event["kv"][field].as_u64().unwrap_or_default();
        Event {
            key: String::from_utf8(text(&event["kv"]["key"])).expect("UTF-8"),
            revision: number("mod_revision"),
            is_delete,
            is_create: !is_delete && number("create_revision") == number("mod_revision"),
            value: text(&event[if is_delete { "prev_kv" } else { "kv" }]["value"]),
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

/// Whether a release is installed: Debian has 3.4; other releases are downloaded for long tests only.
pub fn has(version: &str) -> bool {
    folder().join(version).join("etcd").exists()
}

/// A program of a release. Every release has `etcd`, 3.4 and the newest release have `etcdctl`, and only the newest
/// release has `etcdutl`.
pub fn program(version: &str, name: &str) -> PathBuf {
    let path = folder().join(version).join(name);
    assert!(
        path.exists(),
        "{} is not there: run scripts/fetch-etcd.sh {} {version}",
        path.display(),
        folder().display()
    );
    path
}

/// The path of a program that does not belong to etcd. The program is downloaded if it is missing.
fn place(of: &str, name: &str) -> PathBuf {
    static FETCHED: OnceLock<()> = OnceLock::new();
    let path = folder().join(of).join(name);
    if !path.exists() {
        FETCHED.get_or_init(|| fetch(folder(), &[of]));
    }
    path
}

fn fetch(folder: &Path, versions: &[&str]) {
    let fetch = crate::folder().join("../scripts/fetch-etcd.sh");
    let status = Command::new(fetch).arg(folder).args(versions).status().expect("run fetch-etcd.sh");
    assert!(status.success(), "etcd could not be fetched");
}

/// The folder of the releases; the newest is downloaded if it is missing.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let clients =
            std::env::var_os("HOLDFAST_CLIENTS").map_or_else(|| crate::server::target().join("clients"), PathBuf::from);
        let folder = clients.join("etcd");
        if !folder.join(NEWEST).join("etcd").exists() {
            fetch(&folder, &[]);
        }
        folder
    })
}

/// A free port. If another process takes it before the member starts, the member fails to start.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}
