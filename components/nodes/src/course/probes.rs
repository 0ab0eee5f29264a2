//! The probes of a container while its course is computed: when each probe is due, its results, and the Events about
//! its results.

use crate::behaviour::Behaviour;
use crate::behaviour::ContainerEvent;
use holdfast_shell::{Machine, OutputStream, Pid};
use holdfast_value::Value;

/// The maximum number of bytes of a probe's output that an Event contains.
const OUTPUT_BYTES_MAX: usize = 512;
/// A placeholder for the pod's address in messages. A course contains no address, because it is computed once for many
/// pods.
pub const ADDRESS: &str = "{podIP}";

/// The setting of a port's answer with which the port refuses connections.
pub const REFUSED: &str = "refused";

/// A probe of a container.
pub struct Probe {
    kind: ProbeKind,
    check: ProbeAction,
    next_ms: i64,
    period_ms: i64,
    timeout_ms: i64,
    /// The grace period that the probe itself specifies for the termination of its container.
    pub grace_ms: Option<i64>,
    /// How many successes in a row, and how many failures in a row, change the result of the probe. `found` counts the
    /// successes and the failures in a row so far.
    wanted: [u64; 2],
    found: [u64; 2],
    holds: bool,
    running: Option<Running>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

enum ProbeAction {
    Command(Vec<String>),
    /// A network probe that always fails, for the reason in the text.
    Fails(String),
}

struct Running {
    pid: Pid,
    since_ms: i64,
    output: Vec<u8>,
}

impl ProbeKind {
    const ALL: [(ProbeKind, &str, &str); 3] = [
        (ProbeKind::Startup, "startupProbe", "Startup"),
        (ProbeKind::Liveness, "livenessProbe", "Liveness"),
        (ProbeKind::Readiness, "readinessProbe", "Readiness"),
    ];

    fn name(self) -> &'static str {
        ProbeKind::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, name)| name)
    }
}

/// The probes of a container that may fail: exec probes whose program the shell knows, and network probes that fail
/// because of the annotations about ports.
pub fn of(container: &Value, behaviour: &Behaviour, with_commands: bool) -> Vec<Probe> {
    let probe = |(kind, field, _): (ProbeKind, &str, &str)| {
        let told = &container[field];
        let number =
            |field: &str, otherwise: i64| told[field].as_i64().filter(|number| *number > 0).unwrap_or(otherwise);
        let timeout_ms = number("timeoutSeconds", 1).saturating_mul(1000);
        let check = match told["exec"]["command"].as_array() {
            Some(command) => {
                let words: Vec<String> = command.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                words.first().filter(|program| with_commands && holdfast_shell::knows(program))?;
                ProbeAction::Command(words)
            }
            None => ProbeAction::Fails(over_network(container, told, behaviour, timeout_ms)?),
        };
        let times = |field: &str, otherwise: i64| u64::try_from(number(field, otherwise)).unwrap_or(1);
        Some(Probe {
            kind,
            check,
            next_ms: number("initialDelaySeconds", 0).saturating_mul(1000),
            period_ms: number("periodSeconds", 10).saturating_mul(1000),
            timeout_ms,
            grace_ms: told["terminationGracePeriodSeconds"].as_i64().map(|seconds| seconds.saturating_mul(1000)),
            wanted: [times("successThreshold", 1), times("failureThreshold", 3)],
            found: [0, 0],
            holds: kind == ProbeKind::Liveness,
            running: None,
        })
    };
    ProbeKind::ALL.into_iter().filter_map(probe).collect()
}

/// Why a network probe fails; `None` if the probe succeeds.
fn over_network(container: &Value, told: &Value, behaviour: &Behaviour, timeout_ms: i64) -> Option<String> {
    let is_refused = behaviour.answer.as_deref() == Some(REFUSED);
    let (http, tcp, grpc) = (&told["httpGet"], &told["tcpSocket"], &told["grpc"]);
    let host = |of: &Value| of["host"].as_str().filter(|host| !host.is_empty()).unwrap_or(ADDRESS).to_owned();
    let refusal = |of: &Value| {
        let address = format!("{}:{}", host(of), port(container, &of["port"]));
        (format!("dial tcp {address}: connect: connection refused"), address)
    };
    if http.is_object() {
        if is_refused {
            let (why, address) = refusal(http);
            let scheme = http["scheme"].as_str().unwrap_or("HTTP").to_ascii_lowercase();
            let path = http["path"].as_str().unwrap_or("/");
            return Some(format!("Get \"{scheme}://{address}{path}\": {why}"));
        }
        let code = behaviour.answer_code.filter(|code| !(200..400).contains(code))?;
        return Some(format!("HTTP probe failed with statuscode: {code}"));
    }
    if tcp.is_object() && is_refused {
        return Some(refusal(tcp).0);
    }
    if grpc.is_object() && is_refused {
        let address = refusal(grpc).1;
        let seconds = timeout_ms / 1000;
        return Some(format!(
            "timeout: failed to connect service {address:?} within {seconds}s: context deadline exceeded"
        ));
    }
    None
}

