//! The requests of a pod: from its containers, its pod-level requests and its overhead.

use super::resources::{CPU, MEMORY, Resources, amount_of, is_pod_level};
use super::{StringPool, entries, items, text};
use holdfast_value::Value;
use std::collections::{BTreeMap, HashMap};

/// The CPU request in thousandths of a processor that scores count for a container without a request.
const DEFAULT_CPU: i64 = 100;
/// The memory request in bytes that scores count for a container without a request.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Which requests of a pod a sum includes.
#[derive(Clone, Copy, Default)]
struct SumRules {
    /// Whether containers without requests count with default requests.
    default_requests: bool,
    /// Whether pod-level requests replace the sum over the containers.
    pod_level: bool,
    /// Whether the resources that the status shows as allocated count, too, during a resize.
    allocated: bool,
    /// Whether limits are summed instead of requests.
    limits: bool,
}

impl SumRules {
    fn field(self) -> &'static str {
        if self.limits { "limits" } else { "requests" }
    }
}

/// The requests of a pod by which filters compare the pod with a node.
pub fn pod_requests(pool: &mut StringPool, pod: &Value) -> Resources {
    sum(pool, pod, SumRules { pod_level: true, ..SumRules::default() })
}

/// The requests of a pod without a node, as scores use them: with default requests, and without pod-level requests.
pub fn non_zero_requests(pool: &mut StringPool, pod: &Value) -> Resources {
    sum(pool, pod, SumRules { default_requests: true, ..SumRules::default() })
}

/// The requests of a pod on its node by its spec alone, as scores use them: with default requests and pod-level
/// requests.
pub fn bound_non_zero_requests(pool: &mut StringPool, pod: &Value) -> Resources {
    sum(pool, pod, SumRules { default_requests: true, pod_level: true, ..SumRules::default() })
}

/// The sum of the limits of the containers; a container without limits adds nothing.
pub fn limits(pool: &mut StringPool, pod: &Value) -> Resources {
    sum(pool, pod, SumRules { pod_level: true, limits: true, ..SumRules::default() })
}

/// The requests of a pod on its node, including a resize: first as filters use them, then as scores use them.
pub fn effective_requests(pool: &mut StringPool, pod: &Value) -> (Resources, Resources) {
    let rules = SumRules { pod_level: true, allocated: true, ..SumRules::default() };
    (sum(pool, pod, rules), sum(pool, pod, SumRules { default_requests: true, ..rules }))
}

