//! Removes the entries of API servers that no longer exist from StorageVersions.
//!
//! An API server exists as long as its lease exists. The world may lack a lease that exists, so this controller asks
//! the API server for a lease before it removes an entry.

use crate::get_answers::{GetAnswers, NeedsGet};
use crate::subject::Subject;
use holdfast_value::{Map, Value, json};
use holdfast_world::views::{Lease, StorageVersion};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Meta, Plan, Refusal, Resource, Stamp, Time, Verb, View, Viewed, World,
};

const NAMESPACE: &str = "kube-system";
/// The label, with its value, that the leases of API servers have.
const COMPONENT: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// An index of StorageVersions by the API servers that they name.
const SERVERS: &str = "servers";

pub const NAME: &str = "storageversion-garbage-collector-controller";
const ACCOUNT: &str = "storage-version-garbage-collector";

/// The requests that create the role of this controller and the role's binding. Kubernetes creates both only with the
/// feature gate StorageVersionAPI, so a cluster may lack them.
pub fn rights() -> [Action; 2] {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let name = format!("system:controller:{ACCOUNT}");
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = json!([
        rule("coordination.k8s.io", &["leases"], &["get", "list", "watch"]),
        rule("internal.apiserver.k8s.io", &["storageversions"], &["delete", "get", "list", "watch"]),
        rule("internal.apiserver.k8s.io", &["storageversions/status"], &["update"]),
    ]);
    let create = |plural: &str, kind: &str, mut object: Value| {
        let resource = Resource::new(GROUP, "v1", plural, kind, false);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = kind.into();
        object["metadata"] = json!({"name": name});
        Action::new(&resource, Key::cluster(&name), Verb::Create(object))
    };
    let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
    let account = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT});
    [
        create("clusterroles", "ClusterRole", json!({"rules": rules})),
        create("clusterrolebindings", "ClusterRoleBinding", json!({"roleRef": role, "subjects": [account]})),
    ]
}

/// Each plan is for one StorageVersion.
#[derive(Default)]
pub struct StorageVersions {
    answers: GetAnswers,
}

impl StorageVersions {
    /// Whether an API server has no lease. Fails with the server's refusal if the lease cannot be read.
    fn is_gone<'a>(&'a self, world: &'a World, key: &Key, server: &str) -> Result<Result<bool, &'a Refusal>, NeedsGet> {
        let lease = world.get::<Lease>(&Key::new(NAMESPACE, server));
        if lease.is_some_and(|lease| is_identity(lease.meta())) {
            return Ok(Ok(false));
        }
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{server}");
        Ok(match self.answers.of(world, key).get(&path)? {
            Ok(lease) => Ok(lease["metadata"]["labels"][COMPONENT.0] != COMPONENT.1),
            Err(refusal) if refusal.is_not_found() => Ok(true),
            Err(refusal) => Err(refusal),
        })
    }

    /// The names of API servers in a StorageVersion that no longer exist.
    fn gone<'a>(
        &'a self,
        world: &'a World,
        found: Viewed<'_, StorageVersion>,
    ) -> Result<Result<Vec<String>, &'a Refusal>, NeedsGet> {
        let mut gone = Vec::new();
        for said in &found.view.status.storage_versions {
            match self.is_gone(world, &found.object.key(), &said.server)? {
                Ok(true) => gone.push(said.server.clone()),
                Ok(false) => {}
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(gone))
    }
}

fn is_identity(meta: &Meta) -> bool {
    meta.namespace == NAMESPACE && meta.label(COMPONENT.0) == Some(COMPONENT.1)
}

