//! Computes the course of a container's command in simulated time, before the command runs, as far as the shell knows
//! the command.

mod probes;
mod shares;
mod stops;

use crate::behaviour::{Behaviour, ContainerEvent};
use crate::environment::{self, Sources};
pub use probes::{ADDRESS, REFUSED};
pub use stops::{Stop, stops};

use shares::Shares;

use holdfast_shell::{MAIN, Machine, OutputStream, Pid, RunResult, Setup};
use holdfast_value::Value;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::collections::HashMap;

/// The maximum number of steps of a command. A command that needs more steps is assumed to run forever.
const STEPS_MAX: u64 = 20_000;
/// How many courses are cached.
const COURSES_MAX: usize = 4096;
/// The longest termination message, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;
/// How much of the end of the log may be used as a termination message: `MESSAGE_LOG_BYTES` limits the bytes, and
/// `MESSAGE_LOG_LINES` limits the lines.
const MESSAGE_LOG_BYTES: usize = 2048;
const MESSAGE_LOG_LINES: usize = 80;
/// If a container has no `command`, the image's entrypoint decides what `args` mean. If `args` begin with one of these
/// programs, the image is assumed to have no entrypoint, so that `args` are the whole command.
const PLAIN_PROGRAMS: [&str; 12] =
    ["sh", "bash", "ash", "dash", "sleep", "tail", "echo", "printf", "cat", "true", "false", "/bin/sh"];
/// The maximum number of probe results of a course.
const PROBES_MAX: usize = 2_000;
/// The maximum number of Events about failures in one course. A kubelet may write this number of Events about one
/// object at once.
const TOLD_MAX: usize = 25;
/// The default grace period of a pod, in seconds.
const GRACE_SECONDS: i64 = 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Course {
    Ends(Ending),
    Lasts,
    /// The shell cannot run the command, so its course is unknown.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub after_ms: i64,
    pub code: i64,
    /// The termination message of the container.
    pub message: String,
}

/// A course with the results of probes and hooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedCourse {
    pub course: Course,
    /// Each time at which the container becomes ready or unready, in milliseconds since its start, if a probe or a hook
    /// decides about readiness.
    pub ready: Vec<(i64, bool)>,
    pub events: Vec<ContainerEvent>,
}

const UNKNOWN: ProbedCourse = ProbedCourse { course: Course::Unknown, ready: Vec::new(), events: Vec::new() };

/// The cache of courses. The key of a course is a hash of all values on which the course depends, so that the course of
/// pods of one template is computed once.
#[derive(Debug, Default)]
pub struct Courses(RefCell<HashMap<[u8; 32], ProbedCourse>>);

/// The words of a container's command, if the shell can run it.
pub fn runnable(container: &Value, words: Vec<String>) -> Option<Vec<String>> {
    let program = words.first()?;
    let has_command = container["command"].as_array().is_some_and(|command| !command.is_empty());
    let is_plain = || PLAIN_PROGRAMS.contains(&program.rsplit('/').next().unwrap_or_default());
    (holdfast_shell::knows(program) && (has_command || is_plain())).then_some(words)
}

/// Whether a program runs scripts: whether it is a shell, by its name or path.
pub fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "ash" | "bash" | "dash" | "busybox"))
}

