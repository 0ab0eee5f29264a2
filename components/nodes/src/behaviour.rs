//! The behaviour of a pod's containers, which annotations of the pod describe.

use holdfast_core::object::duration as go;
use holdfast_core::schema::quantity;
use holdfast_value::Value;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The prefix of the annotations that describe behaviour. If `.CONTAINER` is at the end of a name, the annotation
/// applies only to that container.
pub const PREFIX: &str = "simulate.holdfast.dev/";

/// A duration, or forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Millis(i64),
    Forever,
}

impl Span {
    /// Parses `30s`, `1m30s`, or `forever`.
    pub fn parse(text: &str) -> Option<Span> {
        match text {
            "forever" | "never" => Some(Span::Forever),
            text => duration(text).map(Span::Millis),
        }
    }
}

/// The outcome of an image pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    After(Span),
    Fails,
}

/// The behaviour of one container. If nothing else is specified, the container starts at once and is ready at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    pub pull: Pull,
    /// How long the container runs. By default it runs for ever, but in a Job it ends at once.
    pub run_for: Option<Span>,
    /// The exit code with which the container ends. The default is the exit code of its command, or 0 if the command is
    /// unknown.
    pub exit_code: Option<i64>,
    pub exit_reason: Option<String>,
    pub exit_message: Option<String>,
    /// The delay from the container's start until it is ready.
    pub ready_after: Span,
    /// The times at which the readiness probe changes its result, in milliseconds since the container's start, each
    /// with the new result.
    pub ready_at: Vec<(i64, bool)>,
    /// How long the container takes to stop after the request to stop.
    pub stop_for: Span,
    pub stop_exit_code: i64,
    /// Whether the container's `preStop` hook fails.
    pub stop_hook_failed: bool,
    pub usage: ResourceUsage,
    /// The line that the container writes to its log again and again. `log_every` is the interval, and `log_lines` is
    /// the maximum number of lines.
    pub log: Option<String>,
    pub log_every: Span,
    pub log_lines: Option<u64>,
    /// The text with which the container's ports answer. The text `echo` means that a port returns its input, and
    /// `refused` means that the ports refuse connections.
    pub answer: Option<String>,
    /// The status of the HTTP responses of the container's ports.
    pub answer_code: Option<u16>,
    /// The Events about the container that are written while it runs.
    pub events: Vec<ContainerEvent>,
}

/// An Event about a running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEvent {
    /// The time of the Event since the container's start, in milliseconds.
    pub at_ms: i64,
    pub warning: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The CPU and the memory that a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

impl ResourceUsage {
    /// The default usage of a container, the same as in KWOK.
    const LITTLE: ResourceUsage = ResourceUsage { cpu_nanos: 1_000_000, memory_bytes: 1 << 20 };

    pub fn add(&mut self, other: ResourceUsage) {
        self.cpu_nanos = self.cpu_nanos.saturating_add(other.cpu_nanos);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
    }
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            pull: Pull::After(Span::Millis(0)),
            run_for: None,
            exit_code: None,
            exit_reason: None,
            exit_message: None,
            ready_after: Span::Millis(0),
            ready_at: Vec::new(),
            stop_for: Span::Millis(0),
            stop_exit_code: 137,
            stop_hook_failed: false,
            usage: ResourceUsage::LITTLE,
            log: None,
            log_every: Span::Millis(1000),
            log_lines: None,
            answer: None,
            answer_code: None,
            events: Vec::new(),
        }
    }
}

/// The settings of behaviour in annotations. A node template may contain the same settings, which then apply to all
/// pods on its nodes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct BehaviourSettings(BTreeMap<String, String>);

const NAMES: &[&str] = &[
    "pull",
    "run-for",
    "exit-code",
    "exit-reason",
    "exit-message",
    "ready-after",
    "stop-for",
    "stop-exit-code",
    "usage-cpu",
    "usage-memory",
    "log",
    "log-every",
    "log-lines",
    "answer",
    "answer-code",
];

impl BehaviourSettings {
    /// The settings in a pod's annotations. Unknown settings are kept, so that [`BehaviourSettings::mistakes`] can
    /// report them.
    pub fn of(pod: &Value) -> BehaviourSettings {
        let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        BehaviourSettings(
            annotations
                .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.as_str()?.to_owned())))
                .collect(),
        )
    }

    /// Settings from pairs of a name and a value. If a name occurs several times, its last value counts.
    pub fn parse<'a>(words: impl Iterator<Item = (&'a str, &'a str)>) -> BehaviourSettings {
        BehaviourSettings(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Whether no setting is specified.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mistakes in the settings, as messages.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes: Vec<String> = Vec::new();
        for (name, value) in &self.0 {
            let base = name.split_once('.').map_or(name.as_str(), |(base, _)| base);
            if !NAMES.contains(&base) {
                mistakes.push(format!("{PREFIX}{name} is not known; known are {}", NAMES.join(", ")));
            } else if !Behaviour::default().apply_setting(base, value) {
                mistakes.push(format!("{PREFIX}{name}: {value:?} is not understood"));
            }
        }
        mistakes
    }

    fn apply(&self, behaviour: &mut Behaviour, container: &str) {
        // The settings are looked up by name, because a pod may have thousands of annotations and containers.
        for name in NAMES {
            let own = self.0.get(&format!("{name}.{container}"));
            // The setting for this container overrides the setting for all containers.
            for value in self.0.get(*name).into_iter().chain(own) {
                behaviour.apply_setting(name, value);
            }
        }
    }
}

