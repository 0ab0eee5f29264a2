//! How a container's command goes, as far as the shell can run it: found out before it happens, in a time of its own.

use crate::inside::{self, Sources};
use holdfast_shell::{MAIN, Machine, Pid, Setup, Signal, Stream, Turn};
use holdfast_value::Value;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;

/// How many steps of a command are gone. One that goes on is taken to last for ever.
const STEPS_MAX: u64 = 20_000;
/// How many courses are remembered.
const COURSES_MAX: usize = 4096;
/// How long a message of an end may be, and how much of a log may stand in its place.
const MESSAGE_BYTES_MAX: usize = 4096;
const MESSAGE_LOG_BYTES: usize = 2048;
const MESSAGE_LOG_LINES: usize = 80;
/// Of a command without `command` only its image knows the program; but these are programs of images that have none.
const PLAIN_PROGRAMS: [&str; 12] =
    ["sh", "bash", "ash", "dash", "sleep", "tail", "echo", "printf", "cat", "true", "false", "/bin/sh"];
/// How many ends of probes are gone through.
const PROBES_MAX: usize = 2_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Course {
    Ends(Ending),
    Lasts,
    /// It is none that the shell can run.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub after_ms: i64,
    pub code: i64,
    /// What the container says of it.
    pub message: String,
}

/// A course with what probes find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub course: Course,
    /// When it becomes ready, and when it does not seem so any more, where a command is asked.
    pub ready: Vec<(i64, bool)>,
}

const UNKNOWN: Found = Found { course: Course::Unknown, ready: Vec::new() };

/// Courses by all that they hang on, so that pods of one template are gone through once.
#[derive(Debug, Default)]
pub struct Courses(RefCell<HashMap<[u8; 32], Found>>);

/// The words of a container's command, where the shell can run it.
pub fn runnable(container: &Value, words: Vec<String>) -> Option<Vec<String>> {
    let program = words.first()?;
    let has_command = container["command"].as_array().is_some_and(|command| !command.is_empty());
    let is_plain = || PLAIN_PROGRAMS.contains(&program.rsplit('/').next().unwrap_or_default());
    (holdfast_shell::knows(program) && (has_command || is_plain())).then_some(words)
}

/// Whether a program takes scripts.
pub fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "ash" | "bash" | "dash" | "busybox"))
}

impl Courses {
    /// How a container's command goes that begins at this time.
    pub fn find(&self, pod: &Value, container: &Value, allocatable: &Value, begin_ms: i64) -> Found {
        let has_words =
            ["command", "args"].iter().any(|field| container[*field].as_array().is_some_and(|words| !words.is_empty()));
        if !has_words {
            return UNKNOWN;
        }
        let none = Sources::default();
        let environment = inside::environment(pod, container, &none, allocatable);
        let Some(words) = runnable(container, inside::words(container, &environment)) else { return UNKNOWN };
        let probes = probes(container);
        let mentions = |what: &str| words.iter().any(|word| word.to_ascii_lowercase().contains(what));
        let mut hash = Sha256::new();
        for (name, value) in environment.iter().filter(|(name, _)| *name != "HOSTNAME" || mentions("hostname")) {
            hash.update(format!("{}:{name}={value}\n", value.len()));
        }
        for word in &words {
            hash.update(format!("{}:{word}\n", word.len()));
        }
        for part in [
            "volumeMounts",
            "workingDir",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "securityContext",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "stdin",
            "tty",
        ] {
            hash.update(format!("{part}:{}\n", container[part]));
        }
        if ["hostname", "/etc/", "date"].into_iter().any(mentions) {
            hash.update(format!("{} {begin_ms}", pod["metadata"]["uid"]));
        }
        let key: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let setup = inside::setup(pod, container, &none, allocatable, begin_ms);
        let mut found = go(container, setup, &words, probes, begin_ms);
        // What stands in other objects is read where somebody looks into the container, not for each that begins: a
        // command that fails without it may do well with it.
        let fails = matches!(&found.course, Course::Ends(ending) if ending.code != 0);
        if fails && inside::mentions_sources(pod, container, &words) {
            found = UNKNOWN;
        }
        let mut known = self.0.borrow_mut();
        if known.len() >= COURSES_MAX {
            known.clear();
        }
        known.insert(key, found.clone());
        found
    }
}