impl Courses {
    /// The course of a container's command that starts at `begin_ms`, with the results of the container's probes.
    pub fn find(
        &self,
        pod: &Value,
        container: &Value,
        behaviour: &Behaviour,
        allocatable: &Value,
        begin_ms: i64,
    ) -> ProbedCourse {
        let has_words =
            ["command", "args"].iter().any(|field| container[*field].as_array().is_some_and(|words| !words.is_empty()));
        let none = Sources::default();
        let mut environment = Default::default();
        let words = has_words.then(|| {
            environment = environment::environment(pod, container, &none, allocatable);
            runnable(container, environment::words(container, &environment))
        });
        let words = words.flatten();
        let probes = probes::of(container, behaviour, words.is_some());
        let rests = container["lifecycle"]["postStart"]["sleep"].is_object();
        if words.is_none() && probes.is_empty() && !rests {
            return UNKNOWN;
        }
        // If only the image determines the program, the container is assumed to run forever.
        let is_known = words.is_some();
        let words = words.unwrap_or_else(|| vec!["sleep".to_owned(), "infinity".to_owned()]);
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
            "lifecycle",
            "ports",
            "stdin",
            "tty",
        ] {
            hash.update(format!("{part}:{}\n", container[part]));
        }
        let grace = &pod["spec"]["terminationGracePeriodSeconds"];
        let shares = Shares::of(pod, container);
        hash.update(shares.cache_key());
        hash.update(format!("{is_known} {grace} {:?} {:?}\n", behaviour.answer, behaviour.answer_code));
        if ["hostname", "/etc/", "date"].into_iter().any(mentions) {
            hash.update(format!("{} {begin_ms}", pod["metadata"]["uid"]));
        }
        let key: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let volumes = shares.volumes(pod, container);
        let is_filled = shares.fill(pod, &volumes, allocatable, begin_ms);
        let setup = environment::setup(pod, container, &none, &volumes, allocatable, begin_ms);
        let grace_ms = grace.as_i64().unwrap_or(GRACE_SECONDS).saturating_mul(1000);
        let mut found =
            RunningContainer { container, words: &words, begin_ms, grace_ms, is_known }.run_container(setup, probes);
        // The ConfigMaps, Secrets and Services from which files and variables come are read only when a client uses the
        // container, and the course does not wait for files of other containers. So a command that fails here may
        // succeed on the node, and its failure is ignored.
        let fails = matches!(&found.course, Course::Ends(ending) if ending.code != 0);
        let mut missing = shares.shared_paths.clone();
        if !is_filled {
            missing.extend(&shares.before);
        }
        let hangs = missing.iter().any(|path| words.iter().any(|word| word.contains(path)));
        if is_known && fails && (hangs || environment::mentions_sources(pod, container, &words)) {
            found = UNKNOWN;
        }
        if !is_known && found.course == Course::Lasts {
            found.course = Course::Unknown;
        }
        found.events.truncate(TOLD_MAX);
        let mut known = self.0.borrow_mut();
        if known.len() >= COURSES_MAX {
            known.clear();
        }
        known.insert(key, found.clone());
        found
    }
}

/// The state of a `postStart` hook: its command runs, it sleeps until a time, or it does not run any more.
enum Hook {
    Command(Pid),
    Until(i64),
    Over,
}

/// A container whose course is being computed.
struct RunningContainer<'a> {
    container: &'a Value,
    words: &'a [String],
    begin_ms: i64,
    grace_ms: i64,
    /// Whether `words` are the container's own command.
    is_known: bool,
}

