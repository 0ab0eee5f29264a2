//! The amounts that quotas count for pods: the requests and limits of pods that have not ended.

use crate::kinds::core::pod::qos_class;
use crate::kinds::core::validate::is_extended;
use crate::quota::{Measure, NOTHING_BUT_ITS_NUMBER, Selector, Usage};
use crate::schema::amount::Amount;
use holdfast_value::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(in crate::kinds::core) const HUGE_PAGES: &str = "hugepages-";
const REQUESTS: &str = "requests.";
const LIMITS: &str = "limits.";
/// Resources that have three names in quotas: the bare name (which means requests), `requests.` and `limits.`.
const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// If a quota limits one of these resources, each container must set the resource. As in Kubernetes, newer resources
/// have no such rule.
const MUST_BE_SAID: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

pub(in crate::kinds::core) const POD: Measure =
    Measure { answers, usage: Some(usage), within, missing, grows_through: &["resize"], ..NOTHING_BUT_ITS_NUMBER };

fn answers(name: &str) -> bool {
    let requested = name.strip_prefix(REQUESTS);
    let plain = requested.or_else(|| name.strip_prefix(LIMITS)).unwrap_or(name);
    name == "pods"
        || COMPUTE.contains(&plain)
        || name.starts_with(HUGE_PAGES)
        || requested.is_some_and(|plain| plain.starts_with(HUGE_PAGES) || is_extended(plain))
}

/// A pod that has ended, or that exists beyond the grace period of its deletion, uses no resources and does not count
/// as one of the `pods`; it still counts as an object (`count/pods`).
fn usage(pod: &Value, now: &str) -> Usage {
    if has_ended(pod, now) {
        return Usage::default();
    }
    let mut usage = compute(&sum(pod, "requests"), &sum(pod, "limits"));
    usage.set("pods", Amount::whole(1));
    usage
}

fn has_ended(pod: &Value, now: &str) -> bool {
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return true;
    }
    let meta = &pod["metadata"];
    let (Some(deleted), Some(grace)) =
        (meta["deletionTimestamp"].as_str(), meta["deletionGracePeriodSeconds"].as_i64())
    else {
        return false;
    };
    let [Ok(deleted), Ok(now)] = [deleted, now].map(str::parse::<jiff::Timestamp>) else { return false };
    now.as_second() > deleted.as_second().saturating_add(grace)
}

/// The amounts of one pod or container, under the names that quotas use.
fn compute(requests: &Usage, limits: &Usage) -> Usage {
    let mut usage = Usage::default();
    for (name, amount) in &requests.0 {
        let plain = COMPUTE.contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
        if plain {
            usage.set(name, *amount);
        }
        if plain || is_extended(name) {
            usage.set(&format!("{REQUESTS}{name}"), *amount);
        }
    }
    for (name, amount) in limits.0.iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        usage.set(&format!("{LIMITS}{name}"), *amount);
    }
    usage
}

/// The requests or limits of a whole pod, including its overhead.
fn sum(pod: &Value, part: &str) -> Usage {
    let spec = &pod["spec"];
    let statuses = Statuses::of(pod);
    let list = |name: &str| spec[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let amounts = |container: &Value| statuses.amounts(container, part);
    let mut running = of_containers(list("containers"), list("initContainers"), amounts);
    for (name, amount) in Usage::of(&spec["resources"][part]).0 {
        if is_pod_level(&name) {
            running.set(&name, amount);
        }
    }
    let overhead = Usage::of(&spec["overhead"]);
    // For a resource without a limit, the overhead adds no limit.
    running.add(&overhead.only(|name| part == "requests" || running.get(name).is_some_and(|limit| !limit.is_zero())));
    running
}

/// Whether a pod can set the resource at pod level, for all its containers together.
pub(in crate::kinds::core) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES)
}

/// The maximum that a pod's containers need at one time. Ordinary init containers end before the main containers start.
/// Sidecars keep running while all later containers run.
pub(in crate::kinds::core) fn of_containers(
    containers: &[Value],
    init_containers: &[Value],
    amounts: impl Fn(&Value) -> Usage,
) -> Usage {
    let mut running = Usage::default();
    for container in containers {
        running.add(&amounts(container));
    }
    let (mut staying, mut preparing) = (Usage::default(), Usage::default());
    for container in init_containers {
        let own = amounts(container);
        if container["restartPolicy"] == "Always" {
            staying.add(&own);
            preparing.raise(&staying);
            running.add(&own);
        } else {
            let mut beside = staying.clone();
            beside.add(&own);
            preparing.raise(&beside);
        }
    }
    running.raise(&preparing);
    running
}

