//! Compares the recorded decisions of Kubernetes' scheduler with the decisions of this scheduler.

use holdfast_scheduler::PlanOutcome;
use holdfast_scheduler::plan::{Plan, Scores};
use holdfast_scheduler::snapshot::assume::Reservation;
use holdfast_scheduler::status::{Nomination, Rejection};
use holdfast_value::{Map, Value, json};

#[derive(Default)]
pub struct Differences(Vec<(String, String)>);

impl Differences {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[(String, String)] {
        &self.0
    }

    pub fn unless(&mut self, what: &str, same: bool, detail: impl FnOnce() -> String) {
        if !same {
            self.0.push((what.into(), detail()));
        }
    }

    fn equal(&mut self, what: &str, wanted: &Value, got: Value) {
        self.unless(what, *wanted == got, || format!("\n    want {wanted}\n    got  {got}"));
    }
}

/// Plug-ins that Kubernetes 1.36 has and Kubernetes 1.35 does not have; the comparison skips them.
const NEWER: [&str; 1] = ["NodeDeclaredFeatures"];

/// Compares a recorded attempt to find a node for a pod with this scheduler's plan.
pub fn cycle(wanted: &Value, plan: &Plan, differences: &mut Differences) {
    let got = &plan.explanation;
    differences.equal("feasible", &sorted(&wanted["feasible"]), sorted(&json!(names(&got.feasible))));
    differences.equal("refused", &rejections(&wanted["refused"]), rejected(&got.diagnosis.rejected));
    differences.equal("preFilter", &wanted["preFilter"], json!(got.diagnosis.pre_filter_message));
    differences.equal("absent", &tidy(&wanted["absent"]), json!(got.diagnosis.absent.as_ref().map(rejection)));
    let rejectors = json!(got.diagnosis.rejectors());
    let none = json!([]);
    differences.equal("rejectors", &sorted(wanted.get("rejectors").unwrap_or(&none)), sorted(&rejectors));
    if got.diagnosis.pre_filter_message.is_none() {
        let skipped: Vec<_> = wanted["skippedFilters"].as_array().into_iter().flatten().cloned().collect();
        let skipped: Vec<_> = skipped.into_iter().filter(|name| !NEWER.contains(&name.as_str().unwrap())).collect();
        differences.equal("skipped", &json!(skipped), json!(got.skipped));
    }
    scores(wanted, plan, differences);
    if !wanted["preemption"].is_null() {
        preemption(&wanted["preemption"], plan, differences);
    }
}

fn scores(wanted: &Value, plan: &Plan, differences: &mut Differences) {
    let got = &plan.explanation;
    if wanted["total"].is_null() {
        return differences.unless("scores", got.scores.is_empty(), || format!("{:?}", got.scores));
    }
    let by_node = |values: &[i64]| -> Value {
        let pairs = got.feasible.iter().zip(values).map(|(node, value)| (node.to_string(), json!(value)));
        Value::Object(pairs.collect())
    };
    let table = |of: &dyn Fn(&Scores) -> Value| -> Value {
        Value::Object(got.scores.iter().map(|one| (one.plugin.to_owned(), of(one))).collect())
    };
    differences.equal("raw", &wanted["raw"], table(&|one| by_node(&one.raw)));
    differences.equal("normalized", &wanted["normalized"], table(&|one| by_node(&one.normalized)));
    let weights: Map = wanted["weights"].as_object().cloned().unwrap_or_default();
    let known = weights.into_iter().filter(|(name, _)| got.scores.iter().any(|one| one.plugin == name)).collect();
    differences.equal("weights", &Value::Object(known), table(&|one| json!(one.weight)));
    differences.equal("total", &wanted["total"], by_node(&got.totals));
}

fn preemption(wanted: &Value, plan: &Plan, differences: &mut Differences) {
    let Some(got) = &plan.explanation.preemption else {
        return differences.unless("preemption", false, || "none was tried".into());
    };
    let candidates = got.candidates.iter().map(|one| {
        // Victims of equal importance may come in any order, so the names are sorted before they are compared.
        let mut victims: Vec<_> = one.victims.iter().map(|pod| pod.key.to_string()).collect();
        victims.sort();
        (one.node.to_string(), json!({"pdbViolations": one.violations, "victims": victims}))
    });
    let mut wanted_candidates = wanted["candidates"].clone();
    for candidate in wanted_candidates.as_object_mut().into_iter().flatten() {
        candidate.1["victims"] = sorted(&candidate.1["victims"]);
    }
    differences.equal("candidates", &wanted_candidates, Value::Object(candidates.collect()));
    differences.equal("dry run", &rejections(&wanted["refused"]), rejected(&got.rejected));
}

