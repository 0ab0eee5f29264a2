//! `/healthz`, `/livez` and `/readyz`: named checks, and their combined result.

use crate::query::Query;
use crate::respond::{self, Response};
use crate::transport::lifecycle::Lifecycle;
use crate::transport::{HealthCheck, Transport};
use holdfast_engine::{Engine, Health};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

/// The paths of the health checks.
pub const PATHS: [&str; 3] = ["healthz", "livez", "readyz"];

/// The checks of every server. Scripts for other API servers query `etcd`: this check fails if the log or the writer
/// fails, and, for a log in etcd, also if etcd fails.
const CHECKS: &[&str] = &["etcd", "log", "ping", "writer"];
/// The checks that only `/readyz` has, in addition to `CHECKS`.
const READY_CHECKS: &[&str] = &["etcd-readiness", "informer-sync"];
/// The hooks that run once at the start, under Kubernetes' names. Scripts query some of these names.
const HOOKS: &[&str] = &[
    "autoregister-completion",
    "loopback-serving-certificate",
    "poststarthook/aggregator-reload-proxy-client-cert",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "poststarthook/bootstrap",
    "poststarthook/bootstrap-controller",
    "poststarthook/crd-informer-synced",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/kube-apiserver-autoregistration",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/storage-object-count-tracker-hook",
];
/// The start hooks that only a server with priority and fairness has.
const FAIR_HOOKS: &[&str] = &[
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/priority-and-fairness-filter",
];
/// The start hooks that only a server without priority and fairness has.
const UNFAIR_HOOKS: &[&str] = &["poststarthook/max-in-flight-filter"];
/// The prefix of the names of all checks of an etcd in `--etcd-servers-overrides`.
const OVERRIDE_BEGIN: &str = "etcd-override-";
/// The longer prefix of the names of the checks of such an etcd that are only for readiness.
const READY_BEGIN: &str = "etcd-override-readiness-";
/// How long the writer may take to answer before it counts as dead.
const WRITER_PATIENCE: Duration = Duration::from_secs(10);

/// The health of the writer and of the log, and the failed checks.
struct Looked {
    writer: Health,
    readable: Result<(), String>,
    /// The failed checks, each with its name and the reason.
    failed: Vec<(String, String)>,
}

impl Looked {
    /// Gets the health values that the wanted checks of a path need.
    async fn look(checks: &Checks<'_>, path: &str, wanted: impl Fn(&str) -> bool) -> Looked {
        let readable = match path {
            // Liveness does not depend on whether the log can be read, because a restart would not help against many
            // reads or a slow disk.
            "livez" => Ok(()),
            _ => {
                let log = checks.engine.log().clone();
                checks.engine.reads().run(move || log.last().map(drop).map_err(|fault| fault.to_string())).await
            }
        };
        let mut failed = Vec::new();
        // Liveness does not depend on other processes either, because a restart would not help.
        for check in checks.others.iter().filter(|check| path != "livez" && wanted(check.name())) {
            if let Err(why) = check.check().await {
                failed.push((check.name().to_owned(), why));
            }
        }
        Looked { writer: checks.engine.health(WRITER_PATIENCE).await, readable, failed }
    }

    fn other(&self, name: &str) -> Result<(), String> {
        match self.failed.iter().find(|(failed, _)| failed == name) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }

    fn writer(&self) -> Result<(), String> {
        match &self.writer {
            Health::Dead(why) => Err(why.clone()),
            Health::Well | Health::ReadOnly(_) => Ok(()),
        }
    }

    fn log(&self, path: &str) -> Result<(), String> {
        match &self.writer {
            // If the disk is full, liveness does not fail, because a restart would not help.
            Health::ReadOnly(why) if path != "livez" => Err(why.clone()),
            _ => self.readable.clone(),
        }
    }
}

/// The health checks of a server.
pub(crate) struct Checks<'a> {
    engine: &'a Engine,
    lifecycle: &'a Lifecycle,
    /// Whether the server has priority and fairness, which determines its start hooks.
    is_fair: bool,
    /// The checks in addition to the checks of every server.
    others: &'a [Arc<dyn HealthCheck>],
}