/// The container statuses of a pod. While a container is being resized, the larger of its requested amount and the
/// actual amount in its status counts.
struct Statuses<'a> {
    by_name: BTreeMap<&'a str, &'a Value>,
    /// Whether the node cannot resize the pod, so that the requested amounts do not count.
    infeasible: bool,
}

impl<'a> Statuses<'a> {
    fn of(pod: &'a Value) -> Statuses<'a> {
        let status = &pod["status"];
        let list = |name: &str| status[name].as_array().into_iter().flatten();
        let all = list("initContainerStatuses").chain(list("containerStatuses"));
        let pending = list("conditions").find(|condition| condition["type"] == "PodResizePending");
        Statuses {
            by_name: all.filter_map(|status| Some((status["name"].as_str()?, status))).collect(),
            infeasible: pending.is_some_and(|condition| condition["reason"] == "Infeasible"),
        }
    }

    fn amounts(&self, container: &Value, part: &str) -> Usage {
        let asked = Usage::of(&container["resources"][part]);
        let name = container["name"].as_str().unwrap_or_default();
        let Some(status) = self.by_name.get(name) else { return asked };
        let mut given = Usage::of(&status["resources"][part]);
        if part == "requests" {
            given.raise(&Usage::of(&status["allocatedResources"]));
        }
        if !self.infeasible || given.0.is_empty() {
            given.raise(&asked);
        }
        given
    }
}

fn within(pod: &Value, selector: &Selector) -> bool {
    let spec = &pod["spec"];
    let ends = || spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let best_effort = || match pod["status"]["qosClass"].as_str() {
        Some(class) if !class.is_empty() => class == "BestEffort",
        _ => qos_class(spec) == "BestEffort",
    };
    match selector.scope.as_str() {
        "Terminating" => ends(),
        "NotTerminating" => !ends(),
        "BestEffort" => best_effort(),
        "NotBestEffort" => !best_effort(),
        "PriorityClass" => selector.selects(spec["priorityClassName"].as_str().filter(|class| !class.is_empty())),
        "CrossNamespacePodAffinity" => looks_across_namespaces(&spec["affinity"]),
        _ => false,
    }
}

/// Whether the pod's affinity refers to pods of other namespaces.
fn looks_across_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|names| !names.is_empty()) || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let list = |name: &str| affinity[*kind][name].as_array().into_iter().flatten();
        list("requiredDuringSchedulingIgnoredDuringExecution").any(crosses)
            || list("preferredDuringSchedulingIgnoredDuringExecution").any(|term| crosses(&term["podAffinityTerm"]))
    })
}

