//! The former in-tree volume plug-ins whose volumes CSI drivers serve now. Objects still name the plug-in.

use super::{BETA_PROVISIONER, MIGRATED_TO, PROVISIONED_BY, PROVISIONER, annotate, drop_annotation};
use holdfast_value::Value;
use holdfast_world::Meta;

/// Each in-tree plug-in, with the CSI driver that replaces it.
const DRIVERS: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
];

/// The CSI driver that replaces an in-tree plug-in; `None` if no driver replaces it.
pub fn driver(plugin: &str) -> Option<&'static str> {
    DRIVERS.iter().find(|(known, _)| *known == plugin).map(|(_, driver)| *driver)
}

/// Whether the annotation that names the driver of a migrated volume or claim is wrong.
pub fn is_mismarked(meta: &Meta, of_claim: bool) -> bool {
    let names = if of_claim { &[PROVISIONER, BETA_PROVISIONER][..] } else { &[PROVISIONED_BY] };
    // A volume that no provisioner made does not have the annotation with a provisioner, so it needs no mark.
    let provisioner = names.iter().find_map(|name| meta.annotation(name));
    provisioner
        .is_some_and(|provisioner| driver(provisioner) != meta.annotation(MIGRATED_TO).filter(|to| !to.is_empty()))
}

/// Sets the annotation that names the driver of a migrated volume or claim, or removes the annotation if no driver
/// replaces the provisioner.
pub fn mark(document: &mut Value, provisioner: &str) {
    match driver(provisioner) {
        Some(driver) => annotate(document, MIGRATED_TO, driver),
        None => drop_annotation(document, MIGRATED_TO),
    }
}