impl Checks<'_> {
    pub(crate) fn of(transport: &Transport) -> Checks<'_> {
        let is_fair = transport.service.fairness().is_some();
        let (engine, lifecycle, others) = (transport.engine(), &transport.lifecycle, transport.server_info.checks());
        Checks { engine, lifecycle, is_fair, others }
    }

    /// The names of the checks that a path has.
    pub(crate) fn names(&self, path: &str) -> impl Iterator<Item = &str> {
        let is_readiness = path == "readyz";
        let ready = READY_CHECKS.iter().filter(move |_| is_readiness);
        let own = CHECKS.iter().chain(ready).chain(HOOKS).chain(self.own_hooks()).copied();
        let others = self.others.iter().map(|check| check.name());
        let others = others.filter(|name| !CHECKS.contains(name) && !READY_CHECKS.contains(name));
        let others = others.filter(move |name| is_readiness || !name.starts_with(READY_BEGIN));
        own.chain(others).chain(is_readiness.then_some("shutdown"))
    }

    fn own_hooks(&self) -> &'static [&'static str] {
        if self.is_fair { FAIR_HOOKS } else { UNFAIR_HOOKS }
    }

    fn check(&self, path: &str, log: &Looked, name: &str) -> Result<(), String> {
        match name {
            "writer" => log.writer(),
            "log" => log.log(path),
            "etcd" | "etcd-readiness" => log.other(name).and_then(|()| log.writer()).and_then(|()| log.log(path)),
            "shutdown" if self.lifecycle.is_shutting_down() => Err("the server is stopping".into()),
            // Requests are served only after the state was loaded from the log.
            "informer-sync" => Ok(()),
            hook if HOOKS.contains(&hook) || self.own_hooks().contains(&hook) => match self.lifecycle.is_ready() {
                true => Ok(()),
                // Liveness does not fail during a long start, because a restart would not shorten the start.
                false if path == "livez" && self.lifecycle.is_within_livez_grace() => Ok(()),
                false => Err("not finished".into()),
            },
            _ => log.other(name),
        }
    }
}

/// Whether a name excludes a check. Excluding a check of the main etcd also excludes the checks of the other etcds.
fn excludes(excluded: &str, name: &str) -> bool {
    let is_ready = name.starts_with(READY_BEGIN);
    match excluded {
        _ if excluded == name => true,
        "etcd-readiness" => is_ready,
        "etcd" => !is_ready && name.starts_with(OVERRIDE_BEGIN),
        _ => false,
    }
}

/// Answers a health path, or one check of it if `wanted` names a check.
pub async fn answer(transport: &Transport, path: &str, wanted: &str, query: &Query) -> Response {
    let is_wanted = |name: &str| match wanted {
        "" => query.all("exclude").all(|excluded| !excludes(excluded, name)),
        wanted => wanted == name,
    };
    let checks = Checks::of(transport);
    let log = Looked::look(&checks, path, is_wanted).await;
    let check = |name: &str| checks.check(path, &log, name);
    if !wanted.is_empty() {
        if !checks.names(path).any(|name| name == wanted) {
            return respond::plain_error(404, "404 page not found");
        }
        return match check(wanted) {
            Ok(()) => respond::text(200, "ok"),
            Err(why) => respond::text(500, format!("internal server error: {why}\n")),
        };
    }
    let (mut lines, mut failed) = (String::new(), false);
    let mut unknown: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    for name in checks.names(path) {
        if query.all("exclude").any(|excluded| excludes(excluded, name)) {
            unknown.retain(|excluded| !excludes(excluded, name));
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

/// The text of `/metrics/slis`: whether each check of each path passes.
pub async fn metrics(transport: &Transport) -> String {
    let mut text = String::from(
        "# HELP kubernetes_healthcheck Whether a check of health is well\n# TYPE kubernetes_healthcheck gauge\n",
    );
    let checks = Checks::of(transport);
    for path in PATHS {
        let log = Looked::look(&checks, path, |_| true).await;
        for name in checks.names(path) {
            let well = u8::from(checks.check(path, &log, name).is_ok());
            _ = writeln!(text, "kubernetes_healthcheck{{name=\"{name}\",type=\"{path}\"}} {well}");
        }
    }
    text.push_str("# EOF\n");
    text
}
