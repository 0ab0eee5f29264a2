//! Extended resources that devices may satisfy: how much of each resource the containers of a pod request, and the
//! claim requests that are made from these amounts.

use super::device_claim::{Claim, Request, SubRequest};
use super::resources::is_extended;
use super::{StringPool, Text, entries, items, text};
use holdfast_core::schema::quantity;
use holdfast_value::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Each DeviceClass satisfies an implicit extended resource, whose name is this prefix followed by the class's name, in
/// addition to the resource that the class's spec names.
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
/// Larger counts of a resource are reduced to this count. No claim can have so many devices, so the difference does not
/// matter.
const COUNT_MAX: i64 = 1 << 20;

/// Whether devices of some DeviceClass may satisfy a resource of this name.
pub fn may_be_devices(name: &str) -> bool {
    is_extended(name) || name.starts_with(CLASS_PREFIX)
}

/// A container of a pod, with those of its requested resources that devices may satisfy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Container {
    name: Text,
    /// The container's index in the list of the pod's init containers followed by the pod's containers.
    number: usize,
    /// Whether this is an init container that ends before the containers run; `false` for a sidecar.
    is_init: bool,
    amounts: Vec<Amount>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Amount {
    resource: Text,
    /// The resource's index among all resources that the container requests.
    number: usize,
    count: i64,
}

/// The name of the claim's request that satisfies one resource of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub container: Text,
    pub resource: Text,
    pub request: Text,
}

impl Mapping {
    pub fn encode(&self) -> Value {
        json!({"containerName": &*self.container, "resourceName": &*self.resource, "requestName": &*self.request})
    }
}

impl Container {
    pub fn decode_all(pool: &mut StringPool, spec: &Value) -> Vec<Container> {
        let starting = items(&spec["initContainers"]).map(|one| (one, text(&one["restartPolicy"]) != "Always"));
        let running = items(&spec["containers"]).map(|one| (one, false));
        let all = starting.chain(running).enumerate();
        all.filter_map(|(number, (container, is_init))| {
            let names = entries(&container["resources"]["requests"]).map(|(name, _)| name);
            let amounts = names.enumerate().filter(|(_, name)| may_be_devices(name)).filter_map(|(at, name)| {
                let count = count_of(&container["resources"]["requests"][name.as_str()])?;
                Some(Amount { resource: pool.text(name), number: at, count })
            });
            let amounts: Vec<Amount> = amounts.collect();
            (!amounts.is_empty()).then(|| Container { name: pool.field(&container["name"]), number, is_init, amounts })
        })
        .collect()
    }

    fn amount_of(&self, resource: &str) -> Option<&Amount> {
        self.amounts.iter().find(|one| *one.resource == *resource)
    }
}

fn count_of(amount: &Value) -> Option<i64> {
    let amount = amount.as_i64().map(i128::from).or_else(|| quantity::whole(text(amount)));
    i64::try_from(amount?).ok().filter(|count| *count > 0).map(|count| count.min(COUNT_MAX))
}

/// The names of all resources that these containers request.
pub fn resources(containers: &[Container]) -> BTreeSet<&Text> {
    containers.iter().flat_map(|container| &container.amounts).map(|amount| &amount.resource).collect()
}