fn names(names: &[holdfast_scheduler::object::Text]) -> Vec<&str> {
    names.iter().map(|name| &**name).collect()
}

fn rejected(all: &[(holdfast_scheduler::object::Text, Rejection)]) -> Value {
    Value::Object(all.iter().map(|(node, one)| (node.to_string(), rejection(one))).collect())
}

fn rejection(rejection: &Rejection) -> Value {
    let mut reasons = rejection.reasons.clone();
    reasons.sort();
    json!({"plugin": rejection.plugin, "code": rejection.code.name(), "reasons": reasons})
}

/// Sorts the reasons of a rejection, because their order is not fixed.
fn tidy(rejection: &Value) -> Value {
    let mut rejection = rejection.clone();
    if rejection.is_object() {
        rejection["reasons"] = sorted(&rejection["reasons"]);
    }
    rejection
}

fn rejections(all: &Value) -> Value {
    let all = all.as_object().into_iter().flatten();
    Value::Object(all.map(|(node, rejection)| (node.clone(), tidy(rejection))).collect())
}

fn sorted(list: &Value) -> Value {
    let mut list = list.as_array().cloned().unwrap_or_default();
    list.sort_by_key(ToString::to_string);
    json!(list)
}

/// Compares the chosen node with the node to which Kubernetes bound the pod.
pub fn bound(wanted: &Value, plan: &Plan, differences: &mut Differences) {
    let node = plan.node().map(|node| &**node);
    let best = wanted["best"].as_array();
    let right = best.map_or(wanted["node"].as_str() == node, |best| best.iter().any(|one| one.as_str() == node));
    differences.unless("node", right, || format!("{node:?}, not {} of {}", wanted["node"], wanted["best"]));
    if let Some(best) = best.filter(|_| !plan.explanation.totals.is_empty()) {
        differences.equal(
            "best",
            &sorted(&json!(best)),
            sorted(&json!(plan.best().iter().map(|one| &***one).collect::<Vec<_>>())),
        );
    }
}

/// Compares the volumes and devices that were chosen with the node: how many devices each claim gets, and which volume
/// each claim gets.
pub fn reservation(wanted: &Value, reservation: &Reservation, differences: &mut Differences) {
    for (claim, allocation) in &reservation.devices {
        let devices = wanted["resourceClaims"][claim.to_string()]["devices"].as_array().map_or(0, Vec::len);
        differences.unless("devices", devices == allocation.devices.len(), || {
            format!("{claim}: {} devices, not {devices}", allocation.devices.len())
        });
    }
    for (claim, volume) in &reservation.volumes {
        let recorded = &wanted["claims"][claim.to_string()];
        let made = recorded["volume"].as_str().is_none_or(|volume| volume.starts_with("made-for-"));
        differences.unless("volumes", made == volume.is_none(), || format!("{claim}: {volume:?}, not {recorded}"));
        if let Some(volume) = volume {
            differences.unless("volumes", recorded["volume"].as_str() == Some(volume), || {
                format!("{claim}: {volume}, not {recorded}")
            });
        }
    }
}

/// Compares the message about an unschedulable pod, and the victims that were chosen for it.
pub fn unschedulable(wanted: &Value, plan: &Plan, differences: &mut Differences) {
    let PlanOutcome::Unschedulable(why) = &plan.outcome else { return };
    differences.unless("node", wanted["node"].is_null(), || format!("none, not {}", wanted["node"]));
    differences.equal("message", &wanted["condition"]["message"], json!(why.message));
    differences.equal("reason", &wanted["condition"]["reason"], json!(why.reason));
    let Some(nominated) = wanted["nominated"].as_str() else {
        return differences
            .unless("nominated", !matches!(why.nomination, Nomination::Set(_)), || format!("{:?}", why.nomination));
    };
    let Some(preemption) = &plan.explanation.preemption else {
        return differences.unless("nominated", false, || format!("none, not {nominated}"));
    };
    let best = preemption.best();
    let wanted_best: Vec<_> = match wanted["nominatedBest"].as_array() {
        Some(best) => best.iter().map(|one| one.as_str().unwrap()).collect(),
        None => vec![nominated],
    };
    let mut best: Vec<&str> = best.iter().map(|one| &***one).collect();
    best.sort_unstable();
    differences.equal("nominatedBest", &sorted(&json!(wanted_best)), json!(best));
    let Some(victims) = &why.victims else { return };
    if &*victims.node == nominated {
        let mut got: Vec<_> = victims.pods.iter().map(|pod| pod.key.to_string()).collect();
        got.sort();
        let mut wanted: Vec<_> = wanted["victims"].as_array().into_iter().flatten().map(|one| &one["pod"]).collect();
        wanted.sort_by_key(|one| one.to_string());
        differences.equal("victims", &json!(wanted), json!(got));
    }
}
