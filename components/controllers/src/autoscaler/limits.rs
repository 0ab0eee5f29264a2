//! Limits how far and how fast an autoscaler may change the size of its target.

use holdfast_core::schema::quantity;
use holdfast_world::Time;
use holdfast_world::views::autoscaler::{AutoscalerSpec, Behavior, Policy, Rules};

/// If no scale-up policy is set, the new size may be twice the present size, or this many pods if that is more.
const SMALL: i64 = 4;
/// The maximum, in seconds, that the API allows for a stabilization window, which is more than it allows for a policy's
/// period.
const MEMORY_SECONDS: i64 = 3600;

/// What one autoscaler recommended and changed in the past: each recommended size with its time, and each change.
#[derive(Debug, Default)]
pub struct ScalingHistory {
    recommended: Vec<(Time, i64)>,
    /// Each change of the size: its time, and the new size minus the old size.
    changes: Vec<(Time, i64)>,
}

impl ScalingHistory {
    /// If nothing was recommended yet, records the present size as the first recommendation.
    pub fn begin(&mut self, now: Time, current: i64) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current));
        }
    }

    /// Records a recommended size. For each size only its latest time is kept, because stabilization needs only the
    /// highest and the lowest size in a window.
    fn recommend(&mut self, now: Time, size: i64, window_seconds: i64) {
        let oldest = now.plus_seconds(window_seconds.max(MEMORY_SECONDS).saturating_neg());
        self.recommended.retain(|(time, known)| *time >= oldest && *known != size);
        self.recommended.push((now, size));
    }

    pub fn change(&mut self, now: Time, by: i64) {
        let oldest = now.plus_seconds(-MEMORY_SECONDS);
        self.changes.retain(|(time, _)| *time >= oldest);
        self.changes.push((now, by));
    }

    /// Removes the last change from the history, because the request to change the size failed.
    pub fn undo_last(&mut self) {
        self.changes.pop();
    }

    fn since(&self, now: Time, seconds: i64) -> impl Iterator<Item = i64> {
        let cut = now.plus_seconds(seconds.saturating_neg());
        self.recommended.iter().filter(move |(time, _)| *time > cut).map(|(_, size)| *size)
    }

    /// The size that the target had `seconds` before now.
    fn before(&self, now: Time, seconds: i64, current: i64) -> i64 {
        let cut = now.plus_seconds(seconds.saturating_neg());
        let changed: i64 = self.changes.iter().filter(|(time, _)| *time > cut).map(|(_, by)| by).sum();
        current - changed
    }
}

/// A recommended size after all limits. `stable` and `limit` are the reasons and messages of the conditions about
/// stabilization and about limits.
pub struct Limited {
    pub size: i64,
    pub stable: (&'static str, &'static str),
    pub limit: (&'static str, &'static str),
    pub is_limited: bool,
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const HIGHER: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const LOWER: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: (&str, &str) = ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) = ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");

/// Applies stabilization, policies, and the autoscaler's minimum and maximum to a recommended size.
pub fn limit(
    spec: &AutoscalerSpec,
    window_seconds: i64,
    memory: &mut ScalingHistory,
    current: i64,
    wanted: i64,
    now: Time,
) -> Limited {
    let (stable, reason) = stabilize(spec.behavior.as_ref(), window_seconds, memory, current, wanted, now);
    let min = spec.min_replicas.unwrap_or(1);
    let (size, limit) = match &spec.behavior {
        None => {
            let fastest = current.saturating_mul(2).max(SMALL);
            let (max, why) =
                if spec.max_replicas > fastest { (fastest, TOO_FAST_UP) } else { (spec.max_replicas, TOO_MANY) };
            match stable {
                _ if stable < min => (min, TOO_FEW),
                _ if stable > max => (max, why),
                _ => (stable, WITHIN),
            }
        }
        Some(behavior) if stable > current => {
            let fastest = fastest_up(&up(behavior), memory, current, now).max(current);
            let (max, why) =
                if spec.max_replicas > fastest { (fastest, TOO_FAST_UP) } else { (spec.max_replicas, TOO_MANY) };
            if stable > max { (max, why) } else { (stable, WITHIN) }
        }
        Some(behavior) if stable < current => {
            let fastest = fastest_down(&down(behavior), memory, current, now).min(current);
            let (least, why) = if min < fastest { (fastest, TOO_FAST_DOWN) } else { (min, TOO_FEW) };
            if stable < least { (least, why) } else { (stable, WITHIN) }
        }
        Some(_) => (stable, WITHIN),
    };
    Limited { size, stable: reason, limit, is_limited: size != stable }
}

