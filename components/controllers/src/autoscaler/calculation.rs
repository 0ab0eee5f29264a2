//! Computes how many pods an autoscaler's target should have, from the usage of its pods.

use super::limits::Tolerance;
use crate::settings::AutoscalingSettings;
use holdfast_core::schema::quantity;
use holdfast_world::views::Condition;
use holdfast_world::views::Pod;
use holdfast_world::views::pod::Container;
use holdfast_world::{Time, Viewed};
use std::collections::{BTreeMap, BTreeSet};

/// A pod's usage in thousandths of the metric's unit, measured over a window that ended at `time`.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub milli: i64,
    pub time: Time,
    pub window_millis: i64,
}

pub type Samples = BTreeMap<String, Sample>;

/// The size that a metric proposes, in pods. `milli` is the present usage on average over the pods, in thousandths;
/// `percent` is the usage in percent of the requests, if the target is a percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proposal {
    pub size: i64,
    pub percent: Option<i64>,
    pub milli: i64,
}

/// The pods of an autoscaler's target, each with its sample by the pod's name, and the inputs from which a size is
/// proposed.
pub struct PodUsage<'a> {
    pub pods: &'a [Viewed<'a, Pod>],
    pub samples: Samples,
    pub current: i64,
    pub tolerance: Tolerance,
    pub now: Time,
    pub settings: AutoscalingSettings,
}

/// The pods of a target: the number of ready pods whose samples count, and the names of the pods that are not ready and
/// of the pods without a sample.
struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
}

impl PodUsage<'_> {
    fn group(&mut self, is_cpu: bool) -> Groups {
        let mut groups = Groups { ready: 0, unready: BTreeSet::new(), missing: BTreeSet::new() };
        let mut ignored = Vec::new();
        for pod in self.pods {
            let name = pod.meta().name.clone();
            match (pod.status.phase.as_str(), self.samples.get(&name)) {
                _ if pod.meta().is_deleting() => ignored.push(name),
                ("Failed", _) => ignored.push(name),
                ("Pending" | "", _) => _ = groups.unready.insert(name),
                (_, None) => _ = groups.missing.insert(name),
                (_, Some(sample)) if is_cpu && self.is_starting(*pod, *sample) => _ = groups.unready.insert(name),
                _ => groups.ready += 1,
            }
        }
        ignored.iter().chain(&groups.unready).for_each(|name| _ = self.samples.remove(name));
        groups
    }

    /// Whether a pod's sample says nothing about the pod's normal usage, because the pod has only just started.
    fn is_starting(&self, pod: Viewed<'_, Pod>, sample: Sample) -> bool {
        let ready = Condition::find(&pod.view.status.conditions, "Ready");
        let (Some(ready), Some(start)) = (ready, pod.view.status.start_time) else { return true };
        let moved = ready.last_transition_time.unwrap_or(start);
        let is_unready = ready.status == "False";
        if start.plus_seconds(self.settings.cpu_start_seconds) > self.now {
            is_unready || sample.time < moved.plus_millis(sample.window_millis)
        } else {
            is_unready && start.plus_seconds(self.settings.readiness_seconds) > moved
        }
    }

    /// The proposal for a target that is a percentage of the pods' requests for a resource.
    pub fn of_requests(mut self, target: i64, resource: &str, container: &str) -> Result<Proposal, String> {
        let groups = self.checked_groups(resource)?;
        let mut requests = BTreeMap::new();
        for pod in self.pods {
            requests.insert(pod.meta().name.clone(), request(*pod, resource, container)?);
        }
        let ratio = |samples: &Samples| -> Result<(f64, i64, i64), String> {
            let known = samples.iter().filter_map(|(name, sample)| Some((sample.milli, *requests.get(name)?)));
            let (used, asked, count) = known.fold((0i128, 0i128, 0i128), |(used, asked, count), (sample, request)| {
                (used + i128::from(sample), asked + i128::from(request), count + 1)
            });
            if asked == 0 {
                return Err("no metrics returned matched known pods".into());
            }
            let percent = i64::try_from(used * 100 / asked).unwrap_or(i64::MAX);
            Ok((percent as f64 / target as f64, percent, i64::try_from(used / count).unwrap_or(i64::MAX)))
        };
        let fallback = |name: &str| {
            let request = i128::from(requests.get(name).copied().unwrap_or(0));
            i64::try_from(request * i128::from(target.max(100)) / 100).unwrap_or(i64::MAX)
        };
        let (first, percent, milli) = ratio(&self.samples)?;
        let size = self.size(&groups, first, fallback, |samples| Ok(ratio(samples)?.0))?;
        Ok(Proposal { size, percent: Some(percent), milli })
    }

    /// The proposal for a target usage that pods should have on average.
    pub fn of_average(mut self, target: i64, resource: &str) -> Result<Proposal, String> {
        let groups = self.checked_groups(resource)?;
        let average = |samples: &Samples| {
            let total: i128 = samples.values().map(|sample| i128::from(sample.milli)).sum();
            i64::try_from(total / samples.len().max(1) as i128).unwrap_or(i64::MAX)
        };
        let milli = average(&self.samples);
        let ratio = |milli: i64| milli as f64 / target as f64;
        let size = self.size(&groups, ratio(milli), |_| target, |samples| Ok(ratio(average(samples))))?;
        Ok(Proposal { size, percent: None, milli })
    }

    fn checked_groups(&mut self, resource: &str) -> Result<Groups, String> {
        if self.pods.is_empty() {
            return Err("no pods returned by selector while calculating replica count".into());
        }
        let groups = self.group(resource == "cpu");
        if self.samples.is_empty() {
            return Err("did not receive metrics for targeted pods (pods might be unready)".into());
        }
        Ok(groups)
    }

    /// The size to propose. Pods without a sample are assumed to have the usage that changes the size least.
    fn size(
        mut self,
        groups: &Groups,
        first: f64,
        fallback: impl Fn(&str) -> i64,
        ratio: impl Fn(&Samples) -> Result<f64, String>,
    ) -> Result<i64, String> {
        let grows = first > 1.0;
        let counts_unready = grows && !groups.unready.is_empty();
        if !counts_unready && groups.missing.is_empty() {
            let stays = self.tolerance.allows(first);
            return Ok(if stays { self.current } else { (first * groups.ready as f64).ceil() as i64 });
        }
        let mut assume = |name: &String, milli: i64| {
            self.samples.insert(name.clone(), Sample { milli, time: self.now, window_millis: 0 });
        };
        for name in &groups.missing {
            if first < 1.0 {
                assume(name, fallback(name));
            } else if grows {
                assume(name, 0);
            }
        }
        if counts_unready {
            groups.unready.iter().for_each(|name| assume(name, 0));
        }
        let then = ratio(&self.samples)?;
        // The assumed usage of pods without a sample must not turn scaling up into scaling down, or the reverse.
        let turns = first < 1.0 && then > 1.0 || grows && then < 1.0;
        if self.tolerance.allows(then) || turns {
            return Ok(self.current);
        }
        let size = (then * self.samples.len() as f64).ceil() as i64;
        let turns = then < 1.0 && size > self.current || then > 1.0 && size < self.current;
        Ok(if turns { self.current } else { size })
    }
}

