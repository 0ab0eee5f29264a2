//! A member of an etcd cluster: a process, its folder and its ports.

use super::TlsFiles;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A member of a cluster, running or killed.
pub struct Member {
    child: Option<Child>,
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    port: u16,
    url: String,
}

impl Member {
    pub(super) fn start(
        program: PathBuf,
        folder: &Path,
        at: usize,
        (client, peer): (u16, u16),
        peers: &[String],
        options: &[&str],
        files: Option<&TlsFiles>,
    ) -> Member {
        let data = folder.join(format!("m{at}"));
        let scheme = if files.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{client}");
        let (client_url, peer_url) = (url.clone(), format!("http://127.0.0.1:{peer}"));
        let cluster: Vec<String> = peers.iter().enumerate().map(|(at, peer)| format!("m{at}={peer}")).collect();
        let mut arguments: Vec<String> = [
            ("name", format!("m{at}")),
            ("data-dir", data.display().to_string()),
            ("listen-client-urls", client_url.clone()),
            ("advertise-client-urls", client_url),
            ("listen-peer-urls", peer_url.clone()),
            ("initial-advertise-peer-urls", peers[at].clone()),
            ("initial-cluster", cluster.join(",")),
            ("logger", "zap".to_owned()),
        ]
        .map(|(name, value)| format!("--{name}={value}"))
        .into();
        if let Some(TlsFiles { authority, certificate, key }) = files {
            arguments.extend([
                format!("--cert-file={}", certificate.display()),
                format!("--key-file={}", key.display()),
                format!("--trusted-ca-file={}", authority.display()),
                "--client-cert-auth".to_owned(),
            ]);
        }
        arguments.extend(options.iter().map(|&option| option.to_owned()));
        let log = folder.join(format!("m{at}.log"));
        let mut member = Member { child: None, program, arguments, log, port: client, url };
        member.restart();
        member
    }

    /// The member's URL for clients, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The member's data folder.
    pub(super) fn data(&self) -> &Path {
        Path::new(self.option("data-dir"))
    }

    /// The options by which `etcdutl` makes a data folder of this member.
    pub(super) fn identity(&self) -> Vec<String> {
        ["name", "data-dir", "initial-cluster", "initial-advertise-peer-urls"]
            .map(|name| format!("--{name}={}", self.option(name)))
            .into()
    }

    fn option(&self, name: &str) -> &str {
        let value =
            self.arguments.iter().find_map(|given| given.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='));
        value.expect("an option of every member")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.as_ref().expect("a member that runs").id()
    }

    /// Starts the member again on its folder, unless it is running.
    pub fn restart(&mut self) {
        if self.child.is_some() {
            return;
        }
        let log = File::options().create(true).append(true).open(&self.log).expect("a file for the member's log");
        let errors = log.try_clone().expect("a second handle of the log");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        self.child = Some(child);
    }

    /// Kills the process, even a paused one, like a power failure.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that the process has already ended.
            let _ = child.kill();
            child.wait().expect("wait for the member");
        }
    }

    /// Pauses the process: its connections stay open and are not answered.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// The member's log output since the first start.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map_or_else(|_| String::new(), |log| String::from_utf8_lossy(&log).into_owned())
    }

    pub(super) fn assert_running(&mut self) {
        let ended = self.child.as_mut().map(|child| child.try_wait().expect("look after the member"));
        assert!(matches!(ended, Some(None)), "etcd ended: {ended:?}");
    }

    fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("run kill");
        assert!(sent.success(), "kill -s {name} {pid} failed");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            eprintln!("--- the end of {} ---\n{last}\n---", self.log.display());
        }
    }
}
