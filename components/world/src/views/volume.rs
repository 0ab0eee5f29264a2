//! Views of PersistentVolumes, StorageClasses, VolumeAttachments and CSIDrivers.

use crate::Meta;
use crate::object::or_default;
use holdfast_value::Value;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    pub spec: VolumeSpec,
    pub status: VolumeStatus,
}

crate::resource!(PersistentVolume, "", "v1", "persistentvolumes", "PersistentVolume", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    #[serde(deserialize_with = "or_default")]
    pub capacity: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub access_modes: Vec<String>,
    pub claim_ref: Option<ClaimRef>,
    pub persistent_volume_reclaim_policy: String,
    pub storage_class_name: String,
    pub volume_attributes_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub csi: Option<CsiVolume>,
    pub host_path: Option<HostPath>,
    /// The nodes on which the volume can be used, as a node selector; null means all nodes.
    pub node_affinity: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolume {
    pub driver: String,
    pub volume_handle: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct HostPath {
    pub path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    pub phase: String,
    pub message: String,
}

impl PersistentVolume {
    /// The name of the volume's storage class; empty if the volume has no class.
    pub fn class<'a>(&'a self, meta: &'a Meta) -> &'a str {
        meta.annotation("volume.beta.kubernetes.io/storage-class").unwrap_or(&self.spec.storage_class_name)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    pub provisioner: String,
    pub reclaim_policy: Option<String>,
    pub volume_binding_mode: Option<String>,
    pub allow_volume_expansion: bool,
    #[serde(deserialize_with = "or_default")]
    pub mount_options: Vec<String>,
}

crate::resource!(StorageClass, "storage.k8s.io", "v1", "storageclasses", "StorageClass", cluster);

impl StorageClass {
    /// Whether a volume of this class is provisioned only when a pod that uses it has a node.
    pub fn waits_for_consumer(&self) -> bool {
        self.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAttributesClass {}

crate::resource!(
    VolumeAttributesClass,
    "storage.k8s.io",
    "v1",
    "volumeattributesclasses",
    "VolumeAttributesClass",
    cluster
);

/// The request to attach a volume to a node, and whether the volume is attached.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    pub spec: AttachmentSpec,
    pub status: AttachmentStatus,
}

crate::resource!(VolumeAttachment, "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    pub attacher: String,
    pub node_name: String,
    pub source: AttachmentSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    pub persistent_volume_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentStatus {
    pub attached: bool,
    pub attach_error: Option<AttachmentError>,
    pub detach_error: Option<AttachmentError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AttachmentError {
    pub message: String,
}

/// The settings of a CSI driver.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CSIDriver {
    pub spec: DriverSpec,
}

crate::resource!(CSIDriver, "storage.k8s.io", "v1", "csidrivers", "CSIDriver", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriverSpec {
    pub attach_required: Option<bool>,
    pub se_linux_mount: bool,
}
