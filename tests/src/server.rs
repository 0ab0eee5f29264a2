//! The real binary in a folder of its own: starts, stops, kills and restarts it.

use crate::etcd::shared;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// How long a server may take to become ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to stop.
const STOP_MAX: Duration = Duration::from_secs(20);

/// A data folder that is deleted with the test. Several servers may use it, one after another.
pub struct Folder(tempfile::TempDir);

impl Folder {
    #[expect(clippy::new_without_default, reason = "a default that makes a folder on the disk would surprise")]
    pub fn new() -> Folder {
        Folder(tempfile::Builder::new().prefix("holdfast-test-").tempdir().expect("a temporary folder"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// A running `holdfast up`. When dropped, it is killed, and its output is printed if the test is failing.
pub struct Server {
    child: Child,
    url: String,
    kubeconfig: PathBuf,
    ready_in: Duration,
    stderr: Arc<Mutex<String>>,
}

/// A server that ended before it was ready.
#[derive(Debug)]
pub struct Refused {
    pub status: ExitStatus,
    pub stderr: String,
}

impl Server {
    /// Starts a server on the folder, with more options, and waits until it is ready. No controller runs unless an
    /// option names some. With `STORE=etcd` its objects are in etcd, unless an option names an etcd.
    pub fn start(data: &Path, options: &[&str]) -> Server {
        match Server::try_start(data, options) {
            Ok(server) => server,
            Err(refused) => panic!("the server ended with {}:\n{}", refused.status, refused.stderr),
        }
    }

    /// Like [`Server::start`], for a server that may refuse to start.
    pub fn try_start(data: &Path, options: &[&str]) -> Result<Server, Refused> {
        Server::spawn(Server::command(data, options))
    }

    /// The command that [`Server::start`] runs. On etcd, all servers of a test process have the same keys.
    pub fn command(data: &Path, options: &[&str]) -> Command {
        if options.iter().any(|option| option.starts_with("--etcd-servers")) {
            crate::keys::share(data);
        }
        let mut command = Command::new(binary());
        command.args(["up", "--port", "0", "--data-dir"]).arg(data).args(options);
        if !options.iter().any(|option| option.starts_with("--controllers")) {
            command.arg("--controllers=-*");
        }
        if shared::is_asked_for() && !options.iter().any(|option| option.starts_with("--etcd-servers")) {
            command.args(shared::options(data));
        }
        command
    }

    /// Runs a command that starts a server.
    pub fn spawn(mut command: Command) -> Result<Server, Refused> {
        let began = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let stderr = Arc::new(Mutex::new(String::new()));
        let errors = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let kept = stderr.clone();
        let reader = std::thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                let mut kept = lock(&kept);
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        let lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut server =
            Server { child, url: String::new(), kubeconfig: PathBuf::new(), ready_in: Duration::ZERO, stderr };
        loop {
            match receiver.recv_timeout(READY_MAX.saturating_sub(began.elapsed())) {
                Ok(line) => {
                    if let Some((url, kubeconfig)) = ready_line(&line) {
                        (server.url, server.kubeconfig) = (url, kubeconfig);
                        server.ready_in = began.elapsed();
                        return Ok(server);
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("not ready within {READY_MAX:?}:\n{}", server.stderr()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = server.child.wait().expect("wait for the server");
        let _ = reader.join();
        Err(Refused { status, stderr: server.stderr() })
    }

    /// The server's URL, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The time from its start to the line that reports it ready.
    pub fn ready_in(&self) -> Duration {
        self.ready_in
    }

    /// The server's standard error so far.
    pub fn stderr(&self) -> String {
        lock(&self.stderr).clone()
    }

    /// A client with the administrator's certificate.
    pub async fn client(&self) -> kube::Client {
        let text = Kubeconfig::read_from(&self.kubeconfig).expect("read the kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a usable kubeconfig");
        // Refusals must be visible, so the client does not retry.
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// Sends a signal by its name: `TERM`, `INT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().expect("run kill");
        assert!(sent.success(), "kill -s {name} {} failed", self.pid());
    }

    /// Stops the server, and expects a clean exit.
    pub fn stop(mut self) {
        self.signal("TERM");
        let status = self.wait();
        assert_eq!(status.code(), Some(0), "the server ended with {status}:\n{}", self.stderr());
    }

    /// Waits for the end of a stopping server.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + STOP_MAX;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for the server") {
                return status;
            }
            assert!(Instant::now() < deadline, "still running {STOP_MAX:?} after it was to stop:\n{}", self.stderr());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process, like a power failure.
    pub fn kill(mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("wait for the server");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the server's standard error ---\n{}---", self.stderr());
        }
    }
}

/// Runs the binary with these arguments, and waits until it ends.
pub fn holdfast<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Output {
    Command::new(binary()).args(arguments).stdin(Stdio::null()).output().expect("run holdfast")
}

/// The output of a command that must succeed.
#[track_caller]
pub fn succeeds(output: Output) -> String {
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Expects that a command fails, with an error message that contains all of these parts.
#[track_caller]
pub fn fails(output: Output, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it should not have gone well: {output:?}");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
}

/// The binary under test: `$HOLDFAST_BIN`, or the binary built beside this test, or a binary built now.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("HOLDFAST_BIN") {
            return path.into();
        }
        let beside = target().join("release/holdfast");
        if !beside.exists() {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build.args(["build", "--release", "--package", "holdfast", "--target-dir"]).arg(target());
            let status = build.current_dir(crate::folder()).status().expect("run cargo");
            assert!(status.success(), "cargo could not build holdfast");
        }
        beside
    })
}

/// Cargo's target folder, in which this test is: `TARGET/PROFILE/deps/NAME`.
pub fn target() -> PathBuf {
    let own = std::env::current_exe().expect("the test's own path");
    own.ancestors().nth(3).expect("a target folder").to_owned()
}

/// Parses the line `ready https://127.0.0.1:6443 kubeconfig /path`.
fn ready_line(line: &str) -> Option<(String, PathBuf)> {
    let (url, kubeconfig) = line.strip_prefix("ready ")?.split_once(" kubeconfig ")?;
    Some((url.to_owned(), kubeconfig.into()))
}

fn lock(text: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    text.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