/// A command that is run now and then.
struct Probe {
    kind: &'static str,
    words: Vec<String>,
    next_ms: i64,
    period_ms: i64,
    timeout_ms: i64,
    wanted: [u64; 2],
    /// How often it has succeeded, or failed, in a row.
    found: [u64; 2],
    holds: bool,
    running: Option<(Pid, i64)>,
}

fn probes(container: &Value) -> Vec<Probe> {
    let probe = |kind: &'static str| {
        let told = &container[kind];
        let command = told["exec"]["command"].as_array()?;
        let words: Vec<String> = command.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        // One that the shell does not know is taken to succeed, as those are that ask over the network.
        words.first().filter(|program| holdfast_shell::knows(program))?;
        let number =
            |field: &str, otherwise: i64| told[field].as_i64().filter(|number| *number > 0).unwrap_or(otherwise);
        let times = |field: &str, otherwise: i64| u64::try_from(number(field, otherwise)).unwrap_or(1);
        Some(Probe {
            kind,
            words,
            next_ms: number("initialDelaySeconds", 0).saturating_mul(1000),
            period_ms: number("periodSeconds", 10).saturating_mul(1000),
            timeout_ms: number("timeoutSeconds", 1).saturating_mul(1000),
            wanted: [times("successThreshold", 1), times("failureThreshold", 3)],
            found: [0, 0],
            holds: kind == "livenessProbe",
            running: None,
        })
    };
    ["startupProbe", "livenessProbe", "readinessProbe"].into_iter().filter_map(probe).collect()
}

/// Goes a command from its begin to its end, with its probes.
fn go(container: &Value, setup: Setup, words: &[String], mut probes: Vec<Probe>, begin_ms: i64) -> Found {
    let mut machine = Machine::new(setup, begin_ms);
    if machine.start(words, container["stdin"] == true, container["tty"] == true).is_none() {
        return UNKNOWN;
    }
    let mut ready = Vec::new();
    if probes.iter().any(|probe| probe.kind == "readinessProbe") {
        ready.push((0, false));
    }
    let (mut now_ms, mut log, mut ended) = (0, Vec::new(), 0);
    while machine.steps() < STEPS_MAX && ended < PROBES_MAX {
        let turn = machine.run(begin_ms.saturating_add(now_ms), STEPS_MAX - machine.steps());
        let more = [Stream::Output, Stream::Errors].map(|stream| machine.read(MAIN, stream, usize::MAX));
        let has_put_out = more.iter().any(|bytes| !bytes.is_empty());
        more.into_iter().for_each(|bytes| log.extend(bytes));
        let surplus = log.len().saturating_sub(2 * MESSAGE_LOG_BYTES);
        log.drain(..surplus);
        if machine.unknown().is_some() {
            return UNKNOWN;
        }
        if let Some(code) = machine.exit_code(MAIN) {
            let code = i64::from(code);
            let message = message(container, &mut machine, code, &log);
            return Found { course: Course::Ends(Ending { after_ms: now_ms, code, message }), ready };
        }
        let (begun, finished) = look(&mut machine, &mut probes, now_ms, &mut ready);
        ended += finished;
        if let Some(failed) = probes
            .iter()
            .find(|probe| !probe.holds && probe.kind != "readinessProbe" && probe.found[1] >= probe.wanted[1])
        {
            let message = match failed.kind {
                "startupProbe" => "its startup probe failed",
                _ => "its liveness probe failed",
            };
            return Found {
                course: Course::Ends(Ending { after_ms: now_ms, code: 137, message: message.into() }),
                ready,
            };
        }
        // What was begun just now has its first turn yet.
        if turn == Turn::More || has_put_out || begun + finished > 0 {
            continue;
        }
        let wakes = if let Turn::Idle { until_ms: Some(until) } = turn { Some(until - begin_ms) } else { None };
        let due = probes.iter().filter_map(|probe| match probe.running {
            Some((_, since)) => Some(since.saturating_add(probe.timeout_ms)),
            None => (!is_held(probe.kind, &probes)).then_some(probe.next_ms),
        });
        match wakes.into_iter().chain(due).filter(|time| *time > now_ms).min() {
            Some(next) => now_ms = next,
            None => break,
        }
    }
    Found { course: Course::Lasts, ready }
}

