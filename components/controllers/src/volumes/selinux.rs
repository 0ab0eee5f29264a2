//! Warns of pods that would mount one volume with different SELinux labels: if both ran on one node, one of the pods
//! could not start.
//!
//! A node gives default values to the parts of a label that a pod does not specify, and this controller does not know
//! these values. So two labels are compared only in the parts that both pods specify. Volumes that are mounted without
//! a label are relabelled file by file, which does not disturb other pods.

use super::{claim_key, index_pods, pods_of};
use crate::subject::{Subject, part};
use holdfast_value::Value;
use holdfast_world::views::{CSIDriver, PersistentVolume, PersistentVolumeClaim, Pod};
use holdfast_world::{Change, Controller, Key, Keys, Object, Plan, PlannedEvent, Resource, Stamp, View, Viewed, World};
use std::collections::{BTreeMap, BTreeSet};

const RECURSIVE: &str = "Recursive";
const MOUNT_OPTION: &str = "MountOption";
/// An index of volumes, and of pods with inline volumes, by the location of the volume's data.
const SOURCE: &str = "selinux-source";
/// An index of volumes by their CSI driver.
const DRIVER: &str = "selinux-driver";

/// Each plan is for one pod. The controller writes only Events.
pub struct SelinuxWarnings;

/// Where the data of a volume is stored, for the kinds of volumes that can be mounted with an SELinux label.
struct DataLocation {
    name: String,
    /// The CSI driver, whose CSIDriver object says whether volumes are mounted with a label. `None` means that volumes
    /// of this kind are always mounted with a label.
    driver: Option<String>,
}

impl DataLocation {
    /// Reads the location from the spec of a PersistentVolume, or from an inline volume of a pod.
    fn of(spec: &Value) -> Option<DataLocation> {
        let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
        let other = |name: String| Some(DataLocation { name, driver: None });
        if let Some(csi) = spec["csi"].as_object() {
            let driver = text(csi.get("driver")?);
            return Some(DataLocation {
                name: format!("csi/{driver}^{}", text(csi.get("volumeHandle")?)),
                driver: Some(driver),
            });
        }
        let (iscsi, fc) = (&spec["iscsi"], &spec["fc"]);
        if iscsi.is_object() {
            let parts = ["targetPortal", "iqn", "lun"].map(|field| text(&iscsi[field]));
            return other(format!("iscsi/{}", parts.join(":")));
        }
        if fc.is_object() {
            return other(format!("fc/{}:{}:{}", fc["targetWWNs"], fc["wwids"], fc["lun"]));
        }
        None
    }

    fn mounts_with_label(&self, world: &World) -> bool {
        let Some(driver) = &self.driver else { return true };
        world.get::<CSIDriver>(&Key::cluster(driver)).is_some_and(|driver| driver.spec.se_linux_mount)
    }
}

/// The location of a PersistentVolume's data.
fn source_of(volume: &Object) -> Option<DataLocation> {
    DataLocation::of(&part(volume, &["spec"]))
}

/// The SELinux label with which a pod mounts a volume, and the pod's `seLinuxChangePolicy` for the volume.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mount {
    label: String,
    policy: String,
}

