//! Making volumes for claims that find none.

use super::{BETA_PROVISIONER, BOUND_BY_CONTROLLER, Binder, PROVISIONED_BY, PROVISIONER, annotate};
use crate::subject::Subject;
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use holdfast_world::{Action, Key, Plan, Seen, Verb, View, World};
use serde_json::{Value, json};

/// The provisioner of folders on nodes; there is no other that is not somebody else's.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// What provisioners are called that ought to be the controller's own.
const OWN: &str = "kubernetes.io/";
/// Where folders are made: nothing else is ever deleted.
pub(super) const FOLDERS: &str = "/tmp/";
/// Keeps a volume until what it stands for is deleted.
pub(super) const FINALIZER: &str = "kubernetes.io/pv-controller";

impl Binder {
    pub(super) fn provision(
        &self,
        world: &World,
        claim: Seen<'_, PersistentVolumeClaim>,
        class: &str,
        plan: &mut Plan,
    ) {
        if !self.provisioning {
            return;
        }
        let subject = Subject::from(claim);
        let Some(found) = world.get::<StorageClass>(&Key::cluster(class)) else {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            return plan.notes.push(subject.warning("ProvisioningFailed", message));
        };
        let provisioner = &found.provisioner;
        let own = self.host_path && provisioner == HOST_PATH;
        if provisioner.starts_with(OWN) && !own {
            let message = format!("no volume plugin matched name: {provisioner}");
            return plan.notes.push(subject.warning("ProvisioningFailed", message));
        }
        let meta = claim.meta();
        if [PROVISIONER, BETA_PROVISIONER].iter().any(|name| meta.annotation(name) != Some(provisioner)) {
            let mut document = claim.object.document();
            annotate(&mut document, PROVISIONER, provisioner);
            annotate(&mut document, BETA_PROVISIONER, provisioner);
            plan.then(subject.update(document));
        } else if own {
            let volume = format!("pvc-{}", meta.uid);
            if world.get::<PersistentVolume>(&Key::cluster(&volume)).is_none() {
                let told = format!("Successfully provisioned volume {volume} using {HOST_PATH}");
                let note = subject.normal("ProvisioningSucceeded", told);
                let key = Key::cluster(&volume);
                let body = folder(&volume, claim, found);
                plan.then(Action::new(PersistentVolume::resource(), key, Verb::Create(body)).told(note));
            }
            return;
        }
        if !own {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator. If volume creation is delayed, please verify that the provisioner is \
                 running and correctly registered."
            );
            plan.notes.push(subject.normal("ExternalProvisioning", message));
        }
    }
}

/// A folder on whichever node its pod runs, promised to the claim.
fn folder(name: &str, claim: Seen<'_, PersistentVolumeClaim>, class: Seen<'_, StorageClass>) -> Value {
    let (meta, document) = (claim.meta(), claim.object.document());
    let policy = class.reclaim_policy.as_deref().unwrap_or("Delete");
    let mut finalizers = Vec::new();
    if policy == "Delete" {
        finalizers.push(FINALIZER);
    }
    let mut spec = json!({
        "capacity": {"storage": document["spec"]["resources"]["requests"]["storage"]},
        "accessModes": document["spec"]["accessModes"],
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": class.meta().name,
        "volumeMode": document["spec"]["volumeMode"],
        "hostPath": {"path": format!("{FOLDERS}hostpath_pv/{}", meta.uid)},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        },
    });
    if let Some(class) = &claim.spec.volume_attributes_class_name {
        spec["volumeAttributesClassName"] = class.as_str().into();
    }
    if !class.mount_options.is_empty() {
        spec["mountOptions"] = json!(class.mount_options);
    }
    let annotations = json!({BOUND_BY_CONTROLLER: "yes", PROVISIONED_BY: HOST_PATH});
    let metadata = json!({"name": name, "annotations": annotations, "finalizers": finalizers});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
}