/// A pod's request for a resource, in thousandths.
fn request(pod: Viewed<'_, Pod>, resource: &str, container: &str) -> Result<i64, String> {
    let spec = &pod.view.spec;
    if let Some(text) = spec.resources.requests.get(resource).filter(|_| container.is_empty()) {
        return Ok(milli(text));
    }
    let stays = |container: &&Container| container.restart_policy == "Always";
    let all = spec.containers.iter().chain(spec.init_containers.iter().filter(stays));
    let mut total: i64 = 0;
    for found in all.filter(|found| container.is_empty() || found.name == container) {
        let text = found.resources.requests.get(resource).ok_or_else(|| {
            format!("missing request for {resource} in container {} of Pod {}", found.name, pod.meta().name)
        })?;
        total = total.saturating_add(milli(text));
    }
    Ok(total)
}

/// A quantity's value in thousandths, rounded up.
pub fn milli(text: &str) -> i64 {
    let nanos = quantity::nanos(text).unwrap_or(0);
    i64::try_from(nanos.div_euclid(1_000_000) + i128::from(nanos.rem_euclid(1_000_000) != 0)).unwrap_or(i64::MAX)
}

/// A value in thousandths, written as a quantity.
pub fn quantity_text(milli: i64) -> String {
    let text = format!("{milli}m");
    quantity::canonical(&text).unwrap_or(text)
}

/// The size if all pods share one value, such as the length of a queue: the number of ready pods, times the ratio of
/// the value to its target.
pub fn by_ratio(pods: &[Viewed<'_, Pod>], current: i64, ratio: f64, tolerance: Tolerance) -> Result<i64, String> {
    if current == 0 {
        return Ok(ratio.ceil() as i64);
    }
    if tolerance.allows(ratio) {
        return Ok(current);
    }
    if pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let ready = pods.iter().filter(|pod| pod.status.phase == "Running" && pod.is_ready()).count();
    Ok((ratio * ready as f64).ceil() as i64)
}

/// For a value that all pods share: the size at which each pod has `target` of the value, and the amount that each pod
/// has now. All amounts are in thousandths.
pub fn per_pod(milli: i64, target: i64, current: i64, tolerance: Tolerance) -> (i64, i64) {
    let ratio = milli as f64 / (target as f64 * current as f64);
    let size = if tolerance.allows(ratio) { current } else { (milli as f64 / target as f64).ceil() as i64 };
    (size, (milli as f64 / current as f64).ceil() as i64)
}