impl RunningContainer<'_> {
    /// Runs the container from its start to its end, with its `postStart` hook and its probes.
    fn run_container(&self, setup: Setup, mut probes: Vec<probes::Probe>) -> ProbedCourse {
        let (container, begin_ms) = (self.container, self.begin_ms);
        let mut machine = Machine::new(setup, begin_ms);
        if machine.start(self.words, container["stdin"] == true, container["tty"] == true).is_none() {
            return UNKNOWN;
        }
        let mut hook = self.hook(&mut machine);
        let mut found = ProbedCourse { course: Course::Lasts, ..UNKNOWN };
        let asks = probes.iter().any(probes::Probe::is_readiness);
        if asks || !matches!(hook, Hook::Over) {
            found.ready.push((0, false));
        }
        let (mut now_ms, mut log, mut ended) = (0, Vec::new(), 0);
        while machine.steps() < STEPS_MAX && ended < PROBES_MAX {
            let turn = machine.run(begin_ms.saturating_add(now_ms), STEPS_MAX - machine.steps());
            let more =
                [OutputStream::Output, OutputStream::Errors].map(|stream| machine.read(MAIN, stream, usize::MAX));
            let mut is_busy = turn == RunResult::More || more.iter().any(|bytes| !bytes.is_empty());
            more.into_iter().for_each(|bytes| log.extend(bytes));
            let surplus = log.len().saturating_sub(2 * MESSAGE_LOG_BYTES);
            log.drain(..surplus);
            if machine.unknown().is_some() {
                return UNKNOWN;
            }
            if let Some(code) = machine.exit_code(MAIN) {
                let code = i64::from(code);
                let message = message(container, &mut machine, code, &log);
                return found.ends(Ending { after_ms: now_ms, code, message });
            }
            match hook.poll_hook(&mut machine, now_ms) {
                Some(0) => {
                    if !asks {
                        found.ready.push((now_ms, true));
                    }
                    is_busy = true;
                }
                Some(_) => {
                    // The hook's output may contain secrets, so it is not in the Event.
                    found.add_event(now_ms, true, "FailedPostStartHook", "PostStartHook failed".into());
                    found.add_event(now_ms, false, "Killing", "FailedPostStartHook".into());
                    return self.stops(&mut machine, found, now_ms, self.grace_ms);
                }
                None => {}
            }
            if matches!(hook, Hook::Over) {
                let looked = probes::poll(&mut machine, &mut probes, now_ms);
                ended += looked.ended;
                is_busy |= looked.begun + looked.ended > 0;
                found.ready.extend(looked.ready.map(|ready| (now_ms, ready)));
                if found.events.len() < TOLD_MAX {
                    found.events.extend(looked.events);
                }
                if let Some((failed, name)) = probes::fatal(&probes) {
                    let grace_ms = failed.grace_ms.unwrap_or(self.grace_ms);
                    let of = container["name"].as_str().unwrap_or_default();
                    let message = format!("Container {of} failed {name} probe, will be restarted");
                    found.add_event(now_ms, false, "Killing", message);
                    return self.stops(&mut machine, found, now_ms, grace_ms);
                }
            }
            // The commands of hooks and probes that were just started must run before the time advances.
            if is_busy {
                continue;
            }
            let wakes =
                if let RunResult::Idle { until_ms: Some(until) } = turn { Some(until - begin_ms) } else { None };
            let hook_ends = if let Hook::Until(until_ms) = hook { Some(until_ms) } else { None };
            let due = matches!(hook, Hook::Over).then(|| probes::due(&probes)).into_iter().flatten();
            match wakes.into_iter().chain(hook_ends).chain(due).filter(|time| *time > now_ms).min() {
                Some(next) => now_ms = next,
                None => break,
            }
        }
        found
    }

    /// Starts the `postStart` hook, if the container's own command is known: programs in an unknown image are not
    /// available.
    fn hook(&self, machine: &mut Machine) -> Hook {
        let told = &self.container["lifecycle"]["postStart"];
        if let Some(seconds) = told["sleep"]["seconds"].as_i64().filter(|seconds| *seconds > 0) {
            return Hook::Until(seconds.saturating_mul(1000));
        }
        if !self.is_known {
            return Hook::Over;
        }
        post_start(self.container)
            .and_then(|words| machine.start(&words, false, false))
            .map_or(Hook::Over, Hook::Command)
    }

    /// Sends the request to stop to the container, and records how it ends.
    fn stops(&self, machine: &mut Machine, found: ProbedCourse, now_ms: i64, grace_ms: i64) -> ProbedCourse {
        let told_ms = self.begin_ms.saturating_add(now_ms);
        let Ending { after_ms, code, message } =
            stops::stop(machine, self.container, self.words, told_ms, grace_ms).ending;
        found.ends(Ending { after_ms: now_ms.saturating_add(after_ms), code, message })
    }
}

impl Hook {
    /// The exit code of the hook, if the hook has ended since the last call. A hook whose program the shell does not
    /// know is assumed to succeed.
    fn poll_hook(&mut self, machine: &mut Machine, now_ms: i64) -> Option<i32> {
        let code = match self {
            Hook::Command(pid) => {
                for stream in [OutputStream::Output, OutputStream::Errors] {
                    machine.read(*pid, stream, usize::MAX);
                }
                let code = machine.exit_code(*pid)?;
                machine.forget(*pid);
                if code == 127 { 0 } else { code }
            }
            Hook::Until(until_ms) if now_ms >= *until_ms => 0,
            Hook::Until(_) | Hook::Over => return None,
        };
        *self = Hook::Over;
        Some(code)
    }
}

impl ProbedCourse {
    fn ends(self, ending: Ending) -> ProbedCourse {
        ProbedCourse { course: Course::Ends(ending), ..self }
    }

    fn add_event(&mut self, at_ms: i64, warning: bool, reason: &'static str, message: String) {
        // There is no room for the new Event. The last Event is the most important one, so it replaces the Event before
        // it.
        self.events.truncate(TOLD_MAX - 1);
        self.events.push(ContainerEvent { at_ms, warning, reason, message });
    }
}