/// The requests of a claim that satisfies the resources in `classes`, each with its DeviceClass, and the mapping of
/// each container's resources to these requests.
///
/// An init container that ends before the containers run uses the devices of the containers that start later. If such
/// init containers need more devices, they share one further request for the largest missing amount.
pub fn requests(containers: &[Container], classes: &[(Text, Text)]) -> (Vec<Request>, Vec<Mapping>) {
    let (mut requests, mut mappings): (Vec<(Text, Text, i64)>, Vec<Mapping>) = (Vec::new(), Vec::new());
    for (resource, class) in classes {
        let name = |container: &Container, amount: &Amount| -> Text {
            format!("container-{}-request-{}", container.number, amount.number).into()
        };
        let mapping = |container: &Container, request: Text| Mapping {
            container: container.name.clone(),
            resource: resource.clone(),
            request,
        };
        let mut lasting: Vec<(usize, Text, i64)> = Vec::new();
        for container in containers.iter().filter(|container| !container.is_init) {
            let Some(amount) = container.amount_of(resource) else { continue };
            lasting.push((container.number, name(container, amount), amount.count));
            mappings.push(mapping(container, name(container, amount)));
        }
        // The further request for init containers: its name comes from the first container with the largest missing
        // amount.
        let mut extra: Option<(Text, i64)> = None;
        let mut early: Vec<(&Container, Option<Text>)> = Vec::new();
        for container in containers.iter().filter(|container| container.is_init) {
            let Some(amount) = container.amount_of(resource) else { continue };
            let mut missing = amount.count;
            for (_, request, count) in lasting.iter().filter(|(number, ..)| *number >= container.number) {
                if missing <= 0 {
                    break;
                }
                early.push((container, Some(request.clone())));
                missing -= count;
            }
            if missing > 0 {
                early.push((container, None));
                if extra.as_ref().is_none_or(|(_, most)| missing > *most) {
                    extra = Some((name(container, amount), missing));
                }
            }
        }
        let shared = extra.as_ref().map_or_else(|| "".into(), |(request, _)| request.clone());
        let early = early.into_iter();
        mappings
            .extend(early.map(|(container, request)| mapping(container, request.unwrap_or_else(|| shared.clone()))));
        requests.extend(extra.map(|(request, count)| (request, class.clone(), count)));
        requests.extend(lasting.into_iter().map(|(_, request, count)| (request, class.clone(), count)));
    }
    requests.sort();
    let request = |(name, class, count): (Text, Text, i64)| Request {
        alternatives: vec![SubRequest::exactly(name.clone(), class, usize::try_from(count).unwrap_or(usize::MAX))],
        name,
        prioritized: false,
    };
    (requests.into_iter().map(request).collect(), mappings)
}

/// A claim for extended resources that must still be created, for a pod with a chosen node.
#[derive(Debug, Clone, PartialEq)]
pub struct NewClaim {
    pub claim: Arc<Claim>,
    pub mappings: Vec<Mapping>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "example.com/gpu";

    fn shown(spec: Value) -> (Vec<String>, Vec<String>) {
        let mut pool = StringPool::default();
        let containers = Container::decode_all(&mut pool, &spec);
        let classes: Vec<(Text, Text)> =
            resources(&containers).into_iter().map(|name| (name.clone(), "c".into())).collect();
        let (requests, mappings) = requests(&containers, &classes);
        let requests = requests.iter().map(|one| {
            let sub_request = &one.alternatives[0];
            format!("{}: {} of {}", one.name, sub_request.count.unwrap_or(0), sub_request.class)
        });
        let mappings = mappings.iter().map(|one| format!("{} {} {}", one.container, one.resource, one.request));
        (requests.collect(), mappings.collect())
    }

    fn container(name: &str, gpus: u32) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": "1", GPU: gpus.to_string()}}})
    }

    #[test]
    fn each_lasting_container_has_a_request_per_resource() {
        let mut second = container("b", 1);
        second["resources"]["requests"]["deviceclass.resource.kubernetes.io/net"] = "3".into();
        let (requests, mappings) =
            shown(json!({"containers": [container("a", 2), {"name": "none"}, container("z", 0), second]}));
        assert_eq!(
            requests,
            ["container-0-request-1: 2 of c", "container-3-request-1: 3 of c", "container-3-request-2: 1 of c"]
        );
        assert_eq!(
            mappings,
            [
                "b deviceclass.resource.kubernetes.io/net container-3-request-1",
                "a example.com/gpu container-0-request-1",
                "b example.com/gpu container-3-request-2",
            ]
        );
    }

    #[test]
    fn init_containers_use_the_devices_of_later_containers() {
        let mut sidecar = container("s", 1);
        sidecar["restartPolicy"] = "Always".into();
        let spec = |first: u32, last: u32| json!({"initContainers": [container("i", first), sidecar, container("j", last)], "containers": [container("a", 2)]});
        assert_eq!(
            shown(spec(2, 1)),
            (
                vec!["container-1-request-1: 1 of c".into(), "container-3-request-1: 2 of c".into()],
                vec![
                    "s example.com/gpu container-1-request-1".into(),
                    "a example.com/gpu container-3-request-1".into(),
                    "i example.com/gpu container-1-request-1".into(),
                    "i example.com/gpu container-3-request-1".into(),
                    // The sidecar starts before `j` and keeps its own device, so `j` uses only the devices of `a`.
                    "j example.com/gpu container-3-request-1".into(),
                ]
            )
        );
        // The first init container lacks two devices and the last one three, so the further request is for three
        // devices.
        let (requests, mappings) = shown(spec(5, 5));
        assert_eq!(requests[1], "container-2-request-1: 3 of c");
        assert_eq!(requests.len(), 3);
        assert!(mappings.contains(&"i example.com/gpu container-2-request-1".into()), "{mappings:?}");
    }
}
