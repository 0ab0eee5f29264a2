//! The requests of a pod: from its containers, its pod-level requests and its overhead.

use super::resources::{CPU, MEMORY, Resources, amount_of, is_of_whole_pods};
use super::{Pool, entries, items, text};
use holdfast_value::Value;
use std::collections::{BTreeMap, HashMap};

/// The default requests that scoring counts for a container without requests: a tenth of a processor, 200 MiB.
const USUAL_CPU: i64 = 100;
const USUAL_MEMORY: i64 = 200 * 1024 * 1024;

/// Which requests are summed.
#[derive(Clone, Copy, Default)]
struct Rules {
    /// Containers without requests count with the default requests.
    usual: bool,
    /// Pod-level requests replace the sum over the containers.
    whole: bool,
    /// The resources that the status says are allocated count too, while a resize is under way.
    granted: bool,
    /// Sums limits instead of requests.
    limits: bool,
}

impl Rules {
    fn field(self) -> &'static str {
        if self.limits { "limits" } else { "requests" }
    }
}

/// The requests of a pod, as filters count them.
pub fn asked(pool: &mut Pool, pod: &Value) -> Resources {
    sum(pool, pod, Rules { whole: true, ..Rules::default() })
}

/// The requests of a pod to be placed, as the scores by allocation count them.
pub fn scored(pool: &mut Pool, pod: &Value) -> Resources {
    sum(pool, pod, Rules { usual: true, ..Rules::default() })
}

/// The requests of a pod on its node by its spec alone, as the scores by allocation count them.
pub fn held_as_asked(pool: &mut Pool, pod: &Value) -> Resources {
    sum(pool, pod, Rules { usual: true, whole: true, ..Rules::default() })
}

/// The limits of a pod, of those containers that have any.
pub fn limits(pool: &mut Pool, pod: &Value) -> Resources {
    sum(pool, pod, Rules { whole: true, limits: true, ..Rules::default() })
}

/// The requests that count on the pod's node, resizes included: as filters count them, and as scores do.
pub fn held(pool: &mut Pool, pod: &Value) -> (Resources, Resources) {
    let rules = Rules { whole: true, granted: true, ..Rules::default() };
    (sum(pool, pod, rules), sum(pool, pod, Rules { usual: true, ..rules }))
}

fn sum(pool: &mut Pool, pod: &Value, rules: Rules) -> Resources {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let infeasible = items(&status["conditions"])
        .any(|one| text(&one["type"]) == "PodResizePending" && text(&one["reason"]) == "Infeasible");
    // If the pod sets pod-level requests, no container gets the default request for a resource that any container, or
    // the overhead, names.
    let names = rules.whole && asks_as_a_whole(spec);
    let [usual_cpu, usual_memory] = [CPU, MEMORY].map(|name| rules.usual && !(names && is_named(spec, name)));
    let mut of = |container: &Value, got: &Got| {
        let mut own = Resources::decode(pool, &container["resources"][rules.field()]);
        if rules.granted
            && let Some(granted) = granted(pool, container, got)
        {
            if infeasible { own = granted } else { own.raise_to(&granted) }
        }
        let asked = &container["resources"]["requests"];
        if usual_cpu && asked[CPU].is_null() && own.milli_cpu == 0 {
            own.milli_cpu = USUAL_CPU;
        }
        if usual_memory && asked[MEMORY].is_null() && own.memory == 0 {
            own.memory = USUAL_MEMORY;
        }
        own
    };
    let got = |list: &str| if rules.granted { got(&status[list]) } else { Got::new() };
    let mut running = Resources::default();
    let main = got("containerStatuses");
    for container in items(&spec["containers"]) {
        running.add(&of(container, &main));
    }
    let (mut sidecars, mut starting) = (Resources::default(), Resources::default());
    let init = got("initContainerStatuses");
    for container in items(&spec["initContainers"]) {
        if text(&container["restartPolicy"]) == "Always" {
            sidecars.add(&of(container, &init));
            starting.raise_to(&sidecars);
        } else {
            // An init container that ends before the others run cannot be resized, so its allocated resources are not
            // read.
            let mut together = sidecars.clone();
            together.add(&of(container, &Got::new()));
            starting.raise_to(&together);
        }
    }
    running.add(&sidecars);
    running.raise_to(&starting);
    if rules.whole {
        running.replace_named(pool, whole(pod, rules, infeasible));
    }
    let overhead = Resources::decode(pool, &spec["overhead"]);
    // The overhead raises limits that exist; it makes none.
    if rules.limits {
        running.add_where_some(&overhead)
    } else {
        running.add(&overhead)
    }
    running
}

/// The pod-level requests, or the allocated amounts of the status where these are larger or the resize is infeasible.
fn whole(pod: &Value, rules: Rules, infeasible: bool) -> BTreeMap<&str, i64> {
    let mut lists = vec![&pod["spec"]["resources"][rules.field()]];
    let got = &pod["status"]["resources"];
    if rules.granted && got.is_object() && entries(lists[0]).any(|(name, _)| is_of_whole_pods(name)) {
        lists.extend([&got["requests"], &pod["status"]["allocatedResources"]]);
        lists.drain(..usize::from(infeasible));
    }
    let mut amounts = BTreeMap::new();
    for (name, amount) in lists.into_iter().flat_map(entries) {
        let most: &mut i64 = amounts.entry(name.as_str()).or_default();
        *most = amount_of(name, amount).max(*most);
    }
    amounts
}

