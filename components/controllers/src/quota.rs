//! Counts how much of each limited resource the namespaces with a ResourceQuota use.
//!
//! For each quota a sum is kept and updated with every change of an object that the quota covers, so a change need not
//! read the other objects of the namespace. If a quota's limits change, the sum is computed again from all objects.

use crate::planted::{Bug, planted};
use crate::subject::Subject;
use holdfast_core::kinds::registry;
use holdfast_core::quota::{BYTES, Counted, NOTHING_BUT_ITS_NUMBER, Quota, Usage};
use holdfast_core::schema::amount::Amount;
use holdfast_core::schema::raise_to_thousandths;
use holdfast_value::Value;
use holdfast_world::request::resource_of;
use holdfast_world::views::ResourceQuota;
use holdfast_world::{
    Change, Controller, ExtraKinds, Key, Keys, Object, Plan, Resource, Stamp, Time, View, Viewed, World,
};
use std::collections::BTreeMap;

/// Each plan is for one ResourceQuota.
#[derive(Default)]
pub struct ResourceQuotas {
    tallies: BTreeMap<Key, QuotaSums>,
    /// How quotas count the objects of each resource.
    counted: BTreeMap<Resource, Counted>,
}

type ObjectId = (Resource, Key);

/// The status shows the bytes of a namespace in steps. The quota's limit is divided into this many steps.
const STEPS: i64 = 64;

/// The sums of one ResourceQuota.
struct QuotaSums {
    /// The uid of the quota. A later quota of the same name has another uid, and gets new sums.
    uid: String,
    quota: Quota,
    used: Usage,
    /// The bytes that all objects of the namespace take, if the quota limits them; otherwise 0.
    bytes: usize,
    /// For each object that is being deleted: the time at which a part of its usage stops counting even if the object
    /// still exists, and that part.
    leaving: BTreeMap<ObjectId, (Time, Usage)>,
}