/// The command of a container's `postStart` hook, if the shell knows its program.
pub fn post_start(container: &Value) -> Option<Vec<String>> {
    let command = container["lifecycle"]["postStart"]["exec"]["command"].as_array()?;
    let words: Vec<String> = command.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    words.first().is_some_and(|program| holdfast_shell::knows(program)).then_some(words)
}

/// The termination message of a container: the content of its message file, or the end of its log.
pub fn message(container: &Value, machine: &mut Machine, code: i64, log: &[u8]) -> String {
    let told = machine.with_files(|files| files.read(environment::termination_path(container)));
    let told = told.map(|told| told[..told.len().min(MESSAGE_BYTES_MAX)].to_vec()).unwrap_or_default();
    if !told.is_empty() || code == 0 || container["terminationMessagePolicy"] != "FallbackToLogsOnError" {
        return String::from_utf8_lossy(&told).into_owned();
    }
    let tail = &log[log.len().saturating_sub(MESSAGE_LOG_BYTES)..];
    let text = String::from_utf8_lossy(tail);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines[lines.len().saturating_sub(MESSAGE_LOG_LINES)..].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    fn find(container: Value) -> ProbedCourse {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        Courses::default().find(&pod, &container, &Behaviour::default(), &json!({}), 1_700_000_000_000)
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

    fn said(found: &ProbedCourse) -> Vec<String> {
        found
            .events
            .iter()
            .map(|told| format!("{} {} {}", told.at_ms / 1000, told.reason, told.message.trim()))
            .collect()
    }

    #[test]
    fn failures_of_probes_are_told() {
        let probe = json!({"exec": {"command": ["cat", "/tmp/no"]}, "periodSeconds": 5, "failureThreshold": 2});
        let found = find(json!({"name": "c", "command": ["sleep", "600"], "livenessProbe": probe}));
        let failed = "Unhealthy Liveness probe failed: cat: can't open '/tmp/no': No such file or directory";
        let killed = "5 Killing Container c failed liveness probe, will be restarted";
        assert_eq!(said(&found), [format!("0 {failed}"), format!("5 {failed}"), killed.to_owned()]);
        let slow = json!({"exec": {"command": ["sleep", "9"]}, "timeoutSeconds": 2, "failureThreshold": 1});
        let found = find(json!({"name": "c", "command": ["sleep", "600"], "startupProbe": slow}));
        assert_eq!(
            said(&found)[0],
            "2 Unhealthy Startup probe failed: command timed out: \"sleep 9\" timed out after 2s"
        );
        let never = json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
        let found = find(json!({"command": ["sleep", "600"], "readinessProbe": never}));
        assert_eq!((found.events.len(), found.ready), (TOLD_MAX, vec![(0, false)]));
    }

    #[test]
    fn probes_over_the_network_find_what_annotations_say() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        let find = |probe: Value, answer: &str, code: Option<u16>| {
            let behaviour = Behaviour { answer: Some(answer.to_owned()), answer_code: code, ..Behaviour::default() };
            let container = json!({"name": "c", "image": "nginx", "ports": [{"name": "http", "containerPort": 8080}],
                "livenessProbe": probe});
            Courses::default().find(&pod, &container, &behaviour, &json!({}), 0)
        };
        let http = json!({"httpGet": {"port": "http", "path": "/healthz"}, "failureThreshold": 1});
        assert_eq!(find(http.clone(), "hello", Some(204)), UNKNOWN);
        let found = find(http.clone(), "hello", Some(503));
        assert_eq!(said(&found)[0], "0 Unhealthy Liveness probe failed: HTTP probe failed with statuscode: 503");
        assert!(matches!(found.course, Course::Ends(Ending { code: 137, .. })), "{found:?}");
        let refused = "connect: connection refused";
        assert_eq!(
            said(&find(http, REFUSED, None))[0],
            format!(
                "0 Unhealthy Liveness probe failed: Get \"http://{{podIP}}:8080/healthz\": dial tcp {{podIP}}:8080: {refused}"
            )
        );
        let tcp = json!({"tcpSocket": {"port": 9}, "failureThreshold": 1});
        assert_eq!(find(tcp.clone(), "hello", Some(503)), UNKNOWN);
        assert_eq!(
            said(&find(tcp, REFUSED, None))[0],
            format!("0 Unhealthy Liveness probe failed: dial tcp {{podIP}}:9: {refused}")
        );
        let grpc = json!({"grpc": {"port": 9}, "failureThreshold": 1});
        assert!(said(&find(grpc, REFUSED, None))[0].contains("failed to connect service \"{podIP}:9\" within 1s"));
    }

    #[test]
    fn hooks_run_beside_the_command() {
        let container = |hook: &str| {
            json!({"name": "c", "command": ["sh", "-c", "while [ ! -f /tmp/go ]; do sleep 1; done; sleep 5; exit 4"],
                "lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", hook]}}}})
        };
        let found = find(container("sleep 3; touch /tmp/go"));
        assert_eq!(found.course, Course::Ends(Ending { after_ms: 9000, code: 4, message: String::new() }));
        assert_eq!((found.ready, found.events.len()), (vec![(0, false), (3000, true)], 0));
        let failed = find(container("sleep 2; exit 1"));
        assert_eq!(failed.course, Course::Ends(Ending { after_ms: 2000, code: 137, message: String::new() }));
        assert_eq!(said(&failed), ["2 FailedPostStartHook PostStartHook failed", "2 Killing FailedPostStartHook"]);
        assert_eq!(find(container("curl http://x; touch /tmp/go; curl http://x")).events, []);
        let slept = find(json!({"image": "nginx", "command": ["sleep", "infinity"],
            "lifecycle": {"postStart": {"sleep": {"seconds": 7}}}}));
        assert_eq!(slept.ready, [(0, false), (7000, true)]);
    }

    #[test]
    fn what_init_containers_have_left_is_found() {
        let mount = json!([{"name": "v", "mountPath": "/data"}]);
        let pod = |script: &str, image: &str| {
            let mut first = json!({"name": "i", "image": image, "volumeMounts": mount.clone()});
            if !script.is_empty() {
                first["command"] = json!(["sh", "-c", script]);
            }
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
                "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "initContainers": [first], "containers": [
                    {"name": "c", "command": ["sh", "-c", "exit $(cat /data/code || echo 9)"], "volumeMounts": mount.clone()}]}})
        };
        let course = |pod: &Value| {
            let container = &pod["spec"]["containers"][0];
            Courses::default().find(pod, container, &Behaviour::default(), &json!({}), 0).course
        };
        let ends = |code| Course::Ends(Ending { after_ms: 0, code, message: String::new() });
        assert_eq!(course(&pod("sleep 5; echo 4 > /data/code", "busybox")), ends(4));
        assert_eq!(course(&pod("true", "busybox")), ends(9), "it has left nothing");
        assert_eq!(course(&pod("", "git")), Course::Unknown, "nobody knows what it has left");
        let mut beside = pod("true", "busybox");
        let containers = beside["spec"]["containers"].as_array_mut().expect("a list");
        containers.push(json!({"name": "d", "image": "x", "volumeMounts": mount.clone()}));
        assert_eq!(course(&beside), Course::Unknown, "nobody knows what it will put there");
    }

    #[test]
    fn containers_stop_as_traps_and_hooks_say() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {}});
        let stops = |container: Value| {
            let Stop { ending, hook_failed } = stops(&pod, &container, &json!({}), 0, 5000, 30_000)?;
            Some((ending.after_ms, ending.code, hook_failed))
        };
        assert_eq!(stops(json!({"command": ["sleep", "100"]})), None);
        assert_eq!(
            stops(json!({"command": ["sh", "-c", "trap 'sleep 2; exit 7' TERM; sleep 100"]})),
            Some((2000, 7, false))
        );
        assert_eq!(stops(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}})), Some((3000, 137, false)));
        let hook = json!({"preStop": {"exec": {"command": ["sh", "-c", "sleep 4"]}}});
        assert_eq!(stops(json!({"lifecycle": hook})), Some((4000, 137, false)));
        let hook = json!({"preStop": {"exec": {"command": ["false"]}}});
        assert_eq!(stops(json!({"lifecycle": hook})), Some((0, 137, true)));
    }
}
