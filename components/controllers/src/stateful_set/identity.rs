//! The identity of a set's pod with a given ordinal: its name, its labels and its claims.

use super::{Sync, names};
use crate::pods;
use crate::revisions::POD_REVISION;
use crate::subject::Subject;
use holdfast_value::{Value, json};
use holdfast_world::Viewed;
use holdfast_world::views::Pod;
use std::collections::{HashMap, HashSet};

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

fn mark(pod: &mut Value, name: &str, ordinal: i64) {
    pod["metadata"]["labels"][POD_NAME] = name.into();
    pod["metadata"]["labels"][POD_INDEX] = ordinal.to_string().into();
}

/// Adds the claims of the pod to its volumes. These volumes replace volumes of the template with equal names.
fn mount_claims(pod: &mut Value, set: &str, templates: &[Value], ordinal: i64) {
    if templates.is_empty() {
        return;
    }
    let names: Vec<&str> = templates.iter().filter_map(|claim| claim["metadata"]["name"].as_str()).collect();
    let claim = |template: &&str| {
        let claim = names::claim(template, set, ordinal);
        json!({"name": template, "persistentVolumeClaim": {"claimName": claim}})
    };
    let mut volumes: Vec<Value> = names.iter().map(claim).collect();
    let names: HashSet<&str> = names.into_iter().collect();
    let others = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    volumes
        .extend(others.into_iter().filter(|volume| !volume["name"].as_str().is_some_and(|name| names.contains(name))));
    pod["spec"]["volumes"] = volumes.into();
}

impl<'w> Sync<'w> {
    /// A new pod with this ordinal.
    pub fn pod(&self, template: &Value, revision: &str, ordinal: i64) -> Value {
        let mut pod = pods::from_template(self.set.into(), template);
        let name = self.pod_name(ordinal);
        pod["metadata"]["name"] = name.as_str().into();
        pod["metadata"]["labels"][POD_REVISION] = revision.into();
        mark(&mut pod, &name, ordinal);
        mount_claims(&mut pod, &self.set.meta().name, &self.claim_templates, ordinal);
        pod["spec"]["hostname"] = name.into();
        if !self.set.spec.service_name.is_empty() {
            pod["spec"]["subdomain"] = self.set.spec.service_name.as_str().into();
        }
        pod
    }

    /// Corrects a pod's name label and claims if they do not belong to the pod's ordinal, and corrects the owners of
    /// the claims. An Event reports that the pod was updated, even if only owners of claims change.
    pub fn correct(&mut self, ordinal: i64, pod: Viewed<'w, Pod>) {
        let message = format!("Update Pod {} in StatefulSet {} successful", pod.meta().name, self.set.meta().name);
        let note = self.subject().normal("SuccessfulUpdate", message);
        let is_itself = self.is_itself(ordinal, pod);
        if pod.status.phase != "Pending" {
            self.set_claim_owners(ordinal, pod, is_itself.then(|| note.clone()));
        }
        if is_itself {
            return;
        }
        let mut document = pod.object.document();
        mark(&mut document, &pod.meta().name, ordinal);
        mount_claims(&mut document, &self.set.meta().name, &self.claim_templates, ordinal);
        let update = Subject::from(pod).update(document);
        self.plan.then(update.with_event(note));
    }

    fn is_itself(&self, ordinal: i64, pod: Viewed<'w, Pod>) -> bool {
        // If two volumes of the pod have equal names, the first volume counts.
        let volumes = pod.view.spec.volumes.iter().rev();
        let volumes: HashMap<&str, _> =
            volumes.map(|volume| (&*volume.name, &volume.persistent_volume_claim)).collect();
        let mounts = |template: &Value| {
            let template = template["metadata"]["name"].as_str().unwrap_or_default();
            let mounted = volumes.get(template).and_then(|mounted| mounted.as_ref());
            mounted.is_some_and(|of| of.claim_name == names::claim(template, &self.set.meta().name, ordinal))
        };
        pod.meta().label(POD_NAME) == Some(&pod.meta().name) && self.claim_templates.iter().all(mounts)
    }
}
