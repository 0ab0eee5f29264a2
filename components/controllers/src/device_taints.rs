//! Deletes pods that use tainted devices, if their claims do not tolerate the taints, or no longer tolerate them.

use crate::pod_gc::pod_status;
use crate::subject::Subject;
use holdfast_world::views::device::TaintRuleSpec;
use holdfast_world::views::node::Taint;
use holdfast_world::views::{DeviceTaintRule, Pod, ResourceClaim, ResourceSlice};
use holdfast_world::{
    Change, Controller, Key, Keys, Plan, PlannedEvent, Resource, Stamp, Text, Time, View, Viewed, World,
};
use std::collections::BTreeMap;

const NO_EXECUTE: &str = "NoExecute";
const REASON: &str = "DeviceTaintManagerEviction";
const DISRUPTION: (&str, &str) =
    ("DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint");
/// The index of ResourceSlices and ResourceClaims by `driver/pool`.
const BY_POOL: &str = "pool";

/// Each plan is for one pod.
#[derive(Default)]
pub struct DeviceTaintEviction {
    /// Pods that are to be deleted at a later time: the pod's key and uid.
    waiting: BTreeMap<Key, String>,
}

impl Controller for DeviceTaintEviction {
    fn name(&self) -> &'static str {
        "device-taint-eviction-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        let devices = [ResourceSlice::resource().clone(), DeviceTaintRule::resource().clone()];
        [Pod::resource().clone(), ResourceClaim::resource().clone()].into_iter().chain(devices).collect()
    }

    fn indexes(&self, world: &mut World) {
        world.index::<ResourceSlice>(BY_POOL, |object| {
            let slice = object.view::<ResourceSlice>();
            slice.map(|slice| pool(&slice.spec.driver, &slice.spec.pool.name)).into_iter().collect()
        });
        world.index::<ResourceClaim>(BY_POOL, |object| {
            let allocation = object.view::<ResourceClaim>().and_then(|claim| claim.status.allocation.as_ref());
            let devices = allocation.into_iter().flat_map(|allocation| &allocation.devices.results);
            devices.map(|device| pool(&device.driver, &device.pool)).collect()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if let Some(pod) = change.newest().and_then(|object| object.view::<Pod>()) {
            if pod.claims_devices() {
                keys.add(change.key.clone());
            }
        } else if change.is_of::<ResourceClaim>() {
            [change.before(), change.after()].iter().flatten().for_each(|claim| wake(*claim, keys));
        } else if change.is_of::<ResourceSlice>() {
            for slice in [change.before::<ResourceSlice>(), change.after()].iter().flatten() {
                let claims = world.indexed::<ResourceClaim>(BY_POOL, &pool(&slice.spec.driver, &slice.spec.pool.name));
                claims.for_each(|claim| wake(claim, keys));
            }
        } else if change.is_of::<DeviceTaintRule>() {
            for rule in [change.before::<DeviceTaintRule>(), change.after()].iter().flatten() {
                wake_selected(world, rule, keys);
            }
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let pod = world.get::<Pod>(key).filter(|pod| !pod.meta().is_deleting() && !pod.is_finished());
        let Some(pod) = pod else {
            self.waiting.remove(key);
            return plan;
        };
        match end(world, pod, stamp.time) {
            None => {
                let was = self.waiting.remove(key).filter(|uid| *uid == pod.meta().uid);
                plan.events.extend(was.map(|_| eviction_event(pod, "Cancelling deletion")));
            }
            Some(end) if end > stamp.time => {
                self.waiting.insert(key.clone(), pod.meta().uid.clone());
                plan.requeue_at(end);
            }
            Some(_) => {
                plan.together(pod_status(pod, stamp.time, None, Some(DISRUPTION)));
                plan.then(Subject::from(pod).delete().with_event(eviction_event(pod, "Marking for deletion")));
            }
        }
        plan
    }
}

fn eviction_event(pod: Viewed<'_, Pod>, what: &str) -> PlannedEvent {
    Subject::from(pod).normal(REASON, what.to_owned())
}

fn pool(driver: &str, pool: &str) -> Text {
    format!("{driver}/{pool}").into()
}

fn wake(claim: Viewed<'_, ResourceClaim>, keys: &mut Keys) {
    let pods = claim.status.reserved_for.iter().filter(|consumer| consumer.resource == "pods");
    pods.for_each(|consumer| keys.add(Key::new(&claim.meta().namespace, &consumer.name)));
}

/// Adds the pods that use devices which a rule selects.
fn wake_selected(world: &World, rule: &DeviceTaintRule, keys: &mut Keys) {
    let Some(selector) = &rule.spec.device_selector else { return };
    match (&selector.driver, &selector.pool) {
        (Some(driver), Some(name)) => {
            world.indexed::<ResourceClaim>(BY_POOL, &pool(driver, name)).for_each(|claim| wake(claim, keys));
        }
        _ => {
            let has = |claim: &Viewed<'_, ResourceClaim>| {
                let devices = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
                devices.into_iter().any(|one| selector.selects(&one.driver, &one.pool, &one.device))
            };
            world.all::<ResourceClaim>().filter(has).for_each(|claim| wake(claim, keys));
        }
    }
}

/// When a pod must be deleted because of its devices; `None` if it need not be deleted, because it tolerates all taints
/// or has no node yet.
fn end(world: &World, pod: Viewed<'_, Pod>, now: Time) -> Option<Time> {
    let meta = pod.meta();
    if pod.spec.node_name.is_empty() {
        return None;
    }
    let names = pod.view.claim_names();
    let claims = names.filter_map(|name| world.get::<ResourceClaim>(&Key::new(&meta.namespace, name)));
    let used = claims.filter(|claim| claim.status.reserved_for.iter().any(|consumer| consumer.uid == meta.uid));
    let devices = used
        .filter_map(|claim| claim.view.status.allocation.as_ref())
        .flat_map(|allocation| &allocation.devices.results);
    let ends = devices.flat_map(|device| {
        let taints = taints(world, &device.driver, &device.pool, &device.device);
        taints.into_iter().filter_map(|taint| {
            let tolerations = device.tolerations.iter().filter(|toleration| toleration.tolerates(taint));
            let seconds: Vec<Option<i64>> = tolerations.map(|toleration| toleration.toleration_seconds).collect();
            if seconds.is_empty() {
                return Some(now);
            }
            // One toleration without an end is enough; otherwise the toleration that ends first counts.
            let least = seconds.into_iter().collect::<Option<Vec<i64>>>()?.into_iter().min()?;
            Some(taint.time_added.unwrap_or(now).plus_seconds(least))
        })
    });
    ends.min()
}

/// The NoExecute taints of a device, from the newest slices of its pool and from DeviceTaintRules.
fn taints<'a>(world: &'a World, driver: &str, name: &str, device: &str) -> Vec<&'a Taint> {
    let slices: Vec<Viewed<'a, ResourceSlice>> = world.indexed::<ResourceSlice>(BY_POOL, &pool(driver, name)).collect();
    let newest = slices.iter().map(|slice| slice.spec.pool.generation).max();
    let current = slices.iter().filter(|slice| Some(slice.spec.pool.generation) == newest);
    let devices = current.flat_map(|slice| &slice.view.spec.devices).filter(|known| known.name == device);
    let rules = world.all::<DeviceTaintRule>().map(|rule| &rule.view.spec);
    let selects = |rule: &&'a TaintRuleSpec| {
        rule.device_selector.as_ref().is_some_and(|selector| selector.selects(driver, name, device))
    };
    let ruled = rules.filter(selects).map(|rule| &rule.taint);
    devices.flat_map(|device| &device.taints).chain(ruled).filter(|taint| taint.effect == NO_EXECUTE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};
    use holdfast_world::Trial;

    fn taint(trial: &mut Trial, taints: Value) {
        let devices = json!([{"name": "d", "taints": taints}]);
        trial.patch("resourceslices", "s", json!({"spec": {"devices": devices}}));
        trial.run();
    }

    #[test]
    fn a_pod_goes_when_its_device_is_tainted_for_longer_than_its_claim_tolerates() {
        let mut trial = Trial::new().with(DeviceTaintEviction::default());
        trial.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
            "spec": {"driver": "d.example.com", "nodeName": "n", "devices": [{"name": "d"}],
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}));
        let spec =
            json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none.example.com"}}]}});
        trial.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}));
        let pod = trial.create(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": {"nodeName": "n",
            "containers": [{"name": "c", "image": "i"}], "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}}));
        let device = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "d",
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]});
        let consumer = json!({"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]});
        let status = json!({"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]});
        trial.patch_status("resourceclaims", "c", status);
        trial.run();
        taint(&mut trial, json!([{"key": "k", "effect": "NoExecute"}]));
        trial.run_for(10);
        taint(&mut trial, json!([]));
        assert_eq!(trial.take_event_texts(), ["Normal DeviceTaintManagerEviction Cancelling deletion"]);
        taint(&mut trial, json!([{"key": "k", "effect": "NoExecute"}]));
        trial.run_for(29);
        assert!(trial.get("pods", "p")["metadata"]["deletionTimestamp"].is_null());
        trial.run_for(1);
        assert!(trial.get("pods", "p")["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(trial.take_event_texts(), ["Normal DeviceTaintManagerEviction Marking for deletion"]);
    }

    #[test]
    fn of_several_tolerations_one_without_an_end_is_enough_or_else_the_first_to_end_counts() {
        let tolerating =
            |seconds: Value| json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        for (node, tolerations, stays) in [
            ("n", [60.into(), 30.into()], 30),
            ("n", [30.into(), 60.into()], 30),
            ("n", [30.into(), Value::Null], 1000),
            ("", [0.into(), 0.into()], 1000),
        ] {
            let mut trial = Trial::new().with(DeviceTaintEviction::default());
            let now = trial.now();
            let devices = json!([{"name": "d", "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": now}]}]);
            trial.create(
                json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
                "spec": {"driver": "d.example.com", "nodeName": "n", "devices": devices,
                "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
            );
            let exactly = json!({"deviceClassName": "none.example.com"});
            trial
                .create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}));
            let pod = trial.create(json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "p", "finalizers": ["example.com/hold"]}, "spec": {"nodeName": node,
                "containers": [{"name": "c", "image": "i"}],
                "resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}}));
            let device = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "d",
                "tolerations": tolerations.clone().map(tolerating)});
            let consumer = json!({"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]});
            let status = json!({"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]});
            trial.patch_status("resourceclaims", "c", status);
            trial.run_for(stays - 1);
            assert_eq!(trial.get("pods", "p")["metadata"]["deletionTimestamp"], Value::Null, "{tolerations:?}");
            trial.run_for(1);
            let is_gone = trial.get("pods", "p")["metadata"]["deletionTimestamp"].is_string();
            assert_eq!(is_gone, stays == 30, "{tolerations:?}");
        }
    }

    #[test]
    fn a_pod_goes_by_the_word_of_a_rule() {
        for (selector, goes) in [
            (json!({"driver": "d.example.com", "pool": "p", "device": "d"}), true),
            (json!({"device": "d"}), true),
            (json!({}), true),
            (json!({"pool": "other"}), false),
            (Value::Null, false),
        ] {
            let mut trial = Trial::new().with(DeviceTaintEviction::default());
            let pod = trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i",
                    "resources": {"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}}]}}));
            let exactly = json!({"deviceClassName": "none.example.com"});
            trial
                .create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}));
            let device = json!({"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"});
            let consumer = json!({"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]});
            let status = json!({"allocation": {"devices": {"results": [device]}}, "reservedFor": [consumer]});
            trial.patch_status("resourceclaims", "c", status);
            // The claim `c` was made for the pod's extended resources, as the pod's status says now.
            let mapping = json!({"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"});
            let told = json!({"resourceClaimName": "c", "requestMappings": [mapping]});
            trial.patch_status("pods", "p", json!({"extendedResourceClaimStatus": told}));
            trial.run();
            trial.create(json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule",
                "metadata": {"name": "r"}, "spec": {"deviceSelector": selector,
                "taint": {"key": "k", "effect": "NoExecute"}}}));
            trial.run();
            assert_eq!(trial.take_event_texts().len(), usize::from(goes), "{selector}");
        }
    }
}
