//! kine, which speaks etcd's protocol and accepts only the transactions that Kubernetes makes. `tests/etcd/kine` pins
//! the version of kine. The store of kine is in memory, or an SQLite database.

use super::{etcdctl_of, free_port, place};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY_MAX: Duration = Duration::from_secs(30);

/// A running kine. When dropped, it is killed.
pub struct Kine {
    child: Child,
    port: u16,
    database: Option<PathBuf>,
}

impl Kine {
    /// Starts kine with its store in memory.
    pub fn start() -> Kine {
        Kine::at(free_port(), None)
    }

    /// Starts kine with this SQLite database.
    pub fn on(database: &Path) -> Kine {
        Kine::at(free_port(), Some(database.to_owned()))
    }

    fn at(port: u16, database: Option<PathBuf>) -> Kine {
        let mut command = Command::new(place("kine", "kine"));
        command.arg(format!("127.0.0.1:{port}")).args(&database);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let kine = Kine { child, port, database };
        let deadline = Instant::now() + READY_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "kine does not answer within {READY_MAX:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        kine
    }

    /// Kills kine, and starts it again with the same database at the same address.
    pub fn restart(&mut self) {
        self.kill();
        *self = Kine::at(self.port, self.database.clone());
    }

    fn kill(&mut self) {
        // An error means that kine has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs etcdctl against kine and returns the output. kine supports `get` and `put`.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        crate::server::succeeds(etcdctl_of(&self.url()).args(arguments).output().expect("run etcdctl"))
    }
}

impl Drop for Kine {
    fn drop(&mut self) {
        self.kill();
    }
}