fn sum(pool: &mut StringPool, pod: &Value, rules: SumRules) -> Resources {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let infeasible = items(&status["conditions"])
        .any(|one| text(&one["type"]) == "PodResizePending" && text(&one["reason"]) == "Infeasible");
    // If the pod has pod-level requests, a container without a request for CPU or memory gets the default request only
    // if neither the pod, nor any container, nor the overhead names that resource.
    let has_pod_level = rules.pod_level && has_pod_level_requests(spec);
    let [default_cpu, default_memory] =
        [CPU, MEMORY].map(|name| rules.default_requests && !(has_pod_level && is_requested(spec, name)));
    let mut of = |container: &Value, statuses: &ContainerStatuses| {
        let mut own = Resources::decode(pool, &container["resources"][rules.field()]);
        if rules.allocated
            && let Some(allocated) = allocated_resources(pool, container, statuses)
        {
            if infeasible { own = allocated } else { own.raise_to(&allocated) }
        }
        let requests = &container["resources"]["requests"];
        if default_cpu && requests[CPU].is_null() && own.milli_cpu == 0 {
            own.milli_cpu = DEFAULT_CPU;
        }
        if default_memory && requests[MEMORY].is_null() && own.memory == 0 {
            own.memory = DEFAULT_MEMORY;
        }
        own
    };
    let statuses =
        |list: &str| if rules.allocated { statuses_by_container(&status[list]) } else { ContainerStatuses::new() };
    let mut running = Resources::default();
    let main = statuses("containerStatuses");
    for container in items(&spec["containers"]) {
        running.add(&of(container, &main));
    }
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    let init = statuses("initContainerStatuses");
    for container in items(&spec["initContainers"]) {
        if text(&container["restartPolicy"]) == "Always" {
            sidecars.add(&of(container, &init));
            starting.raise_to(&sidecars);
        } else {
            // An init container that ends before the containers run cannot be resized, so its spec alone counts.
            let mut together = sidecars.clone();
            together.add(&of(container, &ContainerStatuses::new()));
            starting.raise_to(&together);
        }
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    if rules.pod_level {
        running.replace_pod_level(pool, pod_level_amounts(pod, rules, infeasible));
    }
    let overhead = Resources::decode(pool, &spec["overhead"]);
    // A pod's overhead is no limit by itself, so it is added only to limits that exist.
    if rules.limits {
        running.add_to_non_zero(&overhead)
    } else {
        running.add(&overhead)
    }
    running
}

/// The pod-level amounts: from the spec, or from the status if the amounts allocated there are larger or the resize is
/// infeasible.
fn pod_level_amounts(pod: &Value, rules: SumRules, infeasible: bool) -> BTreeMap<&str, i64> {
    let mut lists = vec![&pod["spec"]["resources"][rules.field()]];
    let actual = &pod["status"]["resources"];
    if rules.allocated && actual.is_object() && entries(lists[0]).any(|(name, _)| is_pod_level(name)) {
        lists.extend([&actual["requests"], &pod["status"]["allocatedResources"]]);
        lists.drain(..usize::from(infeasible));
    }
    let mut amounts = BTreeMap::new();
    for (name, amount) in lists.into_iter().flat_map(entries) {
        let most: &mut i64 = amounts.entry(name.as_str()).or_default();
        *most = amount_of(name, amount).max(*most);
    }
    amounts
}

/// Whether the status of a pod, or of any of its containers, shows other amounts than the requests in the spec. For
/// most pods the amounts are equal.
pub fn is_resized(pod: &Value) -> bool {
    let (requests, status) = (&pod["spec"]["resources"]["requests"], &pod["status"]);
    let (actual, allocated) = (&status["resources"], &status["allocatedResources"]);
    let differs = actual["requests"] != *requests || !allocated.is_null() && allocated != requests;
    if requests.is_object() && actual.is_object() && differs {
        return true;
    }
    [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")].iter().any(|(list, statuses)| {
        let statuses = statuses_by_container(&pod["status"][*statuses]);
        items(&pod["spec"][*list]).any(|container| {
            let requests = &container["resources"]["requests"];
            statuses.get(text(&container["name"])).is_some_and(|status| {
                let (resources, allocated) = (&status["resources"]["requests"], &status["allocatedResources"]);
                resources != requests || !allocated.is_null() && allocated != requests
            })
        })
    })
}

/// The container statuses that show resources, by the container's name. A map is used because a pod may have thousands
/// of containers.
type ContainerStatuses<'a> = HashMap<&'a str, &'a Value>;

fn statuses_by_container(statuses: &Value) -> ContainerStatuses<'_> {
    let with_resources = items(statuses).filter(|status| status["resources"].is_object());
    with_resources.map(|status| (text(&status["name"]), status)).collect()
}

/// The resources that a container has according to its status; `None` if the status shows none.
fn allocated_resources(pool: &mut StringPool, container: &Value, statuses: &ContainerStatuses) -> Option<Resources> {
    let status = statuses.get(text(&container["name"]))?;
    let mut allocated = Resources::decode(pool, &status["resources"]["requests"]);
    allocated.raise_to(&Resources::decode(pool, &status["allocatedResources"]));
    Some(allocated)
}

fn has_pod_level_requests(spec: &Value) -> bool {
    entries(&spec["resources"]["requests"]).any(|(name, _)| is_pod_level(name))
}

