//! Metrics of authorization.

use super::Histogram;
use holdfast_core::authz::{Judged, Mode, Verdict, chain::PassedOver};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempt {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    r#type: &'static str,
    name: String,
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Condition {
    r#type: &'static str,
    name: String,
}

/// The upper bounds of the buckets for the duration of authorization, in seconds. They begin at ten microseconds; each
/// of the small buckets is twice the bucket before it.
const DURATIONS: [f64; 18] = [
    0.000_01, 0.000_02, 0.000_04, 0.000_08, 0.000_16, 0.000_32, 0.000_64, 0.001_28, 0.002_56, 0.005_12, 0.010_24,
    0.020_48, 0.040_96, 0.081_92, 0.163_84, 1.0, 5.0, 30.0,
];

/// The metrics of authorization. Their labels come only from the configuration, so clients cannot create further
/// labels.
pub(crate) struct Decisions {
    attempts: Family<Attempt, Counter>,
    durations: Family<Attempt, Histogram, fn() -> Histogram>,
    /// The counters of allowed requests. They are already looked up, because nearly all requests are allowed.
    allowed: (Counter, Histogram),
    decisions: Family<Decision, Counter>,
    /// One counter for each pair of an authorizer and a decision that has occurred since the server started. The list
    /// is short enough to search.
    known: RwLock<Vec<(Mode, Decision, Counter)>>,
    exclusions: Family<Condition, Counter>,
    faults: Family<Condition, Counter>,
}

impl Decisions {
    pub fn new(registry: &mut Registry) -> Decisions {
        let attempts = Family::<Attempt, Counter>::default();
        let durations: Family<Attempt, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::of_times(&DURATIONS));
        let allowed = Attempt { result: "allowed" };
        let own = Decisions {
            allowed: (attempts.get_or_create_owned(&allowed), durations.get_or_create_owned(&allowed)),
            attempts,
            durations,
            decisions: Family::default(),
            known: RwLock::default(),
            exclusions: Family::default(),
            faults: Family::default(),
        };
        let condition = "apiserver_authorization_match_condition";
        registry.register("authorization_attempts", "Requests judged", own.attempts.clone());
        registry.register("authorization_duration_seconds", "Time that judging took", own.durations.clone());
        registry.register(
            "apiserver_authorization_decisions",
            "Requests that an authorizer allowed or denied",
            own.decisions.clone(),
        );
        registry.register(
            format!("{condition}_exclusions"),
            "Requests that conditions kept from a webhook",
            own.exclusions.clone(),
        );
        registry.register(
            format!("{condition}_evaluation_errors"),
            "Requests for which conditions came to nothing",
            own.faults.clone(),
        );
        own
    }

    pub fn count(&self, judged: &Judged, took: Duration) {
        let (decision, result) = match &judged.verdict {
            Verdict::Allow { .. } => ("allowed", "allowed"),
            _ if !judged.errors.is_empty() => ("denied", "error"),
            Verdict::Deny { .. } => ("denied", "denied"),
            Verdict::NoOpinion { .. } => ("no-opinion", "no-opinion"),
        };
        if result == "allowed" {
            self.allowed.0.inc();
            self.allowed.1.took(took);
        } else {
            self.attempts.get_or_create(&Attempt { result }).inc();
            self.durations.get_or_create(&Attempt { result }).took(took);
        }
        if let Some((mode, name)) = &judged.by {
            self.count_decision(*mode, name, decision);
        }
        for PassedOver { webhook, failed } in &judged.passed_over {
            let family = if *failed { &self.faults } else { &self.exclusions };
            family.get_or_create(&Condition { r#type: "Webhook", name: webhook.clone() }).inc();
        }
    }

    fn count_decision(&self, mode: Mode, name: &str, decision: &'static str) {
        let is_it = |(of, known, _): &&(Mode, Decision, Counter)| {
            *of == mode && known.decision == decision && known.name == name
        };
        if let Some((.., counter)) = self.known.read().unwrap_or_else(PoisonError::into_inner).iter().find(is_it) {
            counter.inc();
            return;
        }
        let labels = Decision { r#type: mode.name(), name: name.to_owned(), decision };
        let counter = self.decisions.get_or_create_owned(&labels);
        counter.inc();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if !known.iter().any(|of| is_it(&of)) {
            known.push((mode, labels, counter));
        }
    }
}
