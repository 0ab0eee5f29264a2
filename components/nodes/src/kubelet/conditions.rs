//! The conditions that a kubelet maintains on a pod.

use super::Kubelet;
use super::container::{Container, ContainerKind};
use holdfast_value::{Value, json};

struct Condition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

impl Condition {
    fn new(kind: &'static str, holds: bool, reason: &'static str, message: String) -> Condition {
        if holds && reason != "PodCompleted" {
            return Condition { kind, holds, reason: "", message: String::new() };
        }
        Condition { kind, holds, reason, message }
    }
}

/// The conditions of a pod that have changed, for a strategic merge patch.
pub fn written(kubelet: &Kubelet, phase: &str, ready: &[bool], generation: Option<i64>) -> Vec<Value> {
    let held = kubelet.resize.as_ref();
    let mut changed: Vec<Value> = Vec::new();
    for condition in wanted(kubelet, phase, ready) {
        let (kind, status) = (condition.kind, if condition.holds { "True" } else { "False" });
        let old = find(kubelet.pod, kind);
        let same = old.is_some_and(|old| {
            old["status"] == status
                && old["reason"].as_str().unwrap_or_default() == condition.reason
                && old["message"].as_str().unwrap_or_default() == condition.message
                && old["observedGeneration"].as_i64() == generation
        });
        if same {
            continue;
        }
        let since = match old.filter(|old| old["status"] == status && old["lastTransitionTime"].is_string()) {
            Some(old) => old["lastTransitionTime"].clone(),
            None => json!(kubelet.clock.now),
        };
        changed.push(json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
            "reason": text(condition.reason), "message": text(&condition.message), "observedGeneration": generation}));
    }
    let pending = find(kubelet.pod, "PodResizePending");
    match held {
        Some(held) if pending.is_none_or(|pending| pending["message"] != held.message.as_str()) => {
            changed.push(json!({"type": "PodResizePending", "status": "True", "reason": held.reason,
                "message": held.message, "lastProbeTime": null, "lastTransitionTime": kubelet.clock.now,
                "observedGeneration": generation}));
        }
        None if pending.is_some() => changed.push(json!({"type": "PodResizePending", "$patch": "delete"})),
        _ => {}
    }
    changed
}

/// The value that sets a text field in a patch. An empty text becomes `null`, which removes the field.
fn text(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

fn find<'v>(pod: &'v Value, kind: &str) -> Option<&'v Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn wanted(kubelet: &Kubelet, phase: &str, ready: &[bool]) -> Vec<Condition> {
    let over = matches!(phase, "Succeeded" | "Failed");
    let done = match phase {
        "Succeeded" => "PodCompleted",
        "Failed" => "PodFailed",
        _ => "",
    };
    let names = |wanted: &dyn Fn(&Container, bool) -> bool| {
        let named = kubelet.containers.iter().zip(ready).filter(|(container, ready)| wanted(container, **ready));
        named.map(|(container, _)| container.name()).collect::<Vec<_>>().join(" ")
    };
    let incomplete = names(&|container, _| match container.sort {
        ContainerKind::Init => container.end().is_none_or(|end| end.code != 0),
        ContainerKind::Sidecar => !over && !container.is_running(),
        _ => false,
    });
    let unready =
        names(&|container, ready| matches!(container.sort, ContainerKind::Main | ContainerKind::Sidecar) && !ready);
    let initialized = incomplete.is_empty();
    let all_ready = unready.is_empty() && initialized && !over;
    let unready = format!("containers with unready status: [{unready}]");
    let gates = closed_gates(kubelet.pod);
    let reason = if over { done } else { "ContainersNotReady" };
    let message = if over { String::new() } else { unready };
    let is_ready = all_ready && gates.is_empty();
    let (ready_reason, ready_message) =
        if all_ready { ("ReadinessGatesNotReady", gates) } else { (reason, message.clone()) };
    let completed = phase == "Succeeded";
    vec![
        Condition::new("PodReadyToStartContainers", !over, "", String::new()),
        Condition::new(
            "Initialized",
            initialized,
            if completed { "PodCompleted" } else { "ContainersNotInitialized" },
            if initialized { String::new() } else { format!("containers with incomplete status: [{incomplete}]") },
        ),
        Condition::new("Ready", is_ready, ready_reason, ready_message),
        Condition::new("ContainersReady", all_ready, reason, message),
        Condition::new("PodScheduled", true, "", String::new()),
    ]
}

/// The message that names the readiness gates whose conditions are not true.
fn closed_gates(pod: &Value) -> String {
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    let words = gates.filter_map(|gate| {
        let kind = gate["conditionType"].as_str().unwrap_or_default();
        match find(pod, kind) {
            None => Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist.")),
            Some(condition) if condition["status"] == "True" => None,
            Some(condition) => {
                let status = condition["status"].as_str().unwrap_or_default();
                Some(format!("the status of pod readiness gate {kind:?} is not \"True\", but {status}"))
            }
        }
    });
    words.collect::<Vec<_>>().join(", ")
}