/// Whether others wait for the start of the container to be told.
fn is_held(kind: &str, probes: &[Probe]) -> bool {
    let start = probes.iter().find(|probe| probe.kind == "startupProbe");
    start.is_some_and(|start| if kind == "startupProbe" { start.holds } else { !start.holds })
}

/// Begins probes and takes what they found; says how many were begun, and how many have ended.
fn look(machine: &mut Machine, probes: &mut [Probe], now_ms: i64, ready: &mut Vec<(i64, bool)>) -> (usize, usize) {
    let (mut begun, mut ended) = (0, 0);
    for at in 0..probes.len() {
        let held = is_held(probes[at].kind, probes);
        let probe = &mut probes[at];
        match probe.running {
            None if now_ms >= probe.next_ms && !held => {
                probe.next_ms = now_ms.saturating_add(probe.period_ms);
                if let Some(pid) = machine.start(&probe.words, false, false) {
                    probe.running = Some((pid, now_ms));
                    begun += 1;
                }
            }
            None => {}
            Some((pid, since)) => {
                let code = machine.exit_code(pid);
                if code.is_none() && now_ms < since.saturating_add(probe.timeout_ms) {
                    machine.read(pid, Stream::Output, usize::MAX);
                    continue;
                }
                machine.forget(pid);
                (probe.running, ended) = (None, ended + 1);
                let failed = usize::from(!matches!(code, Some(0 | 127)));
                probe.found = [[probe.found[0] + 1, 0], [0, probe.found[1] + 1]][failed];
                if probe.found[failed] >= probe.wanted[failed] {
                    let holds = failed == 0;
                    if probe.kind == "readinessProbe" && probe.holds != holds {
                        ready.push((now_ms, holds));
                    }
                    probe.holds = holds;
                }
            }
        }
    }
    (begun, ended)
}

/// What a container says of its end: in the file that it has for that, or by the end of its log.
pub fn message(container: &Value, machine: &mut Machine, code: i64, log: &[u8]) -> String {
    let told = machine.with_files(|files| files.read(inside::termination_path(container)));
    let told = told.map(|told| told[..told.len().min(MESSAGE_BYTES_MAX)].to_vec()).unwrap_or_default();
    if !told.is_empty() || code == 0 || container["terminationMessagePolicy"] != "FallbackToLogsOnError" {
        return String::from_utf8_lossy(&told).into_owned();
    }
    let tail = &log[log.len().saturating_sub(MESSAGE_LOG_BYTES)..];
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines[lines.len().saturating_sub(MESSAGE_LOG_LINES)..].concat()
}