/// Whether the status of a pod, or of any of its containers, shows other amounts than the requests of the spec. Most
/// show the same.
pub fn has_other_than_asked(pod: &Value) -> bool {
    let (asked, status) = (&pod["spec"]["resources"]["requests"], &pod["status"]);
    let (granted, allocated) = (&status["resources"], &status["allocatedResources"]);
    let differs = granted["requests"] != *asked || !allocated.is_null() && allocated != asked;
    if asked.is_object() && granted.is_object() && differs {
        return true;
    }
    [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")].iter().any(|(list, statuses)| {
        let got = got(&pod["status"][*statuses]);
        items(&pod["spec"][*list]).any(|container| {
            let asked = &container["resources"]["requests"];
            got.get(text(&container["name"])).is_some_and(|status| {
                let (resources, allocated) = (&status["resources"]["requests"], &status["allocatedResources"]);
                resources != asked || !allocated.is_null() && allocated != asked
            })
        })
    })
}

/// The statuses that show resources, by the names of their containers. A map, because a pod may have thousands of
/// containers.
type Got<'a> = HashMap<&'a str, &'a Value>;

fn got(statuses: &Value) -> Got<'_> {
    let telling = items(statuses).filter(|status| status["resources"].is_object());
    telling.map(|status| (text(&status["name"]), status)).collect()
}

/// The resources that a container has by its status, if the status shows any.
fn granted(pool: &mut Pool, container: &Value, got: &Got) -> Option<Resources> {
    let status = got.get(text(&container["name"]))?;
    let mut granted = Resources::decode(pool, &status["resources"]["requests"]);
    granted.raise_to(&Resources::decode(pool, &status["allocatedResources"]));
    Some(granted)
}

fn asks_as_a_whole(spec: &Value) -> bool {
    entries(&spec["resources"]["requests"]).any(|(name, _)| is_of_whole_pods(name))
}

/// Whether a pod, any of its containers or its overhead names a resource.
fn is_named(spec: &Value, name: &str) -> bool {
    let containers = items(&spec["containers"]).chain(items(&spec["initContainers"]));
    let mut lists = containers.chain([spec]).map(|one| &one["resources"]["requests"]).chain([&spec["overhead"]]);
    lists.any(|list| !list[name].is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    #[test]
    fn only_what_goes_on_running_can_hold_more_than_it_asks_for() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let status = |name: &str| json!({"name": name, "resources": asks("3")});
        for (policy, cpu) in [(json!("Always"), 4000), (json!(null), 1000)] {
            let starting = json!({"name": "i", "restartPolicy": policy, "resources": asks("1")});
            let running = json!({"name": "c", "resources": asks("1")});
            let pod = json!({"spec": {"initContainers": [starting], "containers": [running]},
                "status": {"initContainerStatuses": [status("i")]}});
            assert_eq!(held(&mut Pool::default(), &pod).0.milli_cpu, cpu, "{policy}");
        }
    }

    #[test]
    fn what_is_usual_counts_for_what_nobody_names_once_a_pod_asks_as_a_whole() {
        let container = |requests: Value| json!({"name": "c", "resources": {"requests": requests}});
        let names_memory = container(json!({"memory": "1"}));
        for (whole, first, overhead, (cpu, memory), cpu_to_be_placed) in [
            (json!({}), names_memory.clone(), json!({}), (200, 1 + USUAL_MEMORY), 200),
            (json!({"memory": "9"}), names_memory.clone(), json!({}), (200, 9), 200),
            (json!({"hugepages-2Mi": "2Mi"}), names_memory.clone(), json!({}), (200, 1), 200),
            (json!({"memory": "9"}), container(json!({"cpu": "50m"})), json!({}), (50, 9), 150),
            (json!({"memory": "9"}), container(json!({"cpu": "0"})), json!({}), (0, 9), 100),
            (json!({"memory": "9"}), container(json!({})), json!({"cpu": "70m"}), (70, 9), 270),
            (json!({"cpu": "1"}), container(json!({})), json!({}), (1000, 2 * USUAL_MEMORY), 200),
        ] {
            let containers = json!([first, container(json!({}))]);
            let spec = json!({"containers": containers, "resources": {"requests": whole}, "overhead": overhead});
            let (pool, pod) = (&mut Pool::default(), json!({"spec": spec}));
            let asked = held_as_asked(pool, &pod);
            assert_eq!((asked.milli_cpu, asked.memory), (cpu, memory), "{spec}");
            assert_eq!(held(pool, &pod).1, asked, "{spec}");
            assert_eq!(scored(pool, &pod).milli_cpu, cpu_to_be_placed, "{spec}");
        }
    }

    #[test]
    fn a_pod_holds_what_it_has_got_as_a_whole_while_that_changes() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let container = json!({"name": "c", "resources": requests("1")});
        let infeasible = json!([{"type": "PodResizePending", "reason": "Infeasible"}]);
        for (asked, status, cpu) in [
            (requests("2"), json!({}), 2000),
            (requests("2"), json!({"resources": requests("3")}), 3000),
            (requests("2"), json!({"resources": requests("1"), "allocatedResources": {"cpu": "4"}}), 4000),
            (requests("5"), json!({"resources": requests("3"), "allocatedResources": {"cpu": "4"}}), 5000),
            (requests("5"), json!({"resources": requests("3"), "conditions": infeasible}), 3000),
            // Allocated amounts without actual ones are not read.
            (requests("2"), json!({"allocatedResources": {"cpu": "4"}}), 2000),
            (json!({}), json!({"resources": requests("3")}), 1000),
        ] {
            let pod = json!({"spec": {"containers": [container], "resources": asked}, "status": status});
            assert_eq!(held(&mut Pool::default(), &pod).0.milli_cpu, cpu, "{asked} {status}");
            assert!(
                has_other_than_asked(&pod)
                    || held(&mut Pool::default(), &pod).0 == super::asked(&mut Pool::default(), &pod)
            );
        }
    }
}