impl Behaviour {
    /// The behaviour of a container. The settings of `pod` override the settings of `everywhere`.
    pub fn of(container: &str, everywhere: &BehaviourSettings, pod: &BehaviourSettings) -> Behaviour {
        let mut behaviour = Behaviour::default();
        everywhere.apply(&mut behaviour, container);
        pod.apply(&mut behaviour, container);
        behaviour
    }

    /// Applies one setting. Returns whether the setting is valid.
    fn apply_setting(&mut self, name: &str, value: &str) -> bool {
        fn put<T>(place: &mut T, value: Option<T>) -> bool {
            let understood = value.is_some();
            if let Some(value) = value {
                *place = value;
            }
            understood
        }
        let code = || value.parse().ok().filter(|code| (0..=255).contains(code));
        match name {
            "pull" if value == "fails" => put(&mut self.pull, Some(Pull::Fails)),
            "pull" => put(&mut self.pull, Span::parse(value).map(Pull::After)),
            "run-for" => put(&mut self.run_for, Span::parse(value).map(Some)),
            "exit-code" => put(&mut self.exit_code, code().map(Some)),
            "exit-reason" => put(&mut self.exit_reason, Some(Some(value.to_owned()))),
            "exit-message" => put(&mut self.exit_message, Some(Some(value.to_owned()))),
            "ready-after" => put(&mut self.ready_after, Span::parse(value)),
            "stop-for" => put(&mut self.stop_for, Span::parse(value)),
            "usage-cpu" => put(&mut self.usage.cpu_nanos, amount(quantity::nanos(value))),
            "usage-memory" => put(&mut self.usage.memory_bytes, amount(quantity::whole(value))),
            "log" => put(&mut self.log, Some(Some(value.to_owned()))),
            "log-every" => put(&mut self.log_every, Span::parse(value).filter(|span| *span != Span::Millis(0))),
            "log-lines" => put(&mut self.log_lines, value.parse().ok().map(Some)),
            "answer" => put(&mut self.answer, Some(Some(value.to_owned()))),
            "answer-code" => {
                let code = value.parse().ok().filter(|code| (200..=599).contains(code));
                put(&mut self.answer_code, code.map(Some))
            }
            "stop-exit-code" => put(&mut self.stop_exit_code, code()),
            _ => false,
        }
    }
}

/// The amount that a number stands for; `None` if the number is negative. A number above the maximum of `u64` counts as
/// that maximum.
fn amount(number: Option<i128>) -> Option<u64> {
    number.filter(|number| *number >= 0).map(|number| u64::try_from(number).unwrap_or(u64::MAX))
}

/// Parses a Go duration, and returns milliseconds. A positive duration below one millisecond counts as one millisecond.
pub fn duration(text: &str) -> Option<i64> {
    let nanos = go::total(text).ok()?;
    let millis = i64::try_from(nanos.unsigned_abs().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    Some(if nanos < 0 { -millis } else { millis })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("0", Some(0)),
            ("30s", Some(30_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1500)),
            ("250ms", Some(250)),
            ("1ns", Some(1)),
            ("-1s", Some(-1000)),
            ("99999999999999h", Some(i64::MAX)),
            ("", None),
            ("5", None),
            ("s", None),
            ("1x", None),
            ("1..2s", None),
        ] {
            assert_eq!(duration(text), millis, "{text:?}");
        }
    }

    #[test]
    fn what_a_pod_tells_of_one_container_counts_most() {
        let pod = json!({"metadata": {"annotations": {
            "simulate.holdfast.dev/run-for": "30s", "simulate.holdfast.dev/exit-code.b": "3",
            "simulate.holdfast.dev/exit-code": "1", "other/x": "y"}}});
        let everywhere: BehaviourSettings =
            holdfast_value::from_value(json!({"run-for": "forever", "ready-after": "5s"})).expect("told");
        let told = BehaviourSettings::of(&pod);
        assert!(told.mistakes().is_empty());
        let (a, b) = (Behaviour::of("a", &everywhere, &told), Behaviour::of("b", &everywhere, &told));
        assert_eq!((a.run_for, a.exit_code), (Some(Span::Millis(30_000)), Some(1)));
        assert_eq!((b.run_for, b.exit_code, b.ready_after), (Some(Span::Millis(30_000)), Some(3), Span::Millis(5000)));
    }

    #[test]
    fn mistakes_are_named() {
        let pod = json!({"metadata": {"annotations": {
            "simulate.holdfast.dev/runfor": "30s", "simulate.holdfast.dev/exit-code": "900",
            "simulate.holdfast.dev/pull.a": "slowly"}}});
        let mistakes = BehaviourSettings::of(&pod).mistakes();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[2].contains("runfor is not known"), "{mistakes:?}");
    }
}