/// Whether a container, the pod itself or its overhead requests a resource of this name.
fn is_requested(spec: &Value, name: &str) -> bool {
    let containers = items(&spec["containers"]).chain(items(&spec["initContainers"]));
    let mut lists = containers.chain([spec]).map(|one| &one["resources"]["requests"]).chain([&spec["overhead"]]);
    lists.any(|list| !list[name].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn only_lasting_containers_can_have_more_than_they_request() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let status = |name: &str| json!({"name": name, "resources": asks("3")});
        for (policy, cpu) in [(json!("Always"), 4000), (json!(null), 1000)] {
            let starting = json!({"name": "i", "restartPolicy": policy, "resources": asks("1")});
            let running = json!({"name": "c", "resources": asks("1")});
            let pod = json!({"spec": {"initContainers": [starting], "containers": [running]},
                "status": {"initContainerStatuses": [status("i")]}});
            assert_eq!(effective_requests(&mut StringPool::default(), &pod).0.milli_cpu, cpu, "{policy}");
        }
    }

    #[test]
    fn pod_level_requests_replace_default_requests() {
        let container = |requests: Value| json!({"name": "c", "resources": {"requests": requests}});
        let names_memory = container(json!({"memory": "1"}));
        for (pod_level, first, overhead, (cpu, memory), cpu_to_be_placed) in [
            (json!({}), names_memory.clone(), json!({}), (200, 1 + DEFAULT_MEMORY), 200),
            (json!({"memory": "9"}), names_memory.clone(), json!({}), (200, 9), 200),
            (json!({"hugepages-2Mi": "2Mi"}), names_memory.clone(), json!({}), (200, 1), 200),
            (json!({"memory": "9"}), container(json!({"cpu": "50m"})), json!({}), (50, 9), 150),
            (json!({"memory": "9"}), container(json!({"cpu": "0"})), json!({}), (0, 9), 100),
            (json!({"memory": "9"}), container(json!({})), json!({"cpu": "70m"}), (70, 9), 270),
            (json!({"cpu": "1"}), container(json!({})), json!({}), (1000, 2 * DEFAULT_MEMORY), 200),
        ] {
            let containers = json!([first, container(json!({}))]);
            let spec = json!({"containers": containers, "resources": {"requests": pod_level}, "overhead": overhead});
            let (pool, pod) = (&mut StringPool::default(), json!({"spec": spec}));
            let requests = bound_non_zero_requests(pool, &pod);
            assert_eq!((requests.milli_cpu, requests.memory), (cpu, memory), "{spec}");
            assert_eq!(effective_requests(pool, &pod).1, requests, "{spec}");
            assert_eq!(non_zero_requests(pool, &pod).milli_cpu, cpu_to_be_placed, "{spec}");
        }
    }

    #[test]
    fn pod_level_resizes_count_the_allocated_amounts() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let container = json!({"name": "c", "resources": requests("1")});
        let infeasible = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        for (requests, status, cpu) in [
            (requests("2"), json!({}), 2000),
            (requests("2"), json!({"resources": requests("3")}), 3000),
            (requests("2"), json!({"resources": requests("1"), "allocatedResources": {"cpu": "4"}}), 4000),
            (requests("5"), json!({"resources": requests("3"), "allocatedResources": {"cpu": "4"}}), 5000),
            (requests("5"), json!({"resources": requests("3"), "conditions": infeasible}), 3000),
            // Without `resources`, the status's `allocatedResources` is not read, so the requests of the spec count.
            (requests("2"), json!({"allocatedResources": {"cpu": "4"}}), 2000),
            (json!({}), json!({"resources": requests("3")}), 1000),
        ] {
            let pod = json!({"spec": {"containers": [container], "resources": requests}, "status": status});
            assert_eq!(effective_requests(&mut StringPool::default(), &pod).0.milli_cpu, cpu, "{requests} {status}");
            assert!(
                is_resized(&pod)
                    || effective_requests(&mut StringPool::default(), &pod).0
                        == super::pod_requests(&mut StringPool::default(), &pod)
            );
        }
    }
}