/// Keeps the size from following every short change of usage: scaling down stops at the highest size that was
/// recommended within the scale-down window, and scaling up at the lowest size recommended within the scale-up window.
fn stabilize(
    behavior: Option<&Behavior>,
    down_seconds: i64,
    memory: &mut ScalingHistory,
    current: i64,
    wanted: i64,
    now: Time,
) -> (i64, (&'static str, &'static str)) {
    let (stable, reason) = match behavior {
        None => (memory.since(now, down_seconds).fold(wanted, i64::max), HIGHER),
        Some(behavior) => {
            let window = |rules: &Rules, default| rules.stabilization_window_seconds.unwrap_or(default);
            let lowest = memory.since(now, window(&up(behavior), 0)).fold(wanted, i64::min);
            let highest = memory.since(now, window(&down(behavior), down_seconds)).fold(wanted, i64::max);
            (current.max(lowest).min(highest), if wanted >= current { LOWER } else { HIGHER })
        }
    };
    memory.recommend(now, wanted, down_seconds);
    (stable, if stable == wanted { READY } else { reason })
}

fn up(behavior: &Behavior) -> Rules {
    let mut rules = behavior.scale_up.clone().unwrap_or_default();
    if rules.policies.is_empty() {
        rules.policies = vec![policy("Pods", 4), policy("Percent", 100)];
    }
    rules
}

fn down(behavior: &Behavior) -> Rules {
    let mut rules = behavior.scale_down.clone().unwrap_or_default();
    if rules.policies.is_empty() {
        rules.policies = vec![policy("Percent", 100)];
    }
    rules
}

fn policy(kind: &str, value: i64) -> Policy {
    Policy { kind: kind.to_owned(), value, period_seconds: 15 }
}

fn fastest_up(rules: &Rules, memory: &ScalingHistory, current: i64, now: Time) -> i64 {
    let sizes = rules.policies.iter().map(|policy| {
        let before = memory.before(now, policy.period_seconds, current);
        match policy.kind.as_str() {
            "Pods" => before.saturating_add(policy.value),
            _ => (before as f64 * (1.0 + policy.value as f64 / 100.0)).ceil() as i64,
        }
    });
    match rules.select_policy.as_deref() {
        Some("Disabled") => current,
        Some("Min") => sizes.min().unwrap_or(current),
        _ => sizes.max().unwrap_or(current),
    }
}

fn fastest_down(rules: &Rules, memory: &ScalingHistory, current: i64, now: Time) -> i64 {
    let sizes = rules.policies.iter().map(|policy| {
        let before = memory.before(now, policy.period_seconds, current);
        match policy.kind.as_str() {
            "Pods" => before.saturating_sub(policy.value),
            _ => (before as f64 * (1.0 - policy.value as f64 / 100.0)) as i64,
        }
    });
    match rules.select_policy.as_deref() {
        Some("Disabled") => current,
        Some("Min") => sizes.max().unwrap_or(current),
        _ => sizes.min().unwrap_or(current),
    }
}

/// How far the ratio of usage to target may be from 1 without a change of the size: `down` if the ratio is below 1,
/// `up` if it is above 1.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    down: f64,
    up: f64,
}

impl Tolerance {
    pub fn of(behavior: Option<&Behavior>, default: f64) -> Tolerance {
        let read = |rules: Option<&Rules>| {
            let nanos = rules.and_then(|rules| quantity::nanos(rules.tolerance.as_deref()?));
            nanos.map_or(default, |nanos| nanos as f64 / 1e9)
        };
        Tolerance {
            down: read(behavior.and_then(|behavior| behavior.scale_down.as_ref())),
            up: read(behavior.and_then(|behavior| behavior.scale_up.as_ref())),
        }
    }

    pub fn allows(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_remembered_once() {
        let (mut memory, start) = (ScalingHistory::default(), Time::from_second(1_795_255_200));
        for second in 0..10_000 {
            memory.recommend(start.plus_seconds(second), second % 3, 7200);
        }
        assert_eq!(memory.recommended.len(), 3);
        let now = start.plus_seconds(10_000);
        assert_eq!(memory.since(now, 3).collect::<Vec<_>>(), [2, 0], "the last ones");
        memory.recommend(start.plus_seconds(17_198), 9, 7200);
        assert_eq!(memory.since(start.plus_seconds(17_198), 7201).collect::<Vec<_>>(), [2, 0, 9], "within the window");
        memory.recommend(start.plus_seconds(17_300), 9, 60);
        assert_eq!(memory.recommended.len(), 1);
    }
}
