//! How the containers of a pod behave, as annotations tell it.

use holdfast_core::schema::quantity;
use holdfast_value::Value;
use serde::Deserialize;
use std::collections::BTreeMap;

/// What the names of the annotations begin with; `.CONTAINER` at the end of a name makes it about that container alone.
pub const PREFIX: &str = "simulate.holdfast.dev/";

/// How long something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Millis(i64),
    Forever,
}

impl Span {
    /// `30s`, `1m30s`, or `forever`.
    pub fn parse(text: &str) -> Option<Span> {
        match text {
            "forever" | "never" => Some(Span::Forever),
            text => duration(text).map(Span::Millis),
        }
    }
}

/// How a container's image arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    After(Span),
    Fails,
}

/// How one container behaves. What is not told is as a container behaves that does its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    pub pull: Pull,
    /// How long it runs; nothing told: for ever, or no time where it belongs to a Job.
    pub run_for: Option<Span>,
    /// Nothing told: what its command says, or 0.
    pub exit_code: Option<i64>,
    pub exit_reason: Option<String>,
    pub exit_message: Option<String>,
    /// How long after its start it is ready.
    pub ready_after: Span,
    /// When its probe finds it ready, and when not any more, in milliseconds since its start.
    pub ready_at: Vec<(i64, bool)>,
    /// How long it takes to stop when it is told to.
    pub stop_for: Span,
    pub stop_exit_code: i64,
    /// Whether its `preStop` hook fails.
    pub stop_hook_failed: bool,
    pub usage: Usage,
    /// A line of its log, how often it is written, and how many of them there are at most.
    pub log: Option<String>,
    pub log_every: Span,
    pub log_lines: Option<u64>,
    /// What its ports answer; `echo` sends back what comes, and `refused` lets nobody connect.
    pub answer: Option<String>,
    /// The status that requests of HTTP get.
    pub answer_code: Option<u16>,
    /// What people are told while it runs.
    pub told: Vec<crate::course::Telling>,
}

/// What a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
}

impl Usage {
    /// Of a container of which nothing is told, as with KWOK.
    const LITTLE: Usage = Usage { cpu_nanos: 1_000_000, memory_bytes: 1 << 20 };

    pub fn add(&mut self, other: Usage) {
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
            usage: Usage::LITTLE,
            log: None,
            log_every: Span::Millis(1000),
            log_lines: None,
            answer: None,
            answer_code: None,
            told: Vec::new(),
        }
    }
}

/// What annotations can tell; also how a node's template tells it of all pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Told(BTreeMap<String, String>);

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

impl Told {
    /// What the annotations of a pod tell. Names that mean nothing are mistakes.
    pub fn of(pod: &Value) -> Told {
        let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
        Told(
            annotations
                .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_owned(), value.as_str()?.to_owned())))
                .collect(),
        )
    }

    /// What words tell; of two that tell the same the last one counts.
    pub fn words<'a>(words: impl Iterator<Item = (&'a str, &'a str)>) -> Told {
        Told(words.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Whether nothing is told.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong with it.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes: Vec<String> = Vec::new();
        for (name, value) in &self.0 {
            let base = name.split_once('.').map_or(name.as_str(), |(base, _)| base);
            if !NAMES.contains(&base) {
                mistakes.push(format!("{PREFIX}{name} is not known; known are {}", NAMES.join(", ")));
            } else if !Behaviour::default().tell(base, value) {
                mistakes.push(format!("{PREFIX}{name}: {value:?} is not understood"));
            }
        }
        mistakes
    }

    fn apply(&self, behaviour: &mut Behaviour, container: &str) {
        // Looked up by name: a pod may have thousands of annotations, and of containers.
        for name in NAMES {
            let own = self.0.get(&format!("{name}.{container}"));
            // What is told of the container alone counts most.
            for value in self.0.get(*name).into_iter().chain(own) {
                behaviour.tell(name, value);
            }
        }
    }
}

impl Behaviour {
    /// Of a container: what is told of all pods, and then what its pod tells.
    pub fn of(container: &str, everywhere: &Told, pod: &Told) -> Behaviour {
        let mut behaviour = Behaviour::default();
        everywhere.apply(&mut behaviour, container);
        pod.apply(&mut behaviour, container);
        behaviour
    }

    /// Takes one word in; says whether it was understood.
    fn tell(&mut self, name: &str, value: &str) -> bool {
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

/// As much as can be told of an amount that is not negative.
fn amount(number: Option<i128>) -> Option<u64> {
    number.filter(|number| *number >= 0).map(|number| u64::try_from(number).unwrap_or(u64::MAX))
}

/// Milliseconds of a duration as Go writes them; at least one of a positive one.
pub fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 64 {
        return None;
    }
    let mut millis = 0f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = match &rest[..letters] {
            "h" => 3_600_000.0,
            "m" => 60_000.0,
            "s" => 1000.0,
            "ms" => 1.0,
            "us" | "µs" => 0.001,
            "ns" => 0.000_001,
            _ => return None,
        };
        millis += number * unit;
        rest = &rest[letters..];
    }
    // A float that is too large becomes the largest number there is.
    let millis = millis.ceil() as i64;
    Some(if negative { millis.saturating_neg() } else { millis })
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
        let everywhere: Told =
            holdfast_value::from_value(json!({"run-for": "forever", "ready-after": "5s"})).expect("told");
        let told = Told::of(&pod);
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
        let mistakes = Told::of(&pod).mistakes();
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(mistakes[2].contains("runfor is not known"), "{mistakes:?}");
    }
}
