//! Sets the condition `Ready` of ServiceCIDRs, and protects ServiceCIDRs whose addresses are in use from deletion.

use crate::addresses::Range;
use crate::subject::Subject;
use holdfast_value::json;
use holdfast_world::views::Condition;
use holdfast_world::views::{IPAddress, ServiceCIDR};
use holdfast_world::{Action, Change, Controller, Key, Keys, Plan, Resource, Stamp, Time, Verb, View, Viewed, World};
use std::net::IpAddr;

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
const MANAGER: &str = "service-cidr-controller";
/// After this many seconds all servers that allocate addresses have received the change that a range is being deleted.
const GRACE_SECONDS: i64 = 10;

/// Each plan is for one ServiceCIDR.
pub struct ServiceRanges;

impl Controller for ServiceRanges {
    fn name(&self) -> &'static str {
        "service-cidr-controller"
    }

    fn account(&self) -> &'static str {
        "service-cidrs-controller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![ServiceCIDR::resource().clone(), IPAddress::resource().clone()]
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<ServiceCIDR>() {
            // The ServiceCIDRs that are being deleted are planned, too: a new range may allow their deletion, and the
            // deletion of this range may prevent it.
            keys.add(change.key.clone());
        } else if change.before.is_some() == change.after.is_some() {
            return;
        }
        world
            .all::<ServiceCIDR>()
            .filter(|range| range.meta().is_deleting())
            .for_each(|range| keys.add(range.object.key()));
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<ServiceCIDR>(key) else { return plan };
        let meta = found.meta();
        let mut document = found.object.document();
        let Some(deleted) = meta.deletion_timestamp else {
            if !meta.has_finalizer(FINALIZER) {
                match document["metadata"]["finalizers"].as_array_mut() {
                    Some(finalizers) => finalizers.push(FINALIZER.into()),
                    None => document["metadata"]["finalizers"] = json!([FINALIZER]),
                }
                plan.then(Subject::from(found).update(document));
            }
            let ready = ("True", "", "Kubernetes Service CIDR is ready");
            plan.together(set_ready(found, ready, stamp.time).into_iter().collect());
            return plan;
        };
        if !meta.has_finalizer(FINALIZER) {
            return plan;
        }
        if !may_be_deleted(world, found) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                           ServiceCIDR";
            let kept = ("False", "Terminating", message);
            plan.together(set_ready(found, kept, stamp.time).into_iter().collect());
            return plan;
        }
        let end = deleted.plus_seconds(GRACE_SECONDS);
        if end > stamp.time {
            plan.requeue_at(end);
        } else if let Some(finalizers) = document["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
            plan.then(Subject::from(found).update(document));
        }
        plan
    }
}

fn set_ready(
    found: Viewed<'_, ServiceCIDR>,
    (status, reason, message): (&str, &str, &str),
    now: Time,
) -> Option<Action> {
    let known = Condition::find(&found.status.conditions, "Ready");
    if known.is_some_and(|known| known.status == status && known.reason == reason && known.message == message) {
        return None;
    }
    let since = known.filter(|known| known.status == status).and_then(|known| known.last_transition_time);
    let body = json!({
        "apiVersion": ServiceCIDR::resource().api_version(),
        "kind": ServiceCIDR::resource().kind(),
        "metadata": {"name": found.meta().name, "uid": found.meta().uid},
        "status": {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.unwrap_or(now)}]},
    });
    let apply = Action::new(ServiceCIDR::resource(), found.object.key(), Verb::Apply(body));
    Some(apply.subresource("status").manager(MANAGER))
}

fn ranges(found: &ServiceCIDR) -> impl Iterator<Item = Range> {
    found.spec.cidrs.iter().filter_map(|cidr| Range::parse(cidr))
}

/// Whether every address of this range that is in use is also in another range that is not being deleted.
fn may_be_deleted(world: &World, found: Viewed<'_, ServiceCIDR>) -> bool {
    let own: Vec<Range> = ranges(&found).collect();
    let others: Vec<Range> = world
        .all::<ServiceCIDR>()
        .filter(|other| other.meta().name != found.meta().name && !other.meta().is_deleting())
        .flat_map(|other| ranges(other.view).collect::<Vec<_>>())
        .collect();
    if own.iter().all(|range| others.iter().any(|other| other.covers(range))) {
        return true;
    }
    let addresses = world.all::<IPAddress>().filter_map(|address| address.meta().name.parse::<IpAddr>().ok());
    let mut held = addresses.filter(|address| own.iter().any(|range| range.holds(*address)));
    held.all(|address| others.iter().any(|other| other.holds(address)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::Value;
    use holdfast_world::Trial;

    fn range(name: &str, cidr: &str) -> Value {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": name}, "spec": {"cidrs": [cidr]}})
    }

    fn address(name: &str) -> Value {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": name},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "s"}}})
    }

    fn ready(trial: &Trial, name: &str) -> Value {
        let found = trial.get("servicecidrs", name)["status"]["conditions"][0].clone();
        json!([found["type"], found["status"], found["reason"]])
    }

    #[test]
    fn a_range_is_ready_and_goes_when_its_addresses_have_gone() {
        let mut trial = Trial::new().with(ServiceRanges);
        trial.create(range("a", "10.77.0.0/24"));
        trial.create(address("10.77.0.5"));
        trial.run();
        assert_eq!(trial.get("servicecidrs", "a")["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(ready(&trial, "a"), json!(["Ready", "True", ""]));
        trial.delete("servicecidrs", "a");
        trial.run_for(60);
        assert_eq!(ready(&trial, "a"), json!(["Ready", "False", "Terminating"]));
        trial.delete("ipaddresses", "10.77.0.5");
        trial.run();
        assert!(trial.get("servicecidrs", "a").is_null());
    }

    #[test]
    fn addresses_that_are_in_another_range_hold_none() {
        let mut trial = Trial::new().with(ServiceRanges);
        trial.create(range("a", "10.77.0.0/24"));
        trial.create(address("10.77.0.5"));
        trial.run();
        trial.delete("servicecidrs", "a");
        trial.run_for(20);
        trial.create(range("b", "10.77.0.0/16"));
        trial.run();
        assert!(trial.get("servicecidrs", "a").is_null());
        trial.create(range("c", "10.78.0.0/24"));
        trial.run();
        trial.delete("servicecidrs", "c");
        trial.run_for(9);
        assert!(!trial.get("servicecidrs", "c").is_null());
        trial.run_for(1);
        assert!(trial.get("servicecidrs", "c").is_null());
    }
}