/// What determines how one pod mounts its volumes.
struct Mounts<'a> {
    world: &'a World,
    pod: Viewed<'a, Pod>,
    spec: Value,
    /// The SELinux labels of all containers that mount a volume, by the volume's name in the pod.
    labels: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Mounts<'a> {
    fn of(world: &'a World, pod: Viewed<'a, Pod>) -> Mounts<'a> {
        let spec = part(pod.object, &["spec"]);
        let mut labels = BTreeMap::<String, BTreeSet<String>>::new();
        let containers = ["initContainers", "containers", "ephemeralContainers"];
        for container in containers.iter().flat_map(|list| items(&spec[*list])) {
            let own = &container["securityContext"]["seLinuxOptions"];
            let options = if own.is_object() { own } else { &spec["securityContext"]["seLinuxOptions"] };
            for mount in items(&container["volumeMounts"]) {
                let known = labels.entry(mount["name"].as_str().unwrap_or_default().to_owned()).or_default();
                known.extend(label(options));
            }
        }
        Mounts { world, pod, spec, labels }
    }

    /// The spec of the PersistentVolume of a pod's volume, or the volume itself if it is inline. Returns `None` if the
    /// volume's claim has no PersistentVolume yet.
    fn spec_of(&self, volume: &Value) -> Option<Value> {
        let name = volume["name"].as_str()?;
        let claim = match (&volume["persistentVolumeClaim"]["claimName"], &volume["ephemeral"]) {
            (Value::String(claim), _) => claim.to_string(),
            (_, Value::Object(_)) => format!("{}-{name}", self.pod.meta().name),
            _ => return Some(volume.clone()),
        };
        let claim = self.world.get::<PersistentVolumeClaim>(&Key::new(&self.pod.meta().namespace, &claim))?;
        let volume = self.world.get::<PersistentVolume>(&Key::cluster(&claim.spec.volume_name))?;
        let is_bound = volume.spec.claim_ref.as_ref().is_some_and(|named| named.uid == claim.meta().uid);
        is_bound.then(|| part(volume.object, &["spec"]))
    }

    /// For each mounted volume, the location of its data and its mount; `Err` with the volume's name if two containers
    /// of the pod mount it with different labels.
    fn volumes(&self) -> Vec<Result<(DataLocation, Mount), String>> {
        let mounted = items(&self.spec["volumes"]).filter_map(|volume| {
            let name = volume["name"].as_str()?;
            Some((name, self.labels.get(name)?, self.spec_of(volume)?))
        });
        let read = mounted.filter_map(|(name, labels, spec)| match labels.len() {
            0 | 1 => {
                let source = DataLocation::of(&spec)?;
                let mount = self.mount(labels.first(), &source);
                Some(Ok((source, mount)))
            }
            _ => Some(Err(name.to_owned())),
        });
        read.collect()
    }

    fn mount(&self, label: Option<&String>, source: &DataLocation) -> Mount {
        let wanted = self.spec["securityContext"]["seLinuxChangePolicy"].as_str().unwrap_or(MOUNT_OPTION);
        match label.filter(|label| wanted != RECURSIVE && !label.is_empty() && source.mounts_with_label(self.world)) {
            Some(label) => Mount { label: label.clone(), policy: wanted.to_owned() },
            None => Mount { label: String::new(), policy: RECURSIVE.to_owned() },
        }
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The label in an object's `seLinuxOptions`: empty if the options specify no part of a label, and `None` if there are
/// no options.
fn label(options: &Value) -> Option<String> {
    let parts = ["user", "role", "type", "level"].map(|field| options[field].as_str().unwrap_or_default());
    let is_said = parts.iter().any(|part| !part.is_empty());
    options.is_object().then(|| if is_said { parts.join(":") } else { String::new() })
}

/// Whether two labels conflict whatever a node's default values are: they differ in a part that both labels specify.
fn conflict(one: &str, other: &str) -> bool {
    let differ = |(one, other): (&str, &str)| !one.is_empty() && !other.is_empty() && one != other;
    one.splitn(4, ':').zip(other.splitn(4, ':')).any(differ)
}

/// The message that tells a pod's user about a conflict with another pod.
fn conflict_message(pod: Viewed<'_, Pod>, other: Viewed<'_, Pod>, what: &str, own: &str, others: &str) -> String {
    const END: &str = "If both pods land on the same node, only one of them may access the volume.";
    match pod.meta().namespace == other.meta().namespace {
        true => format!(
            "{what} {own:?} conflicts with pod {} that uses the same volume as this pod with {what} {others:?}. {END}",
            other.meta().name
        ),
        // The name of a pod in another namespace is not shown to the user of this pod.
        false => format!(
            "{what}{own:?} conflicts with another pod that uses the same volume as this pod with a different {what}. {END}"
        ),
    }
}

/// The pods with a volume whose data is at this location.
fn users<'a>(world: &'a World, source: &str) -> Vec<Viewed<'a, Pod>> {
    let claims = world.indexed::<PersistentVolume>(SOURCE, source).filter_map(|volume| claim_key(&volume));
    let mut pods: Vec<Viewed<'a, Pod>> = claims.flat_map(|claim| pods_of(world, &claim)).collect();
    pods.extend(world.indexed::<Pod>(SOURCE, source));
    pods.retain(|pod| !pod.is_finished());
    pods
}

impl SelinuxWarnings {
    fn warn(world: &World, pod: Viewed<'_, Pod>, source: &DataLocation, mount: &Mount, notes: &mut Vec<PlannedEvent>) {
        for other in users(world, &source.name) {
            if other.meta().uid == pod.meta().uid {
                continue;
            }
            let theirs =
                Mounts::of(world, other).volumes().into_iter().flatten().find(|(at, _)| at.name == source.name);
            let Some((_, their)) = theirs else { continue };
            let mut both = |reason, what, own: &str, others: &str| {
                notes.push(Subject::from(pod).normal(reason, conflict_message(pod, other, what, own, others)));
                notes.push(Subject::from(other).normal(reason, conflict_message(other, pod, what, others, own)));
            };
            if mount.policy != their.policy {
                both("SELinuxChangePolicyConflict", "SELinuxChangePolicy", &mount.policy, &their.policy);
            }
            if conflict(&mount.label, &their.label) {
                both("SELinuxLabelConflict", "SELinux label", &mount.label, &their.label);
            }
        }
    }
}

