//! One etcd for all servers of a test file, if `STORE=etcd` is set: then the same tests show that servers on etcd
//! behave like servers with a local log.

use super::{Cluster, NEWEST};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// Whether servers without an etcd option of their own use the shared etcd.
pub fn is_asked_for() -> bool {
    match std::env::var("STORE").as_deref() {
        Err(_) | Ok("") => false,
        Ok("etcd") => true,
        Ok(other) => panic!("STORE={other}: tests run with STORE=etcd, or without it on logs in data folders"),
    }
}

/// The options of a server on this data folder. Each folder has a prefix of its own, so a server finds the objects of
/// the previous server on the same folder, and need not wait for the leases of servers on other folders.
pub fn options(data: &Path) -> [String; 3] {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    [
        format!("--etcd-servers={}", cluster().urls()),
        format!("--etcd-prefix=/folders/{:016x}", hasher.finish()),
        "--leader-elect=false".to_owned(),
    ]
}

/// The cluster, which starts when the first test needs it.
pub fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<(Cluster, Child)> = OnceLock::new();
    let (cluster, _) = CLUSTER.get_or_init(|| {
        // Nothing survives the test, so nothing need reach the disk.
        let cluster = Cluster::start(NEWEST, 1, &["--unsafe-no-fsync"]);
        let watcher = end_with_this_process(&cluster);
        (cluster, watcher)
    });
    cluster
}

/// A shell that ends the cluster when this process has ended, however it ended: only this process holds the other end
/// of the shell's standard input.
fn end_with_this_process(cluster: &Cluster) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"read -r _; kill -s KILL "$1"; sleep 0.2; rm -rf "$2""#, "sh"]);
    shell.arg(cluster.members[0].pid().to_string()).arg(cluster.folder.path());
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().expect("run sh")
}