/// The number of the port that a probe names, or the port's name if the container has no port of this name.
fn port(container: &Value, told: &Value) -> String {
    let Some(name) = told.as_str() else { return told.to_string() };
    let named = container["ports"].as_array().into_iter().flatten().find(|port| port["name"] == name);
    named.map_or_else(|| name.to_owned(), |port| port["containerPort"].to_string())
}

/// Whether a probe does not run at present. Until the startup probe has succeeded, only the startup probe runs; after
/// that, only the other probes run.
fn is_held(kind: ProbeKind, probes: &[Probe]) -> bool {
    let start = probes.iter().find(|probe| probe.kind == ProbeKind::Startup);
    start.is_some_and(|start| if kind == ProbeKind::Startup { start.holds } else { !start.holds })
}

/// The results of the probes at one moment.
#[derive(Default)]
pub struct ProbeResults {
    pub begun: usize,
    pub ended: usize,
    /// `true` if the container has just become ready, `false` if it has just become unready, and `None` if its
    /// readiness has not changed.
    pub ready: Option<bool>,
    pub events: Vec<ContainerEvent>,
}

/// Starts the probes that are due, and collects the results of probes that have ended.
pub fn poll(machine: &mut Machine, probes: &mut [Probe], now_ms: i64) -> ProbeResults {
    let mut looked = ProbeResults::default();
    for at in 0..probes.len() {
        let held = is_held(probes[at].kind, probes);
        let probe = &mut probes[at];
        let is_due = now_ms >= probe.next_ms && !held;
        let found = match probe.running.take() {
            None if !is_due => continue,
            None => {
                probe.next_ms = now_ms.saturating_add(probe.period_ms);
                looked.begun += 1;
                match &probe.check {
                    ProbeAction::Fails(why) => Err(format!("failed: {why}")),
                    ProbeAction::Command(words) => {
                        let running = |pid| Running { pid, since_ms: now_ms, output: Vec::new() };
                        probe.running = machine.start(words, false, false).map(running);
                        continue;
                    }
                }
            }
            Some(mut running) => {
                for stream in [OutputStream::Output, OutputStream::Errors] {
                    let more = machine.read(running.pid, stream, usize::MAX);
                    let room = OUTPUT_BYTES_MAX.saturating_sub(running.output.len());
                    running.output.extend_from_slice(&more[..more.len().min(room)]);
                }
                let code = machine.exit_code(running.pid);
                if code.is_none() && now_ms < running.since_ms.saturating_add(probe.timeout_ms) {
                    probe.running = Some(running);
                    continue;
                }
                machine.forget(running.pid);
                match (code, &probe.check) {
                    // A probe whose program the shell does not know is assumed to succeed.
                    (Some(0 | 127), _) => Ok(()),
                    (None, ProbeAction::Command(words)) => {
                        let seconds = probe.timeout_ms / 1000;
                        Err(format!("failed: command timed out: {:?} timed out after {seconds}s", words.join(" ")))
                    }
                    _ => Err(format!("failed: {}", String::from_utf8_lossy(&running.output))),
                }
            }
        };
        looked.ended += 1;
        if let Err(why) = &found {
            let message = format!("{} probe {why}", probe.kind.name());
            looked.events.push(ContainerEvent { at_ms: now_ms, warning: true, reason: "Unhealthy", message });
        }
        if let Some(holds) = probe.counts(found.is_ok()) {
            looked.ready = Some(holds);
        }
    }
    looked
}

impl Probe {
    /// Counts a result of the probe. Returns whether the container thereby becomes ready or unready; `None` if its
    /// readiness does not change.
    fn counts(&mut self, has_succeeded: bool) -> Option<bool> {
        self.found = if has_succeeded { [self.found[0] + 1, 0] } else { [0, self.found[1] + 1] };
        let at = usize::from(!has_succeeded);
        if self.found[at] < self.wanted[at] {
            return None;
        }
        let changes = self.holds != has_succeeded;
        self.holds = has_succeeded;
        (changes && self.kind == ProbeKind::Readiness).then_some(has_succeeded)
    }

    pub fn is_readiness(&self) -> bool {
        self.kind == ProbeKind::Readiness
    }
}

/// The probe whose failure ends the container, and the probe's name in messages; `None` if no probe has failed in this
/// way.
pub fn fatal(probes: &[Probe]) -> Option<(&Probe, &'static str)> {
    let has_failed =
        |probe: &&Probe| !probe.holds && probe.kind != ProbeKind::Readiness && probe.found[1] >= probe.wanted[1];
    let failed = probes.iter().find(has_failed)?;
    Some((failed, if failed.kind == ProbeKind::Startup { "startup" } else { "liveness" }))
}

/// The times at which a probe must be handled next: at which a probe is due, or at which a running probe times out.
pub fn due(probes: &[Probe]) -> impl Iterator<Item = i64> {
    probes.iter().filter_map(|probe| match &probe.running {
        Some(running) => Some(running.since_ms.saturating_add(probe.timeout_ms)),
        None => (!is_held(probe.kind, probes)).then_some(probe.next_ms),
    })
}
