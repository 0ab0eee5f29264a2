//! Probes of a container while its command is gone through: when each is due, what it finds, and what people are told.

use super::Telling;
use crate::behaviour::Behaviour;
use holdfast_shell::{Machine, Pid, Stream};
use holdfast_value::Value;

/// How much of a probe's output is told.
const OUTPUT_BYTES_MAX: usize = 512;
/// Stands in messages for the address of the pod, as a course is found once for many pods.
pub const ADDRESS: &str = "{podIP}";

/// The answer of a container's port that is asked to refuse whoever connects.
pub const REFUSED: &str = "refused";

/// A check of a container, now and then.
pub struct Probe {
    kind: Kind,
    check: Check,
    next_ms: i64,
    period_ms: i64,
    timeout_ms: i64,
    /// How long its container may take to stop where it fails, if it says so.
    pub grace_ms: Option<i64>,
    /// How often it has to succeed, or to fail, in a row.
    wanted: [u64; 2],
    found: [u64; 2],
    holds: bool,
    running: Option<Running>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Startup,
    Liveness,
    Readiness,
}

enum Check {
    Command(Vec<String>),
    /// It asks over the network, and fails for this reason.
    Fails(String),
}

struct Running {
    pid: Pid,
    since_ms: i64,
    output: Vec<u8>,
}

impl Kind {
    const ALL: [(Kind, &str, &str); 3] = [
        (Kind::Startup, "startupProbe", "Startup"),
        (Kind::Liveness, "livenessProbe", "Liveness"),
        (Kind::Readiness, "readinessProbe", "Readiness"),
    ];

    fn name(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, name)| name)
    }
}

/// The probes of a container that find out something: those by a command, where the shell knows its program, and those
/// over the network that what annotations say of its ports makes fail. All others succeed.
pub fn of(container: &Value, behaviour: &Behaviour, with_commands: bool) -> Vec<Probe> {
    let probe = |(kind, field, _): (Kind, &str, &str)| {
        let told = &container[field];
        let number =
            |field: &str, otherwise: i64| told[field].as_i64().filter(|number| *number > 0).unwrap_or(otherwise);
        let timeout_ms = number("timeoutSeconds", 1).saturating_mul(1000);
        let check = match told["exec"]["command"].as_array() {
            Some(command) => {
                let words: Vec<String> = command.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                words.first().filter(|program| with_commands && holdfast_shell::knows(program))?;
                Check::Command(words)
            }
            None => Check::Fails(over_network(container, told, behaviour, timeout_ms)?),
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
            holds: kind == Kind::Liveness,
            running: None,
        })
    };
    Kind::ALL.into_iter().filter_map(probe).collect()
}

/// Why a probe over the network fails, where it does.
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

/// The number of a port that a probe names, or its name where the container has none of that name.
fn port(container: &Value, told: &Value) -> String {
    let Some(name) = told.as_str() else { return told.to_string() };
    let named = container["ports"].as_array().into_iter().flatten().find(|port| port["name"] == name);
    named.map_or_else(|| name.to_owned(), |port| port["containerPort"].to_string())
}

/// Whether a probe waits for the start of the container to be told.
fn is_held(kind: Kind, probes: &[Probe]) -> bool {
    let start = probes.iter().find(|probe| probe.kind == Kind::Startup);
    start.is_some_and(|start| if kind == Kind::Startup { start.holds } else { !start.holds })
}

/// What came of looking at all probes once.
#[derive(Default)]
pub struct Looked {
    pub begun: usize,
    pub ended: usize,
    /// Whether the container has become ready, or is so no more.
    pub ready: Option<bool>,
    pub told: Vec<Telling>,
}

/// Begins probes that are due and takes what they found.
pub fn look(machine: &mut Machine, probes: &mut [Probe], now_ms: i64) -> Looked {
    let mut looked = Looked::default();
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
                    Check::Fails(why) => Err(format!("failed: {why}")),
                    Check::Command(words) => {
                        let running = |pid| Running { pid, since_ms: now_ms, output: Vec::new() };
                        probe.running = machine.start(words, false, false).map(running);
                        continue;
                    }
                }
            }
            Some(mut running) => {
                for stream in [Stream::Output, Stream::Errors] {
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
                    // One whose program the shell does not know is taken to succeed.
                    (Some(0 | 127), _) => Ok(()),
                    (None, Check::Command(words)) => {
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
            looked.told.push(Telling { at_ms: now_ms, warning: true, reason: "Unhealthy", message });
        }
        if let Some(holds) = probe.counts(found.is_ok()) {
            looked.ready = Some(holds);
        }
    }
    looked
}

impl Probe {
    /// Counts what it found; says whether its container has become ready by that, or is so no more.
    fn counts(&mut self, has_succeeded: bool) -> Option<bool> {
        self.found = if has_succeeded { [self.found[0] + 1, 0] } else { [0, self.found[1] + 1] };
        let at = usize::from(!has_succeeded);
        if self.found[at] < self.wanted[at] {
            return None;
        }
        let changes = self.holds != has_succeeded;
        self.holds = has_succeeded;
        (changes && self.kind == Kind::Readiness).then_some(has_succeeded)
    }

    pub fn is_readiness(&self) -> bool {
        self.kind == Kind::Readiness
    }
}

/// What a failed probe that ends its container is called.
pub fn fatal(probes: &[Probe]) -> Option<(&Probe, &'static str)> {
    let has_failed =
        |probe: &&Probe| !probe.holds && probe.kind != Kind::Readiness && probe.found[1] >= probe.wanted[1];
    let failed = probes.iter().find(has_failed)?;
    Some((failed, if failed.kind == Kind::Startup { "startup" } else { "liveness" }))
}

/// When a probe is due, or has run for too long.
pub fn due(probes: &[Probe]) -> impl Iterator<Item = i64> {
    probes.iter().filter_map(|probe| match &probe.running {
        Some(running) => Some(running.since_ms.saturating_add(probe.timeout_ms)),
        None => (!is_held(probe.kind, probes)).then_some(probe.next_ms),
    })
}
