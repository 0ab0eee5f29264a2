//! A Deployment that an autoscaler scales. Its pods share a load, which metrics may report.

use super::cluster::{self, Cluster, is_available, name, number};
use crate::oracle::{CheckResult, ensure};
use crate::random::Dice;
use holdfast_value::{Value, json};
use holdfast_world::Refusal;

pub const SCALED: &str = "h0";
const METRICS: &str = "/apis/metrics.k8s.io/";
/// The load of one pod that the autoscaler aims at.
const TARGET: i64 = 100;
/// The maximum number of pods that the autoscaler allows.
const MOST: i64 = 6;
/// The unit of the load. Any possible number of pods divides it without a remainder.
const UNIT: i64 = 60;
const UNITS_MAX: usize = 14;

/// The HorizontalPodAutoscaler. The Deployment that it scales is an ordinary Deployment.
pub fn autoscaler() -> Value {
    let metric = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "AverageValue", "averageValue": format!("{TARGET}m")}}});
    json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": SCALED}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": SCALED},
        "minReplicas": 1, "maxReplicas": MOST, "metrics": [metric]}})
}

/// A random load; `None` means that there are no metrics.
pub fn draw(dice: &mut Dice) -> Option<i64> {
    (!dice.chance(25)).then(|| UNIT * dice.below(UNITS_MAX) as i64)
}

/// The answer to a GET request. The metrics server answers the paths below its own prefix, and the API server answers
/// all other paths.
pub fn read(cluster: &Cluster, path: &str) -> Result<Value, Refusal> {
    let Some(load) = cluster.load.filter(|_| path.starts_with(METRICS)) else { return cluster.trial.read(path) };
    let is_scaled = |pod: &&Value| pod["metadata"]["labels"]["app"] == SCALED && is_available(pod);
    let pods: Vec<&Value> = cluster.all("pods").filter(is_scaled).collect();
    let share = format!("{}m", load / pods.len().max(1) as i64);
    let item = |pod: &&Value| {
        json!({"metadata": {"name": name(pod), "namespace": "default"}, "timestamp": cluster.trial.now(),
            "window": "30s", "containers": [{"name": "c", "usage": {"cpu": share}}]})
    };
    Ok(json!({"items": pods.iter().map(item).collect::<Vec<_>>()}))
}

pub fn stays_within_bounds(deployment: &Value) -> CheckResult {
    let size = number(&deployment["spec"]["replicas"], 1);
    let is_within = cluster::name(deployment) != SCALED || (1..=MOST).contains(&size);
    ensure(is_within, || format!("an autoscaler goes beyond its bounds: {size}"))
}

/// Checks that at rest the load of a pod is within a tenth of the target load, or that the Deployment has as many pods
/// as its load requires within the bounds of the autoscaler.
pub fn check(cluster: &Cluster) -> CheckResult {
    let (Some(deployment), Some(load)) = (cluster.named("deployments", SCALED), cluster.load) else { return Ok(()) };
    let size = number(&deployment["spec"]["replicas"], 1);
    let is_near = (10 * load - 10 * TARGET * size).abs() <= TARGET * size;
    let wanted = ((load + TARGET - 1) / TARGET).clamp(1, MOST);
    ensure(is_near || size == wanted, || {
        format!("an autoscaler leaves {size} pods, not {wanted}, to a load of {load}m")
    })
}