impl Controller for StorageVersions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn account(&self) -> &'static str {
        ACCOUNT
    }

    fn resources(&self) -> Vec<Resource> {
        vec![StorageVersion::resource().clone(), Lease::resource().clone()]
    }

    fn indexes(&self, world: &mut World) {
        world.index::<StorageVersion>(SERVERS, |object| {
            let said = object.view::<StorageVersion>().into_iter().flat_map(|view| &view.status.storage_versions);
            said.map(|said| said.server.as_str().into()).collect()
        });
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        if change.is_of::<StorageVersion>() {
            keys.add(change.key.clone());
        } else if change.before.as_ref().is_some_and(|before| is_identity(&before.meta))
            && !change.after.as_ref().is_some_and(|after| is_identity(&after.meta))
        {
            let found = world.indexed::<StorageVersion>(SERVERS, &change.key.name);
            found.for_each(|found| keys.add(found.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, stamp: Stamp) -> Plan {
        let mut plan = Plan::default();
        if let Some(found) = world.get::<StorageVersion>(key) {
            match self.gone(world, found) {
                Err(NeedsGet(path)) => {
                    plan.gets.push(path);
                    return plan;
                }
                Ok(Err(_)) => plan.unready = true,
                Ok(Ok(gone)) if gone.is_empty() => {}
                Ok(Ok(gone)) if gone.len() == found.view.status.storage_versions.len() => {
                    plan.then(Subject::from(found).delete());
                }
                Ok(Ok(gone)) => {
                    let generation = found.object.document()["metadata"]["generation"].clone();
                    let forget = |status: &mut Map| forget(status, &gone, &generation, stamp.time);
                    plan.together(Subject::from(found).status(forget).into_iter().collect());
                }
            }
        }
        self.answers.forget(key);
        plan
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }
}

/// Removes the entries of the servers `gone` from a status, and sets the common encoding version and its condition by
/// the entries that remain.
fn forget(status: &mut Map, gone: &[String], generation: &Value, now: Time) {
    let Some(said) = status.get_mut("storageVersions").and_then(Value::as_array_mut) else { return };
    said.retain(|said| !gone.iter().any(|gone| said["apiServerID"] == gone.as_str()));
    let first = said.first().map(|said| said["encodingVersion"].clone());
    let common = first.filter(|first| said.iter().all(|said| said["encodingVersion"] == *first));
    let before = match &common {
        Some(common) => status.insert("commonEncodingVersion", common.clone()),
        None => status.remove("commonEncodingVersion"),
    };
    let (holds, reason, message) = match common {
        Some(_) => ("True", "CommonEncodingVersionSet", "Common encoding version set"),
        None => ("False", "CommonEncodingVersionUnset", "Common encoding version unset"),
    };
    let is_another = before.is_some() && common.is_some() && before != common;
    let mut condition = json!({"type": "AllEncodingVersionsEqual", "status": holds, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": now});
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == holds && !is_another {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::Trial;

    fn lease(trial: &mut Trial, name: &str, component: &str) {
        trial.create(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {(COMPONENT.0): component}}}));
    }

    fn version(trial: &mut Trial, name: &str, said: &[(&str, &str)]) {
        trial.create(json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
            "metadata": {"name": name}, "spec": {}}));
        let said: Vec<Value> = said
            .iter()
            .map(|(server, version)| {
                json!({"apiServerID": server, "encodingVersion": version,
                "decodableVersions": [version], "servedVersions": [version]})
            })
            .collect();
        let mut status = json!({"storageVersions": said});
        if said.iter().all(|one| one["encodingVersion"] == said[0]["encodingVersion"]) {
            status["commonEncodingVersion"] = said[0]["encodingVersion"].clone();
        }
        trial.patch_status("storageversions.internal.apiserver.k8s.io", name, status);
    }

    fn status(trial: &Trial, name: &str) -> Value {
        trial.get("storageversions.internal.apiserver.k8s.io", name)["status"].clone()
    }

    #[test]
    fn what_servers_said_goes_with_them() {
        let mut trial = Trial::new().with(StorageVersions::default());
        for server in ["a", "b", "c"] {
            lease(&mut trial, server, COMPONENT.1);
        }
        version(&mut trial, "x.one", &[("a", "v1"), ("b", "v2")]);
        version(&mut trial, "x.two", &[("b", "v1")]);
        version(&mut trial, "x.three", &[("a", "v1"), ("b", "v1"), ("c", "v2")]);
        trial.run();
        assert_eq!(status(&trial, "x.one")["storageVersions"].as_array().map(Vec::len), Some(2));
        trial.delete("leases.coordination.k8s.io", &format!("{NAMESPACE}/b"));
        trial.run();
        let one = status(&trial, "x.one");
        assert_eq!((&one["commonEncodingVersion"], &one["conditions"][0]["status"]), (&json!("v1"), &json!("True")));
        assert_eq!(one["conditions"][0]["reason"], "CommonEncodingVersionSet");
        assert!(status(&trial, "x.two").is_null(), "nobody is left who said something");
        let three = status(&trial, "x.three");
        assert_eq!(three["conditions"][0]["reason"], "CommonEncodingVersionUnset");
        assert!(three["commonEncodingVersion"].is_null());
    }

    #[test]
    fn who_was_never_there_is_forgotten() {
        let mut trial = Trial::new().with(StorageVersions::default());
        lease(&mut trial, "a", COMPONENT.1);
        lease(&mut trial, "other", "kube-scheduler");
        version(&mut trial, "x.one", &[("other", "v1"), ("a", "v1"), ("nobody", "v1")]);
        trial.run();
        let said = status(&trial, "x.one")["storageVersions"].clone();
        assert_eq!(said.as_array().map(Vec::len), Some(1));
        assert_eq!(said[0]["apiServerID"], "a");
    }
}
