//! Provisions volumes for claims for which no matching volume exists.

use super::{BETA_PROVISIONER, BOUND_BY_CONTROLLER, Binder, PROVISIONED_BY, PROVISIONER, annotate, migration};
use crate::subject::{Subject, part};
use holdfast_value::{Value, json};
use holdfast_world::views::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use holdfast_world::{Action, Key, Plan, Verb, View, Viewed, World};

/// The provisioner that makes folders on nodes, the only provisioner that is built in.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// The prefix of the names of in-tree provisioners.
pub(super) const OWN: &str = "kubernetes.io/";
/// Volumes are provisioned as folders under this folder. Of the volumes that are folders, this controller deletes only
/// those whose path contains this folder.
pub(super) const FOLDERS: &str = "/tmp/";
/// The finalizer of a provisioned volume, which keeps the volume until its storage is deleted.
pub(super) const FINALIZER: &str = "kubernetes.io/pv-controller";
/// The finalizer with which external provisioners keep a volume until its storage is deleted.
pub(super) const EXTERNAL_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

type ClaimView<'a> = Viewed<'a, PersistentVolumeClaim>;

impl Binder {
    pub(super) fn provision(&self, world: &World, claim: ClaimView<'_>, class: &str, plan: &mut Plan) {
        if !self.provisioning {
            return;
        }
        let subject = Subject::from(claim);
        let Some(found) = world.get::<StorageClass>(&Key::cluster(class)) else {
            let message = format!("storageclass.storage.k8s.io {class:?} not found");
            return plan.events.push(subject.warning("ProvisioningFailed", message));
        };
        let provisioner = found.provisioner.as_str();
        let is_folder = provisioner == HOST_PATH;
        let driver = migration::driver(provisioner);
        if provisioner.starts_with(OWN) && driver.is_none() && !is_folder {
            let message = format!("no volume plugin matched name: {provisioner}");
            return plan.events.push(subject.warning("ProvisioningFailed", message));
        }
        // An external provisioner provisions a volume for a claim when the claim has this annotation with the
        // provisioner's name.
        let named = driver.unwrap_or(provisioner);
        if claim.meta().annotation(PROVISIONER) != Some(named) {
            let mut document = claim.object.document();
            annotate(&mut document, PROVISIONER, named);
            annotate(&mut document, BETA_PROVISIONER, named);
            migration::mark(&mut document, named);
            plan.then(subject.update(document));
        } else if is_folder {
            return self.make_folder(world, claim, found, plan);
        }
        if !is_folder {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{named}' or manually by the \
                 system administrator. If volume creation is delayed, please verify that the provisioner is running \
                 and correctly registered."
            );
            plan.events.push(subject.normal("ExternalProvisioning", message));
        }
    }

    fn make_folder(&self, world: &World, claim: ClaimView<'_>, class: Viewed<'_, StorageClass>, plan: &mut Plan) {
        let subject = Subject::from(claim);
        let volume = format!("pvc-{}", claim.meta().uid);
        if world.get::<PersistentVolume>(&Key::cluster(&volume)).is_some() {
            return;
        }
        if let Some(why) = self.no_folder(claim, class) {
            return plan.events.push(subject.warning("ProvisioningFailed", why));
        }
        let told = format!("Successfully provisioned volume {volume} using {HOST_PATH}");
        let note = subject.normal("ProvisioningSucceeded", told);
        let key = Key::cluster(&volume);
        let body = folder(&volume, claim, class);
        plan.then(Action::new(PersistentVolume::resource(), key, Verb::Create(body)).with_event(note));
    }

    /// Why no folder can be provisioned for a claim; `None` if one can be provisioned.
    fn no_folder(&self, claim: ClaimView<'_>, class: Viewed<'_, StorageClass>) -> Option<String> {
        let options = &class.view.mount_options;
        if !part(claim.object, &["spec", "dataSource"]).is_null() {
            let why = "is not a CSI plugin. Only CSI plugin can provision a claim with a datasource";
            Some(format!("plugin {HOST_PATH:?} {why}"))
        } else if !options.is_empty() {
            let (name, options) = (&class.meta().name, options.join(" "));
            let why = "Mount options are not supported by the provisioner but StorageClass";
            Some(format!("{why} {name:?} has mount options [{options}]"))
        } else if !self.host_path {
            Some(format!("Failed to create provisioner: provisioning in volume plugin {HOST_PATH:?} is disabled"))
        } else {
            None
        }
    }
}

/// A new volume that is reserved for the claim: a folder on whichever node runs the claim's pod.
fn folder(name: &str, claim: ClaimView<'_>, class: Viewed<'_, StorageClass>) -> Value {
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
    let annotations = json!({BOUND_BY_CONTROLLER: "yes", PROVISIONED_BY: HOST_PATH});
    let metadata = json!({"name": name, "annotations": annotations, "finalizers": finalizers});
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
}
