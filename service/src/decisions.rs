//! What is counted of authorization.

use holdfast_core::authz::{Judged, chain::PassedOver};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
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

/// Labels are names of the configuration alone: nobody can make them more.
pub(crate) struct Decisions {
    attempts: Family<Attempt, Counter>,
    durations: Family<Attempt, Histogram>,
    decisions: Family<Decision, Counter>,
    exclusions: Family<Condition, Counter>,
    faults: Family<Condition, Counter>,
}

impl Decisions {
    pub fn new(registry: &mut Registry) -> Decisions {
        let own = Decisions {
            attempts: Family::default(),
            durations: Family::new_with_constructor(|| {
                Histogram::new((0..15).map(|step| 0.00001 * 2f64.powi(step)).chain([1.0, 5.0, 30.0]))
            }),
            decisions: Family::default(),
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
        use holdfast_core::authz::Verdict;
        let (decision, result) = match &judged.verdict {
            Verdict::Allow { .. } => ("allowed", "allowed"),
            _ if !judged.errors.is_empty() => ("denied", "error"),
            Verdict::Deny { .. } => ("denied", "denied"),
            Verdict::NoOpinion { .. } => ("no-opinion", "no-opinion"),
        };
        self.attempts.get_or_create(&Attempt { result }).inc();
        self.durations.get_or_create(&Attempt { result }).observe(took.as_secs_f64());
        if let Some((mode, name)) = &judged.by {
            self.decisions.get_or_create(&Decision { r#type: mode.name(), name: name.clone(), decision }).inc();
        }
        for PassedOver { webhook, failed } in &judged.passed_over {
            let family = if *failed { &self.faults } else { &self.exclusions };
            family.get_or_create(&Condition { r#type: "Webhook", name: webhook.clone() }).inc();
        }
    }
}