impl Controller for ResourceQuotas {
    fn name(&self) -> &'static str {
        "resourcequota-controller"
    }

    fn queue(&self) -> &'static str {
        "resourcequota_primary"
    }

    /// The resources whose objects this controller needs whole, because it counts fields of their content. For all
    /// other resources it needs only the metadata of objects.
    fn resources(&self) -> Vec<Resource> {
        let quotas = ResourceQuota::resource();
        let whole = registry().iter().filter(|(_, kind)| !kind.content.measure.is_number_alone());
        let others = whole.map(|(_, kind)| resource_of(kind)).filter(|resource| resource != quotas);
        std::iter::once(quotas.clone()).chain(others).collect()
    }

    fn extra_kinds(&self) -> ExtraKinds {
        ExtraKinds::Everything
    }

    fn concerns(&mut self, _: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<ResourceQuota>() {
            keys.add(change.key.clone());
        }
        let namespace = &change.key.namespace;
        if namespace.is_empty() || change.newest().is_none() {
            return;
        }
        let counted = self.counted(&change.resource);
        let tallies = self.tallies.range_mut(Key::new(namespace, "")..);
        for (key, tally) in tallies.take_while(|(key, _)| key.namespace == *namespace) {
            if tally.changes_bytes(change) {
                keys.add(key.clone());
            }
            if !tally.quota.concerns(&counted) {
                continue;
            }
            let place = (change.resource.clone(), change.key.clone());
            if let Some(before) = &change.before
                && !(planted(Bug::UsedForEver) && change.after.is_none())
            {
                tally.subtract(&counted, &place, before);
            }
            if let Some(after) = &change.after {
                tally.add(&counted, place, after, after.received_at);
            }
            keys.add(key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(found) = world.get::<ResourceQuota>(key) else {
            self.tallies.remove(key);
            return plan;
        };
        let document = found.object.document();
        let quota = Quota::of(&document);
        let is_known = |tally: &QuotaSums| tally.uid == found.meta().uid && tally.quota == quota;
        if !self.tallies.get(key).is_some_and(is_known) {
            let tally = self.count(world, found, quota, stamp.time);
            self.tallies.insert(key.clone(), tally);
        }
        let Some(tally) = self.tallies.get_mut(key) else { return plan };
        tally.drop_ended(stamp.time);
        if let Some(next) = tally.leaving.values().map(|(end, _)| *end).min() {
            plan.requeue_at(next);
        }
        plan.steps.extend(tally.status(found, &document).map(|action| vec![action]));
        plan
    }
}

impl ResourceQuotas {
    /// Counts all objects of the namespace that a quota covers.
    fn count(&mut self, world: &World, found: Viewed<'_, ResourceQuota>, quota: Quota, now: Time) -> QuotaSums {
        let resources = world.resources().filter(|resource| resource.namespaced());
        let kinds: Vec<(&Resource, Counted)> = resources.map(|resource| (resource, self.counted(resource))).collect();
        let used = quota.unused(kinds.iter().map(|(_, counted)| counted));
        let mut tally = QuotaSums { uid: found.meta().uid.clone(), quota, used, bytes: 0, leaving: BTreeMap::new() };
        let limits_bytes = tally.bytes_step().is_some();
        for (resource, counted) in kinds {
            let is_counted = tally.quota.concerns(&counted);
            if is_counted || limits_bytes {
                for object in world.objects_in(resource, &found.meta().namespace) {
                    tally.bytes += object.body.len();
                    if is_counted {
                        tally.add(&counted, (resource.clone(), object.key()), object, now);
                    }
                }
            }
        }
        tally
    }

    fn counted(&mut self, resource: &Resource) -> Counted {
        let known = self.counted.entry(resource.clone()).or_insert_with(|| {
            let built_in = registry().find(resource.group(), resource.version(), resource.plural());
            match built_in {
                Some((id, version)) => registry().get(id).counted(version),
                None => Counted::named(resource.plural(), resource.group(), &NOTHING_BUT_ITS_NUMBER),
            }
        });
        known.clone()
    }
}

impl QuotaSums {
    /// The size of the steps in which the status shows bytes; `None` if the quota does not limit bytes. There are steps
    /// so that not every change of an object changes the quota's status.
    fn bytes_step(&self) -> Option<usize> {
        let limit = self.quota.hard.get(BYTES)?.rounded_up();
        Some((limit.ratio(Amount::whole(STEPS)) as usize).max(1))
    }

    /// The bytes in the form in which the status shows them, rounded to a step.
    fn shown_bytes(&self) -> Option<usize> {
        let step = self.bytes_step()?;
        Some(self.bytes.div_ceil(step).saturating_mul(step))
    }

    /// Updates the bytes for a change of an object; returns whether the shown number changes.
    fn changes_bytes(&mut self, change: &Change) -> bool {
        let Some(told) = self.shown_bytes() else { return false };
        let size = |object: &Option<std::sync::Arc<Object>>| object.as_ref().map_or(0, |object| object.body.len());
        self.bytes = (self.bytes + size(&change.after)).saturating_sub(size(&change.before));
        self.shown_bytes() != Some(told)
    }

    fn add(&mut self, counted: &Counted, place: ObjectId, object: &Object, now: Time) {
        let usage = self.quota.usage(counted, &counted_document(counted, object), &now.to_string());
        self.used.add(&usage);
        if let Some(end) = ends_at(object).filter(|end| *end > now) {
            self.leaving.insert(place, (end, usage));
        }
    }

    fn subtract(&mut self, counted: &Counted, place: &ObjectId, object: &Object) {
        let counted_once = || {
            // An object that is being deleted and whose grace period is over counts only with the usage that remains
            // until the object is removed.
            let end = ends_at(object).map_or_else(String::new, |end| end.to_string());
            self.quota.usage(counted, &counted_document(counted, object), &end)
        };
        let usage = self.leaving.remove(place).map(|(_, usage)| usage).unwrap_or_else(counted_once);
        self.used.subtract(&usage);
    }

    /// Subtracts from the sums the usage of objects whose grace period is over. Only the number of these objects still
    /// counts.
    fn drop_ended(&mut self, now: Time) {
        let left: Vec<ObjectId> =
            self.leaving.iter().filter(|(_, (end, _))| *end <= now).map(|(place, _)| place.clone()).collect();
        for place in left {
            if let Some((_, usage)) = self.leaving.remove(&place) {
                self.used.subtract(&usage.only(|name| !name.starts_with("count/")));
            }
        }
    }

    fn status(&self, found: Viewed<'_, ResourceQuota>, document: &Value) -> Option<holdfast_world::Action> {
        let hard = &document["spec"]["hard"];
        if !hard.is_object() && document["status"]["hard"].is_null() {
            return None;
        }
        // The status keeps the usage of resources that this controller does not count.
        let mut used = Usage::of(&document["status"]["used"]).only(|name| self.quota.hard.get(name).is_some());
        for (name, amount) in &self.used.0 {
            used.set(name, *amount);
        }
        if let Some(bytes) = self.shown_bytes() {
            used.set(BYTES, Amount::whole(i64::try_from(bytes).unwrap_or(i64::MAX)));
        }
        let mut used = used.document();
        // The server stores amounts with a precision of one thousandth. The new amounts are rounded up to thousandths,
        // so that they are equal to stored amounts.
        used.as_object_mut().into_iter().flatten().for_each(|(_, amount)| raise_to_thousandths(amount));
        Subject::from(found).status(|status| {
            if !planted(Bug::LimitsForgotten) {
                status.insert("hard", hard.clone());
            }
            status.insert("used", used);
        })
    }
}

/// The document of an object, if the quota counts its content; null if only the number of objects is counted.
fn counted_document(counted: &Counted, object: &Object) -> Value {
    if counted.measure.is_number_alone() { Value::Null } else { object.document() }
}

/// The time at which an object that is being deleted should be removed: the end of its grace period.
fn ends_at(object: &Object) -> Option<Time> {
    let deleted = object.meta.deletion_timestamp?;
    Some(deleted.plus_seconds(object.meta.deletion_grace_period_seconds?.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use holdfast_world::Trial;

    #[test]
    fn most_kinds_are_looked_at_for_their_number_alone() {
        let resources = ResourceQuotas::default().resources();
        let mut names: Vec<String> = resources.iter().map(ToString::to_string).collect();
        names.sort();
        let whole = ["persistentvolumeclaims", "pods", "resourceclaims.resource.k8s.io", "resourcequotas", "services"];
        assert_eq!(names, whole);
    }

    fn quota(name: &str, spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec})
    }

    fn pod(name: &str, cpu: Option<&str>) -> Value {
        let resources = cpu.map_or(json!({}), |cpu| json!({"requests": {"cpu": cpu}}));
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}})
    }

    fn used(trial: &Trial, name: &str) -> Value {
        trial.get("resourcequotas", name)["status"]["used"].clone()
    }

    #[test]
    fn objects_are_counted_as_they_come_and_go() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(pod("old", Some("100m")));
        let hard = json!({"pods": "5", "requests.cpu": "1", "count/pods": "9", "count/deployments.apps": "2",
            "count/things.example.com": "1", "resourcequotas": "3", "nobody.example.com/counts": "1"});
        trial.create(quota("q", json!({"hard": hard})));
        trial.run();
        assert_eq!(trial.get("resourcequotas", "q")["status"]["hard"], hard);
        let counts = |pods: &str, cpu: &str, all: &str| {
            json!({"pods": pods, "requests.cpu": cpu, "count/pods": all,
            "count/deployments.apps": "0", "resourcequotas": "1"})
        };
        assert_eq!(used(&trial, "q"), counts("1", "100m", "1"));
        trial.create(pod("new", Some("1500m")));
        trial.run();
        assert_eq!(used(&trial, "q"), counts("2", "1600m", "2"));
        trial.patch_status("pods", "new", json!({"phase": "Failed"}));
        trial.run();
        assert_eq!(used(&trial, "q"), counts("1", "100m", "2"));
        for name in ["new", "old"] {
            trial.delete_as("pods", name, None, Some(0));
        }
        trial.run();
        assert_eq!(used(&trial, "q"), counts("0", "0", "0"));
    }

    /// The usage of one object can exceed the largest number that the sums hold. When such an object leaves a quota's
    /// scope, the quota must not lose the usage of other objects; otherwise a user could evade the quota.
    #[test]
    fn an_object_that_uses_more_than_can_be_counted_goes_as_it_came() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(quota("q", json!({"hard": {"requests.cpu": "4"}})));
        for (name, cpu) in [("a", "3"), ("huge", "9223372036854775807E"), ("more", "9223372036854775807E")] {
            trial.create(pod(name, Some(cpu)));
        }
        trial.run();
        assert_ne!(used(&trial, "q"), json!({"requests.cpu": "3"}));
        for name in ["huge", "more"] {
            trial.delete_as("pods", name, None, Some(0));
        }
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"requests.cpu": "3"}));
    }

    #[test]
    fn what_should_have_ended_counts_no_more() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(quota("q", json!({"hard": {"pods": "5", "count/pods": "5"}})));
        let mut held = pod("held", None);
        held["metadata"]["finalizers"] = json!(["example.com/hold"]);
        held["spec"]["nodeName"] = json!("n");
        trial.create(held);
        trial.delete("pods", "held");
        trial.run_for(60);
        assert_eq!(used(&trial, "q"), json!({"pods": "1", "count/pods": "1"}));
        trial.run_for(1);
        assert_eq!(used(&trial, "q"), json!({"pods": "0", "count/pods": "1"}));
        trial.patch("pods", "held", json!({"metadata": {"labels": {"a": "b"}}}));
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"pods": "0", "count/pods": "1"}));
        trial.delete_as("pods", "held", None, Some(0));
        trial.patch("pods", "held", json!({"metadata": {"finalizers": null}}));
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"pods": "0", "count/pods": "0"}));
    }

    #[test]
    fn limits_and_statuses_that_change_are_followed() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(pod("p", None));
        trial.create(quota("q", json!({"hard": {"pods": "9"}})));
        trial.create(quota("best", json!({"hard": {"pods": "9"}, "scopes": ["NotBestEffort"]})));
        trial.run();
        trial.patch("resourcequotas", "q", json!({"spec": {"hard": {"pods": "3", "services": "2"}}}));
        trial.run();
        assert_eq!(
            trial.get("resourcequotas", "q")["status"],
            json!({"hard": {"pods": "3", "services": "2"}, "used": {"pods": "1", "services": "0"}})
        );
        trial.patch_status("resourcequotas", "q", json!({"hard": {"pods": "7"}, "used": {"pods": "4"}}));
        trial.run();
        assert_eq!(trial.get("resourcequotas", "q")["status"]["hard"]["pods"], "3");
        assert_eq!(used(&trial, "q")["pods"], "1");
        assert_eq!(used(&trial, "best"), json!({"pods": "0"}));
    }

    #[test]
    fn bytes_are_told_in_steps() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(quota("q", json!({"hard": {"holdfast.dev/bytes": "640k"}})));
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"holdfast.dev/bytes": "10k"}));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"},
            "data": {"a": "x".repeat(50_000)}});
        trial.create(map);
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"holdfast.dev/bytes": "60k"}));
        let before = trial.get("resourcequotas", "q")["metadata"]["resourceVersion"].clone();
        trial.patch("configmaps", "m", json!({"metadata": {"labels": {"a": "b"}}}));
        trial.run();
        assert_eq!(trial.get("resourcequotas", "q")["metadata"]["resourceVersion"], before);
        trial.delete("configmaps", "m");
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"holdfast.dev/bytes": "10k"}));
    }

    #[test]
    fn other_namespaces_are_no_matter() {
        let mut trial = Trial::new().with(ResourceQuotas::default());
        trial.create(quota("q", json!({"hard": {"pods": "9"}})));
        trial.run();
        let mut other = pod("p", None);
        other["metadata"]["namespace"] = json!("kube-system");
        trial.create(other);
        trial.run();
        assert_eq!(used(&trial, "q"), json!({"pods": "0"}));
    }
}
