//! `/healthz`, `/livez` and `/readyz`: checks by name, and what they come to.

use crate::query::Query;
use crate::respond::{self, Response};
use crate::transport::Transport;
use holdfast_engine::Health;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Paths of health.
pub const PATHS: [&str; 3] = ["healthz", "livez", "readyz"];

/// What is looked at besides what every server has. It says why not, where something is not as it should be.
#[derive(Clone)]
pub struct Check {
    pub name: String,
    /// Of [`PATHS`].
    pub paths: &'static [&'static str],
    pub check: Arc<dyn Fn() -> Result<(), String> + Send + Sync>,
}

/// The checks of every server. `etcd` is asked for by those who know where other API servers keep their objects.
const CHECKS: &[&str] = &["etcd", "log", "ping", "writer"];
/// What is done once at the start, by the names that Kubernetes has for it.
const HOOKS: &[&str] = &[
    "poststarthook/bootstrap",
    "poststarthook/bootstrap-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
];
/// How long the writer may take to answer before it counts as dead.
const WRITER_PATIENCE: Duration = Duration::from_secs(10);

/// How the log is, and who writes it.
struct LogHealth {
    writer: Health,
    readable: Result<(), String>,
}

impl LogHealth {
    async fn look(transport: &Transport, path: &str) -> LogHealth {
        let readable = match path {
            // Many who read, or a slow disk, are nothing that a restart would cure.
            "livez" => Ok(()),
            _ => {
                let log = transport.engine().log().clone();
                transport.engine().reads().run(move || log.last().map(drop).map_err(|fault| fault.to_string())).await
            }
        };
        LogHealth { writer: transport.engine().health(WRITER_PATIENCE).await, readable }
    }

    fn writer(&self) -> Result<(), String> {
        match &self.writer {
            Health::Dead(why) => Err(why.clone()),
            Health::Well | Health::ReadOnly(_) => Ok(()),
        }
    }

    fn log(&self, path: &str) -> Result<(), String> {
        match &self.writer {
            // A full disk is nothing that a restart would cure.
            Health::ReadOnly(why) if path != "livez" => Err(why.clone()),
            _ => self.readable.clone(),
        }
    }
}

impl Transport {
    /// The names of the checks of a path.
    pub(crate) fn checks(&self, path: &str) -> impl Iterator<Item = &str> {
        let own = CHECKS.iter().chain(HOOKS).copied();
        let stopping = (path == "readyz").then_some("shutdown");
        let more = self.more_checks.iter().filter(move |check| check.paths.contains(&path));
        own.chain(stopping).chain(more.map(|check| check.name.as_str()))
    }

    fn check(&self, path: &str, log: &LogHealth, name: &str) -> Result<(), String> {
        match name {
            "writer" => log.writer(),
            "log" => log.log(path),
            "etcd" => log.writer().and_then(|()| log.log(path)),
            "shutdown" if self.leaving.load(Ordering::Relaxed) => Err("the server is stopping".into()),
            hook if HOOKS.contains(&hook) => match *self.ready.borrow() {
                true => Ok(()),
                // A start takes its time, and a restart would not shorten it.
                false if path == "livez" && self.started.elapsed() < self.manners.livez_grace => Ok(()),
                false => Err("not finished".into()),
            },
            _ => match self.more_checks.iter().find(|check| check.name == name) {
                Some(more) => (more.check)(),
                None => Ok(()),
            },
        }
    }
}

/// Answers a path, or one check of it.
pub async fn answer(transport: &Transport, path: &str, wanted: &str, query: &Query) -> Response {
    let log = LogHealth::look(transport, path).await;
    let check = |name: &str| transport.check(path, &log, name);
    if !wanted.is_empty() {
        if !transport.checks(path).any(|name| name == wanted) {
            return respond::plain_error(404, "404 page not found");
        }
        return match check(wanted) {
            Ok(()) => respond::text(200, "ok"),
            Err(why) => respond::text(500, format!("internal server error: {why}\n")),
        };
    }
    let (mut lines, mut failed) = (String::new(), false);
    let mut unknown: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    for name in transport.checks(path) {
        if query.all("exclude").any(|excluded| excluded == name) {
            unknown.retain(|excluded| *excluded != name);
            _ = writeln!(lines, "[+]{name} excluded: ok");
            continue;
        }
        match check(name) {
            Ok(()) => _ = writeln!(lines, "[+]{name} ok"),
            Err(why) => {
                failed = true;
                _ = writeln!(lines, "[-]{name} failed: {why}");
            }
        }
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        _ = writeln!(lines, "warn: some health checks cannot be excluded: no matches for {}", names.join(","));
    }
    match (failed, query.get("verbose").is_some()) {
        (true, _) => respond::text(500, format!("{lines}{path} check failed\n")),
        (false, true) => respond::text(200, format!("{lines}{path} check passed\n")),
        (false, false) => respond::text(200, "ok"),
    }
}

/// The text of `/metrics/slis`: whether each check of each path is well.
pub async fn metrics(transport: &Transport) -> String {
    let mut text = String::from(
        "# HELP kubernetes_healthcheck Whether a check of health is well\n# TYPE kubernetes_healthcheck gauge\n",
    );
    for path in PATHS {
        let log = LogHealth::look(transport, path).await;
        for name in transport.checks(path) {
            let well = u8::from(transport.check(path, &log, name).is_ok());
            _ = writeln!(text, "kubernetes_healthcheck{{name=\"{name}\",type=\"{path}\"}} {well}");
        }
    }
    text.push_str("# EOF\n");
    text
}