/// The limited resources that containers do not set, as text: `must specify limits.cpu for: a,b; requests.cpu for: a`.
fn missing(pod: &Value, limited: &[&str]) -> Option<String> {
    let spec = &pod["spec"];
    let lists =
        ["containers", "initContainers"].map(|list| spec[list].as_array().map(Vec::as_slice).unwrap_or_default());
    // Containers need not repeat resources that are set for the whole pod.
    let of_pod = &spec["resources"];
    let of_pod = compute(&Usage::of(&of_pod["requests"]), &Usage::of(&of_pod["limits"]));
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in lists.into_iter().flatten() {
        let resources = &container["resources"];
        let said = compute(&Usage::of(&resources["requests"]), &Usage::of(&resources["limits"]));
        let unsaid = MUST_BE_SAID
            .iter()
            .filter(|name| limited.contains(name) && said.get(name).is_none() && of_pod.get(name).is_none());
        for name in unsaid {
            lacking.entry(name).or_default().insert(container["name"].as_str().unwrap_or_default());
        }
    }
    let parts = lacking.into_iter().map(|(name, containers)| {
        let containers = containers.into_iter().collect::<Vec<_>>().join(",");
        format!("{name} for: {containers}")
    });
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    const NOW: &str = "2026-11-22T17:00:00Z";

    fn container(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}})
    }

    #[test]
    fn sidecars_stay_beside_what_comes_later() {
        let mut sidecar = container("side", "100m");
        sidecar["restartPolicy"] = json!("Always");
        let mut pod = json!({"spec": {
            "containers": [container("a", "200m"), container("b", "300m")],
            "initContainers": [container("first", "550m"), sidecar, container("last", "450m")],
        }});
        assert_eq!(usage(&pod, NOW).get("cpu"), Amount::parse("600m"), "running: 200 + 300 + 100");
        pod["spec"]["initContainers"][2] = container("last", "1");
        assert_eq!(usage(&pod, NOW).get("requests.cpu"), Amount::parse("1100m"), "the last one beside the sidecar");
        pod["spec"]["overhead"] = json!({"cpu": "50m", "memory": "1Mi"});
        let whole = usage(&pod, NOW);
        assert_eq!(whole.get("limits.cpu"), Amount::parse("1150m"));
        assert_eq!((whole.get("memory"), whole.get("limits.memory")), (Amount::parse("1Mi"), None));
        pod["spec"]["resources"] = json!({"requests": {"cpu": "2"}});
        assert_eq!(usage(&pod, NOW).get("cpu"), Amount::parse("2050m"), "what the pod says itself");
    }

    #[test]
    fn a_pod_that_has_ended_uses_nothing() {
        let pod = |meta: Value, phase: &str| json!({"metadata": meta, "spec": {}, "status": {"phase": phase}});
        let deleted =
            |grace: i64| json!({"deletionTimestamp": "2026-11-22T16:59:30Z", "deletionGracePeriodSeconds": grace});
        for (pod, counts) in [
            (pod(json!({}), "Running"), true),
            (pod(json!({}), "Failed"), false),
            (pod(json!({}), "Succeeded"), false),
            (pod(deleted(30), "Running"), true),
            (pod(deleted(29), "Running"), false),
        ] {
            assert_eq!(usage(&pod, NOW).get("pods").is_some(), counts, "{pod}");
        }
    }

    #[test]
    fn while_it_is_resized_a_container_uses_the_larger_amount() {
        let mut pod = json!({"spec": {"containers": [container("a", "200m")]}, "status": {"containerStatuses": [
            {"name": "a", "allocatedResources": {"cpu": "300m"}, "resources": {"requests": {"cpu": "100m"}}}]}});
        assert_eq!(usage(&pod, NOW).get("cpu"), Amount::parse("300m"));
        pod["spec"]["containers"][0] = container("a", "2");
        assert_eq!(usage(&pod, NOW).get("cpu"), Amount::parse("2"));
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        assert_eq!(usage(&pod, NOW).get("cpu"), Amount::parse("300m"));
    }

    #[test]
    fn names_that_pods_answer_for() {
        for name in [
            "pods",
            "cpu",
            "requests.memory",
            "limits.ephemeral-storage",
            "hugepages-2Mi",
            "requests.hugepages-2Mi",
            "requests.example.com/gpu",
        ] {
            assert!(answers(name), "{name}");
        }
        for name in [
            "requests.storage",
            "limits.pods",
            "services",
            "example.com/gpu",
            "limits.example.com/gpu",
            "persistentvolumeclaims",
        ] {
            assert!(!answers(name), "{name}");
        }
        let pod = json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {
            "example.com/gpu": "2", "hugepages-2Mi": "4Mi"}}}]}});
        let used = usage(&pod, NOW);
        for (name, amount) in
            [("requests.example.com/gpu", "2"), ("hugepages-2Mi", "4Mi"), ("requests.hugepages-2Mi", "4Mi")]
        {
            assert_eq!(used.get(name), Amount::parse(amount), "{name}");
        }
    }

    #[test]
    fn scopes() {
        let selects = |pod: &Value, scope: &str| within(pod, &Selector::all(&json!({"scopes": [scope]}))[0]);
        let plain = json!({"spec": {"containers": [{"name": "a"}]}});
        let asking = json!({"spec": {"containers": [container("a", "1")], "activeDeadlineSeconds": 5,
            "priorityClassName": "high",
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["b"]}]}}}});
        for (scope, of_plain) in [
            ("BestEffort", true),
            ("NotBestEffort", false),
            ("Terminating", false),
            ("NotTerminating", true),
            ("PriorityClass", false),
            ("CrossNamespacePodAffinity", false),
        ] {
            assert_eq!(selects(&plain, scope), of_plain, "{scope}");
            assert_eq!(selects(&asking, scope), !of_plain, "{scope}");
        }
        assert!(!selects(&plain, "VolumeAttributesClass"));
    }

    #[test]
    fn what_containers_must_say() {
        let pod =
            json!({"spec": {"containers": [container("a", "1"), {"name": "b"}], "initContainers": [{"name": "c"}]}});
        assert_eq!(
            missing(&pod, &["limits.cpu", "memory", "pods", "requests.ephemeral-storage"]).as_deref(),
            Some("must specify limits.cpu for: b,c; memory for: a,b,c")
        );
        assert_eq!(missing(&pod, &["pods"]), None);
    }
}
