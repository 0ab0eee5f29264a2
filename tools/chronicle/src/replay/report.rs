//! The report of a replay.

use super::plan::EventReplay;
use super::target::{ReplayOutcome, Sent};
use crate::history::{Report, table};
use hdrhistogram::Histogram;
use holdfast_core::history::render::{Colour, Paint};
use holdfast_core::visible;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How many refusals of one reason are shown.
const EXAMPLES_MAX: usize = 3;

#[derive(Default)]
pub struct Summary {
    pub server: String,
    first: u64,
    last: u64,
    is_paced: bool,
    pub events: u64,
    /// The number of recorded writes that a server makes by itself, which are not repeated.
    pub servers_own: u64,
    /// The number of events that changed no field that a client sets.
    pub unchanged: u64,
    /// The number of deletions of objects that did not exist on the target.
    gone: u64,
    done: u64,
    pub took: Duration,
    /// The number of requests by verb and status code. Status code 0 stands for no answer.
    requests: BTreeMap<(&'static str, u16), u64>,
    latency: Times,
    behind: Times,
    refusals: BTreeMap<String, Refusals>,
    pub last_unanswered: String,
}

#[derive(Default)]
struct Refusals {
    count: u64,
    examples: Vec<(u64, String, String)>,
}

/// The distribution of durations, in microseconds, with a precision of three digits.
struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        // The constructor accepts up to five digits.
        Times(Histogram::new(3).unwrap_or_else(|error| unreachable!("a histogram of three digits: {error}")))
    }
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// Percentiles of the durations, in milliseconds.
    fn percentiles(&self) -> [(&'static str, f64); 4] {
        let at = |quantile: f64| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        [("p50", at(0.5)), ("p90", at(0.9)), ("p99", at(0.99)), ("max", self.0.max() as f64 / 1000.0)]
    }

    fn line(&self) -> String {
        self.percentiles().map(|(name, time)| format!("{name} {time:.1} ms")).join(", ")
    }

    fn value(&self) -> Value {
        Value::Object(self.percentiles().map(|(name, time)| (name.to_owned(), time.into())).into_iter().collect())
    }
}

impl Summary {
    pub fn new(server: String, first: u64, last: u64, is_paced: bool) -> Summary {
        Summary { server, first, last, is_paced, ..Summary::default() }
    }

    pub fn refused(&self) -> u64 {
        self.refusals.values().map(|refusals| refusals.count).sum()
    }

    pub fn add(&mut self, work: &EventReplay, sent: &[Sent], behind: Option<Duration>, outcome: ReplayOutcome) {
        for request in sent {
            *self.requests.entry((request.verb, request.code.unwrap_or(0))).or_default() += 1;
            self.latency.add(request.took);
        }
        if let Some(behind) = behind {
            self.behind.add(behind);
        }
        let (reason, message) = match outcome {
            ReplayOutcome::Done => {
                self.done += 1;
                return;
            }
            ReplayOutcome::Gone => {
                self.gone += 1;
                return;
            }
            ReplayOutcome::Refused { reason, message } => (reason, message),
            ReplayOutcome::Unanswered(message) => {
                self.last_unanswered = message.clone();
                ("NoAnswer".to_owned(), message)
            }
        };
        let refusals = self.refusals.entry(reason).or_default();
        refusals.count += 1;
        if refusals.examples.len() < EXAMPLES_MAX {
            refusals.examples.push((work.offset, work.object.clone(), message));
        }
    }
}

impl Report for Summary {
    fn text(&self, paint: Paint) -> String {
        let parts = [
            (self.done, "done"),
            (self.gone, "deletions of what was gone already"),
            (self.servers_own, "of the server itself left out"),
            (self.unchanged, "in which nothing changed"),
            (self.refused(), "refused"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        let head = format!(
            "{} events from {} to {} in {:.1} s against {}: {}",
            self.events,
            self.first,
            self.last,
            self.took.as_secs_f64(),
            self.server,
            parts.join(", ")
        );
        let mut out = paint.paint(Colour::Bold, &head) + "\n";
        let mut rows = vec![["VERB", "CODE", "REQUESTS"].map(String::from).to_vec()];
        for ((verb, code), count) in &self.requests {
            let code = if *code == 0 { "none".to_owned() } else { code.to_string() };
            rows.push(vec![verb.to_string(), code, count.to_string()]);
        }
        if rows.len() > 1 {
            table(&rows).iter().for_each(|line| out.push_str(&format!("{line}\n")));
            out.push_str(&format!("latency: {}\n", self.latency.line()));
        }
        if self.is_paced && !self.behind.0.is_empty() {
            out.push_str(&format!("behind schedule: {}\n", self.behind.line()));
        }
        for (reason, refusals) in &self.refusals {
            out.push_str(&paint.paint(Colour::Red, &format!("{} refused: {reason}", refusals.count)));
            out.push('\n');
            for (offset, object, message) in &refusals.examples {
                out.push_str(&format!("  event {offset}, {}: {}\n", visible::line(object), visible::line(message)));
            }
        }
        out
    }

    fn value(&self) -> Value {
        let requests: Vec<Value> = self
            .requests
            .iter()
            .map(|((verb, code), count)| json!({"verb": verb, "code": code, "requests": count}))
            .collect();
        let example = |(offset, object, message): &(u64, String, String)| json!({"version": offset, "object": object, "message": message});
        let refusals: Vec<Value> = self
            .refusals
            .iter()
            .map(|(reason, refusals)| {
                let examples: Vec<Value> = refusals.examples.iter().map(example).collect();
                json!({"reason": reason, "count": refusals.count, "examples": examples})
            })
            .collect();
        json!({
            "server": self.server,
            "from": self.first,
            "to": self.last,
            "seconds": self.took.as_secs_f64(),
            "events": self.events,
            "done": self.done,
            "gone": self.gone,
            "serversOwn": self.servers_own,
            "unchanged": self.unchanged,
            "refused": self.refused(),
            "requests": requests,
            "latencyMs": self.latency.value(),
            "behindMs": if self.is_paced { self.behind.value() } else { Value::Null },
            "refusals": refusals,
        })
    }
}
