//! The taints that a node gets because of its conditions.

use super::zones::{TaintTurn, Zones};
use crate::planted::{Bug, planted};
use crate::subject::part;
use holdfast_value::{Value, json};
use holdfast_world::views::Condition;
use holdfast_world::views::Node;
use holdfast_world::{Plan, Time, Viewed};

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// For each condition and status, the key of the NoSchedule taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// The node's wanted list of taints; `None` if the node already has it. One write changes either the NoSchedule taints
/// or the NoExecute taints; if both must change, the NoSchedule taints are written first.
pub fn desired(node: Viewed<'_, Node>, now: Time, zones: &mut Zones, plan: &mut Plan) -> Option<Vec<Value>> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for condition in &node.status.conditions {
        let taint =
            BY_CONDITION.iter().find(|(kind, status, _)| condition.kind == *kind && condition.status == *status);
        wanted.extend(taint.map(|(_, _, key)| (*key, NO_SCHEDULE)));
    }
    if node.spec.unschedulable {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let keeps_away = |key: &str| key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, known)| *known == key);
    rewritten(node, NO_SCHEDULE, keeps_away, &wanted, now).or_else(|| {
        let wanted: Vec<_> = driving_out(node, now, zones, plan).map(|key| (key, NO_EXECUTE)).into_iter().collect();
        rewritten(node, NO_EXECUTE, |key| key == NOT_READY || key == UNREACHABLE, &wanted, now)
    })
}

/// The list of taints, where the taints of one effect that this controller manages are replaced by the wanted taints.
/// Returns `None` if nothing changes.
fn rewritten(
    node: Viewed<'_, Node>,
    effect: &str,
    is_known: impl Fn(&str) -> bool,
    wanted: &[(&str, &str)],
    now: Time,
) -> Option<Vec<Value>> {
    let is_ours = |key: &str, of: &str| of == effect && is_known(key);
    let has = |key: &str, effect: &str| node.spec.taints.iter().any(|taint| taint.key == key && taint.effect == effect);
    let surplus = |taint: &&holdfast_world::views::node::Taint| {
        is_ours(&taint.key, &taint.effect) && !wanted.contains(&(&*taint.key, &*taint.effect))
    };
    let missing: Vec<_> = wanted.iter().filter(|(key, effect)| !has(key, effect)).collect();
    let stays = planted(Bug::TaintsStay) || !node.spec.taints.iter().any(|taint| surplus(&taint));
    if missing.is_empty() && stays {
        return None;
    }
    let mut taints = part(node.object, &["spec", "taints"]).as_array().cloned().unwrap_or_default();
    taints.retain(|taint| {
        let (key, effect) = (taint["key"].as_str().unwrap_or_default(), taint["effect"].as_str().unwrap_or_default());
        !is_ours(key, effect) || wanted.contains(&(key, effect))
    });
    taints.extend(missing.into_iter().map(|(key, effect)| json!({"key": key, "effect": effect, "timeAdded": now})));
    Some(taints)
}

/// The key of the NoExecute taint of a lost node, if the node may get the taint now.
fn driving_out(node: Viewed<'_, Node>, now: Time, zones: &mut Zones, plan: &mut Plan) -> Option<&'static str> {
    let name = &node.meta().name;
    let wanted = match Condition::find(&node.status.conditions, "Ready")?.status.as_str() {
        "False" => NOT_READY,
        "Unknown" => UNREACHABLE,
        _ => {
            zones.forget_turn(name);
            return None;
        }
    };
    let has_any = node
        .spec
        .taints
        .iter()
        .any(|taint| taint.effect == NO_EXECUTE && (taint.key == NOT_READY || taint.key == UNREACHABLE));
    match zones.taint_turn(name, has_any, now) {
        TaintTurn::Now => Some(wanted),
        TaintTurn::At(time) => {
            plan.requeue_at(time);
            None
        }
        TaintTurn::Never => None,
    }
}