/// How a container stops that is told to: after its hook, by its own trap. Nothing where it has neither.
pub fn stops(
    pod: &Value,
    container: &Value,
    allocatable: &Value,
    begin_ms: i64,
    told_ms: i64,
    grace_ms: i64,
) -> Option<Ending> {
    let hook = &container["lifecycle"]["preStop"];
    if let Some(seconds) = hook["sleep"]["seconds"].as_i64() {
        return Some(Ending { after_ms: seconds.saturating_mul(1000), code: 137, message: String::new() });
    }
    let command: Vec<String> =
        hook["exec"]["command"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let none = Sources::default();
    let environment = inside::environment(pod, container, &none, allocatable);
    let words = runnable(container, inside::words(container, &environment));
    let traps = words.as_ref().is_some_and(|words| words.iter().any(|word| word.contains("trap")));
    let runs_hook = command.first().is_some_and(|program| holdfast_shell::knows(program));
    if !traps && !runs_hook {
        return None;
    }
    let mut machine = Machine::new(inside::setup(pod, container, &none, allocatable, begin_ms), begin_ms);
    let resting = || vec!["sleep".to_owned(), "infinity".to_owned()];
    machine.start(&words.unwrap_or_else(resting), container["stdin"] == true, false)?;
    advance(&mut machine, begin_ms, told_ms, |_| false);
    let mut now_ms = told_ms;
    let deadline_ms = told_ms.saturating_add(grace_ms);
    if runs_hook && let Some(pid) = machine.start(&command, false, false) {
        now_ms = advance(&mut machine, now_ms, deadline_ms, |machine| machine.exit_code(pid).is_some());
    }
    machine.signal(MAIN, Signal::Term);
    let stopped_ms = advance(&mut machine, now_ms, deadline_ms, |machine| machine.exit_code(MAIN).is_some());
    match machine.exit_code(MAIN) {
        Some(code) => {
            let code = i64::from(code);
            let message = message(container, &mut machine, code, b"");
            Some(Ending { after_ms: stopped_ms - told_ms, code, message })
        }
        None => Some(Ending { after_ms: now_ms - told_ms, code: 137, message: String::new() }),
    }
}

/// Lets a machine go on to a time, or until something is so; gives the time.
fn advance(machine: &mut Machine, from_ms: i64, to_ms: i64, is_enough: impl Fn(&Machine) -> bool) -> i64 {
    let (mut now_ms, steps) = (from_ms, machine.steps());
    while machine.steps() - steps < STEPS_MAX {
        let turn = machine.run(now_ms, STEPS_MAX);
        let pids = [Stream::Output, Stream::Errors].map(|stream| machine.read(MAIN, stream, usize::MAX));
        if is_enough(machine) {
            return now_ms;
        }
        match turn {
            Turn::Idle { until_ms: Some(until) } if until <= to_ms => now_ms = until.max(now_ms),
            Turn::Idle { .. } if pids.iter().all(Vec::is_empty) => break,
            _ => {}
        }
    }
    to_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn find(container: Value) -> Found {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        Courses::default().find(&pod, &container, &json!({}), 1_700_000_000_000)
    }

    #[test]
    fn commands_end_as_they_say() {
        let ends = |after_ms, code, message: &str| Course::Ends(Ending { after_ms, code, message: message.into() });
        for (script, expected) in [
            ("sleep 30 && exit 1", ends(30_000, 1, "")),
            ("echo done > /dev/termination-log", ends(0, 0, "done\n")),
            ("for i in 1 2 3; do sleep $i; done", ends(6000, 0, "")),
            ("while true; do date; sleep 1; done", Course::Lasts),
            ("while true; do :; done", Course::Lasts),
            ("sleep infinity", Course::Lasts),
            ("nginx -g 'daemon off;'", Course::Unknown),
            ("which nginx || exit 4", ends(0, 4, "")),
        ] {
            assert_eq!(find(json!({"command": ["sh", "-c", script]})).course, expected, "{script}");
        }
        let logged = find(json!({"command": ["sh", "-c", "echo a; echo why; exit 3"],
            "terminationMessagePolicy": "FallbackToLogsOnError"}));
        assert_eq!(logged.course, ends(0, 3, "a\nwhy\n"));
        assert_eq!(find(json!({"args": ["test", "a"]})).course, Course::Unknown, "an image's own program has them");
        assert_eq!(find(json!({"args": ["sleep", "3"]})).course, ends(3000, 0, ""));
        assert_eq!(find(json!({})).course, Course::Unknown);
    }

    #[test]
    fn probes_are_asked() {
        let script = "touch /tmp/healthy; sleep 30; rm /tmp/healthy; sleep 600";
        let probe = json!({"exec": {"command": ["cat", "/tmp/healthy"]}, "initialDelaySeconds": 5, "periodSeconds": 5});
        let found = find(json!({"command": ["sh", "-c", script], "livenessProbe": probe.clone()}));
        let Course::Ends(ending) = found.course else { panic!("{found:?}") };
        assert_eq!((ending.after_ms, ending.code), (40_000, 137), "three failures from 30 s on");
        let found = find(json!({"command": ["sh", "-c", script], "readinessProbe": probe}));
        assert_eq!(found.ready, [(0, false), (5000, true), (40_000, false)]);
    }

    #[test]
    fn containers_stop_as_traps_and_hooks_say() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        let stops = |container: Value| {
            let ending = stops(&pod, &container, &json!({}), 0, 5000, 30_000)?;
            Some((ending.after_ms, ending.code))
        };
        assert_eq!(stops(json!({"command": ["sleep", "100"]})), None);
        assert_eq!(stops(json!({"command": ["sh", "-c", "trap 'sleep 2; exit 7' TERM; sleep 100"]})), Some((2000, 7)));
        assert_eq!(stops(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}})), Some((3000, 137)));
        let hook = json!({"preStop": {"exec": {"command": ["sh", "-c", "sleep 4"]}}});
        assert_eq!(stops(json!({"lifecycle": hook})), Some((4000, 137)));
    }
}