impl Controller for SelinuxWarnings {
    fn name(&self) -> &'static str {
        "selinux-warning-controller"
    }

    fn component(&self) -> &'static str {
        "selinux_warning"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![
            Pod::resource().clone(),
            PersistentVolumeClaim::resource().clone(),
            PersistentVolume::resource().clone(),
            CSIDriver::resource().clone(),
        ]
    }

    fn indexes(&self, world: &mut World) {
        index_pods(world);
        world.index::<Pod>(SOURCE, |object| match object.view::<Pod>() {
            // Most pods have no volumes; for such pods the JSON is not decoded.
            Some(pod) if !pod.spec.volumes.is_empty() => {
                let volumes = part(object, &["spec", "volumes"]);
                let sources = items(&volumes).filter_map(DataLocation::of);
                sources.map(|source| source.name.as_str().into()).collect()
            }
            _ => Vec::new(),
        });
        world.index::<PersistentVolume>(SOURCE, |object| {
            source_of(object).map(|source| source.name.as_str().into()).into_iter().collect()
        });
        world.index::<PersistentVolume>(DRIVER, |object| {
            source_of(object)
                .and_then(|source| source.driver)
                .map(|driver| driver.as_str().into())
                .into_iter()
                .collect()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let mut users = |claim: &Key| pods_of(world, claim).for_each(|pod| keys.add(pod.object.key()));
        if change.is_of::<PersistentVolumeClaim>() {
            let volume =
                |side: Option<Viewed<'_, PersistentVolumeClaim>>| side.map(|claim| claim.spec.volume_name.clone());
            let (before, after) = (volume(change.before()), volume(change.after()));
            if after.as_ref().is_some_and(|after| !after.is_empty() && before.as_ref() != Some(after)) {
                users(&change.key);
            }
        } else if change.is_of::<PersistentVolume>() {
            let uid = |side: Option<Viewed<'_, PersistentVolume>>| {
                side.and_then(|volume| volume.spec.claim_ref.as_ref().map(|claim| claim.uid.clone()))
            };
            let (before, after) = (uid(change.before()), uid(change.after()));
            if after.as_ref().is_some_and(|after| !after.is_empty() && before.as_ref() != Some(after)) {
                change
                    .after()
                    .and_then(|volume: Viewed<'_, PersistentVolume>| claim_key(&volume))
                    .iter()
                    .for_each(users);
            }
        } else if change.is_of::<CSIDriver>() {
            let mounts = |side: Option<Viewed<'_, CSIDriver>>| side.is_some_and(|driver| driver.spec.se_linux_mount);
            if mounts(change.before()) != mounts(change.after()) {
                let volumes = world.indexed::<PersistentVolume>(DRIVER, &change.key.name);
                volumes.filter_map(|volume| claim_key(&volume)).for_each(|claim| users(&claim));
            }
        } else if change.is_of::<Pod>() && change.before.is_none() && change.after.is_some() {
            // After a pod's creation, the fields that this controller reads never change, so only new pods are planned.
            keys.add(change.key.clone());
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = world.get::<Pod>(key).filter(|pod| !pod.is_finished()) else { return plan };
        if pod.spec.volumes.is_empty() {
            return plan;
        }
        for volume in Mounts::of(world, pod).volumes() {
            match volume {
                Ok((source, mount)) => SelinuxWarnings::warn(world, pod, &source, &mount, &mut plan.events),
                Err(name) => {
                    let message =
                        format!("Volume {name:?} is mounted twice with different SELinux labels inside this pod");
                    plan.events.push(Subject::from(pod).warning("MultipleSELinuxLabels", message));
                }
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use holdfast_world::Trial;

    fn trial(mounts_with_label: bool) -> Trial {
        let mut trial = Trial::new().with(SelinuxWarnings);
        trial.create(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "d.example.com"},
            "spec": {"seLinuxMount": mounts_with_label}}),
        );
        trial
    }

    /// Creates a claim, with a PersistentVolume of the test's driver for the data `handle`.
    fn claim(trial: &mut Trial, name: &str, handle: &str) {
        let modes = json!(["ReadWriteMany"]);
        let made =
            trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": modes, "volumeName": name, "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}}}}));
        trial.create(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "accessModes": modes, "capacity": {"storage": "1Gi"}, "csi": {"driver": "d.example.com", "volumeHandle": handle},
            "claimRef": {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}}}));
    }

    fn pod(trial: &mut Trial, name: &str, claim: &str, context: Value) {
        let mount = json!([{"name": "v", "mountPath": "/v"}]);
        trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
            "securityContext": context, "containers": [{"name": "c", "image": "i", "volumeMounts": mount}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}}));
    }

    fn level(level: &str) -> Value {
        json!({"seLinuxOptions": {"level": level}})
    }

    /// The Events if two pods with these SELinux options use one volume.
    fn of_two(mounts_with_label: bool, one: Value, other: Value) -> Vec<String> {
        let mut trial = trial(mounts_with_label);
        claim(&mut trial, "a", "h");
        pod(&mut trial, "one", "a", one);
        trial.run();
        trial.take_event_texts();
        pod(&mut trial, "other", "a", other);
        trial.run();
        trial
            .take_event_texts()
            .into_iter()
            .map(|note| note.split(". ").next().unwrap_or_default().to_owned())
            .collect()
    }

    #[test]
    fn both_pods_are_told_of_labels_and_policies_that_do_not_fit() {
        let recursive = |level: &str| json!({"seLinuxOptions": {"level": level}, "seLinuxChangePolicy": RECURSIVE});
        let labels = |one: &str, other: &str, name: &str| {
            format!(
                "Normal SELinuxLabelConflict SELinux label {one:?} conflicts with pod {name} that uses the same volume as \
                 this pod with SELinux label {other:?}"
            )
        };
        let policies = |one: &str, other: &str, name: &str| {
            format!(
                "Normal SELinuxChangePolicyConflict SELinuxChangePolicy {one:?} conflicts with pod {name} that uses the \
                 same volume as this pod with SELinuxChangePolicy {other:?}"
            )
        };
        let (one, two) = (":::s0:c1", ":::s0:c2");
        let apart = vec![labels(two, one, "one"), labels(one, two, "other")];
        let mixed = vec![policies(RECURSIVE, MOUNT_OPTION, "one"), policies(MOUNT_OPTION, RECURSIVE, "other")];
        let none = Vec::new;
        for (mounts, first, second, expected) in [
            (true, level("s0:c1"), level("s0:c2"), apart),
            (true, level("s0:c1"), level("s0:c1"), none()),
            (true, level("s0:c1"), json!({"seLinuxOptions": {"type": "t"}}), none()),
            (true, level("s0:c1"), recursive("s0:c2"), mixed.clone()),
            (true, level("s0:c1"), json!({}), mixed),
            (true, recursive("s0:c1"), recursive("s0:c2"), none()),
            (false, level("s0:c1"), level("s0:c2"), none()),
        ] {
            assert_eq!(of_two(mounts, first.clone(), second.clone()), expected, "{mounts} {first} {second}");
        }
    }

    #[test]
    fn a_driver_that_begins_to_mount_with_labels_and_a_claim_that_is_bound_late_are_looked_at() {
        let mut trial = trial(false);
        claim(&mut trial, "a", "h");
        pod(&mut trial, "one", "a", level("s0:c1"));
        pod(&mut trial, "other", "b", level("s0:c2"));
        trial.run();
        trial.patch("csidrivers.storage.k8s.io", "d.example.com", json!({"spec": {"seLinuxMount": true}}));
        trial.run();
        assert!(trial.take_event_texts().is_empty());
        // The claim `b` of the other pod gets a volume with the same data as the volume of the claim `a`.
        claim(&mut trial, "b", "h");
        trial.run();
        assert_eq!(trial.take_event_texts().len(), 2);
        trial.patch("csidrivers.storage.k8s.io", "d.example.com", json!({"spec": {"seLinuxMount": false}}));
        trial.run();
        trial.take_event_texts();
        trial.patch("csidrivers.storage.k8s.io", "d.example.com", json!({"spec": {"seLinuxMount": true}}));
        trial.run();
        assert_eq!(trial.take_event_texts().len(), 4, "each of the two, planned, tells both");
    }

    #[test]
    fn containers_of_one_pod_that_do_not_agree_are_told() {
        let mut trial = trial(true);
        let container = |name: &str, level: &str| {
            json!({"name": name, "image": "i", "securityContext": {"seLinuxOptions": {"level": level}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}]})
        };
        trial.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [container("c", "s0:c1"), container("d", "s0:c2")], "volumes": [{"name": "v", "emptyDir": {}}]}}));
        trial.run();
        let expected =
            "Warning MultipleSELinuxLabels Volume \"v\" is mounted twice with different SELinux labels inside this pod";
        assert_eq!(trial.take_event_texts(), [expected]);
    }
}
