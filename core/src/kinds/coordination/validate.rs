//! Validation of Leases and LeaseCandidates.

use crate::kinds::rules::{At, immutable, not_negative};
use crate::kinds::shapes::{at_least, qualified, semantic_version};
use crate::refusal::Causes;
use holdfast_value::Value;

const STRATEGIES: &[&str] = &[super::OLDEST_EMULATION_VERSION];

pub fn lease(new: &Value, _: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    at_least(spec.get("leaseDurationSeconds"), 1, "must be greater than 0", &mut causes);
    not_negative(spec.get("leaseTransitions"), &mut causes);
    let (strategy, preferred) = (spec.get("strategy"), spec.get("preferredHolder"));
    if strategy.is_set() {
        known_strategy(strategy, &mut causes);
    }
    if !preferred.is_empty() && strategy.is_empty() {
        causes.push(preferred.forbidden("may only be specified if `strategy` is defined"));
    }
    causes
}

pub fn candidate(new: &Value, old: Option<&Value>) -> Causes {
    let mut causes = Causes::default();
    let root = At::root(new);
    let spec = root.get("spec");
    let name = spec.get("leaseName");
    if name.is_empty() {
        causes.push(name.required(""));
    }
    let (emulated, binary) = (spec.get("emulationVersion"), spec.get("binaryVersion"));
    let mut read = |at: At| {
        let version = semantic_version(at.text());
        if version.is_none() && !at.is_empty() {
            causes.push(at.invalid("must be a valid semantic version"));
        }
        version.unwrap_or_default()
    };
    let (emulated_version, binary_version) = (read(emulated), read(binary));
    if !binary.is_empty() && !emulated.is_empty() && binary_version < emulated_version {
        causes.push(binary.invalid("must be greater than or equal to `emulationVersion`"));
    }
    let strategy = spec.get("strategy");
    if strategy.text() == STRATEGIES[0] {
        for (at, version) in [(binary, binary_version), (emulated, emulated_version)] {
            if version == [0; 3] {
                let detail = format!("must be specified when `strategy` is '{}'", STRATEGIES[0]);
                causes.push(at.required(&detail));
            }
        }
    }
    if strategy.is_empty() {
        causes.push(strategy.required(""))
    } else {
        known_strategy(strategy, &mut causes)
    }
    if let Some(old) = old {
        immutable(name, &old["spec"]["leaseName"], &mut causes);
    }
    causes
}

/// Checks the name of a strategy: it is one of Kubernetes' strategies, or has the domain of another program.
fn known_strategy(at: At, causes: &mut Causes) {
    // As in Kubernetes, the path repeats the field's name.
    let below = at.get("strategy");
    let at = below.holding(at.value);
    if at.text().contains('/') {
        qualified(at, causes);
    } else if !STRATEGIES.contains(&at.text()) {
        causes.push(at.not_supported(STRATEGIES));
    }
}

#[cfg(test)]
mod tests {
    use crate::kinds::rules::testing::{check_rows, check_updates};
    use holdfast_value::json;

    #[test]
    fn each_rule() {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
        });
        check_rows(
            &lease,
            &[
                ("/spec/leaseDurationSeconds", json!(0), "spec.leaseDurationSeconds: Invalid value: 0: must be greate"),
                ("/spec/leaseTransitions", json!(-1), "spec.leaseTransitions: Invalid value: -1: must be greater than"),
                ("/spec/preferredHolder", json!("you"), "spec.preferredHolder: Forbidden: may only be specified if"),
                ("/spec/strategy", json!("Best"), "spec.strategy.strategy: Unsupported value: \"Best\": supported val"),
                ("/spec/strategy", json!("example.com/best"), ""),
            ],
        );
        let candidate = json!({
            "apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": {"name": "a"},
            "spec": {
                "leaseName": "l", "binaryVersion": "1.35.0", "emulationVersion": "1.34.0",
                "strategy": "OldestEmulationVersion",
            },
        });
        check_rows(
            &candidate,
            &[
                ("/spec/leaseName", json!(""), "spec.leaseName: Required value"),
                (
                    "/spec/binaryVersion",
                    json!("1.35"),
                    "spec.binaryVersion: Invalid value: \"1.35\": must be a valid s",
                ),
                (
                    "/spec/binaryVersion",
                    json!("1.33.0"),
                    "spec.binaryVersion: Invalid value: \"1.33.0\": must be great",
                ),
                ("/spec/emulationVersion", json!(""), "spec.emulationVersion: Required value: must be specified when"),
                ("/spec/strategy", json!(""), "spec.strategy: Required value"),
            ],
        );
        check_updates(
            &candidate,
            &[
                ("/spec/binaryVersion", json!("1.36.0"), ""),
                ("/spec/leaseName", json!("m"), "spec.leaseName: Invalid value: \"m\": field is immutable"),
            ],
        );
    }
}
