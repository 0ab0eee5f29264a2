//! NodeVolumeLimits: a node must be able to attach the pod's volumes; each CSI driver attaches only a limited number of
//! volumes to a node.

use crate::object::pod::{Pod, Volume};
use crate::object::volume::CsiNode;
use crate::object::volume::{Disk, DiskSource};
use crate::object::{Key, Kind, Text};
use crate::plugin::{FilterFn, Plugin, PreFilterResult, QueueingHint, SchedulingCycle};
use crate::snapshot::node_info::NodeInfo;
use crate::snapshot::{ClusterEvent, ObjectChange, Volumes};
use crate::status::Rejection;
use std::collections::{BTreeMap, BTreeSet};

pub const NAME: &str = "NodeVolumeLimits";

#[derive(Debug)]
pub struct NodeVolumeLimits;

/// In-tree volume plug-ins, and the CSI drivers that serve them today; `None` means that the plug-in's volumes are not
/// counted.
const MIGRATED: [(&str, Option<&str>); 7] = [
    ("kubernetes.io/gce-pd", Some("pd.csi.storage.gke.io")),
    ("kubernetes.io/aws-ebs", Some("ebs.csi.aws.com")),
    ("kubernetes.io/azure-disk", Some("disk.csi.azure.com")),
    ("kubernetes.io/cinder", Some("cinder.csi.openstack.org")),
    ("kubernetes.io/portworx-volume", Some("pxd.portworx.com")),
    ("kubernetes.io/vsphere-volume", None),
    ("kubernetes.io/azure-file", None),
];

/// The name of a CSI driver and its handle for a volume.
type AttachedVolume = (Text, Text);

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, cycle: SchedulingCycle<'_>) -> PreFilterResult {
        let attaches = |volume: &Volume| match volume {
            Volume::Claim(_) | Volume::Ephemeral(_) => true,
            Volume::Disk(disk) => disk.source.plugin().is_some(),
        };
        if !cycle.pod.template.volumes.iter().any(attaches) {
            return PreFilterResult::Skip;
        }
        PreFilterResult::filter(FilterFn(check))
    }

    fn depends_on(&self, cycle: SchedulingCycle<'_>, kind: Kind, _: &Key) -> bool {
        let kinds = [
            Kind::CsiNode,
            Kind::PersistentVolume,
            Kind::PersistentVolumeClaim,
            Kind::StorageClass,
            Kind::VolumeAttachment,
        ];
        !cycle.pod.template.volumes.is_empty() && kinds.contains(&kind)
    }

    fn concerns_other_pods(&self, event: &ClusterEvent) -> bool {
        event.concerns_nodes()
    }

    fn queueing_hint(&self, cycle: SchedulingCycle<'_>, event: &ClusterEvent) -> QueueingHint {
        let own = |claim: &Key| cycle.pod.volume_claims().any(|(own, _)| own == *claim);
        QueueingHint::queue_if(match &event.change {
            ObjectChange::CsiNode(before, Some(after)) => {
                let limit = |driver: &Text| before.as_ref().and_then(|before| before.limit(driver));
                before.is_none()
                    || after.limits.iter().any(|(driver, count)| *count > limit(driver).unwrap_or(0))
                    || before.as_ref().is_some_and(|before| before.limits.len() > after.limits.len())
            }
            ObjectChange::Pod(Some(gone), None) => {
                (gone.node_name.is_some() || gone.nominated.is_some()) && !gone.template.volumes.is_empty()
            }
            ObjectChange::Other { before, after } => match event.kind {
                Kind::PersistentVolumeClaim => !before && *after && own(&event.key),
                Kind::VolumeAttachment => *before && !after,
                _ => false,
            },
            _ => false,
        })
    }
}

impl CsiNode {
    fn limit(&self, driver: &str) -> Option<i64> {
        self.limits.iter().find(|(name, _)| &**name == driver).map(|(_, count)| *count)
    }
}

fn check(cycle: SchedulingCycle<'_>, node: &NodeInfo) -> Result<(), Rejection> {
    let cluster = cycle.snapshot.volumes();
    let csi_node = cluster.csi_node(&node.node.name);
    for (claim, _) in cycle.pod.volume_claims() {
        if cluster.claim(&claim).is_none() {
            let why = format!("looking up PVC {claim}: persistentvolumeclaim \"{}\" not found", claim.name);
            return Err(Rejection::unresolvable(NAME, why));
        }
    }
    let Some(limits) = csi_node.map(|csi| &csi.limits).filter(|limits| !limits.is_empty()) else { return Ok(()) };
    let mut wanted = volumes(cluster, cycle.pod);
    if wanted.is_empty() {
        return Ok(());
    }
    let mut attached: BTreeSet<AttachedVolume> = node.pods.iter().flat_map(|pod| volumes(cluster, pod)).collect();
    wanted.retain(|volume| !attached.contains(volume));
    // A volume that is attached to the node counts even if no pod on the node uses it. If only the pod to be scheduled
    // uses such a volume, the volume counts twice.
    attached.extend(attachments(cluster, &node.node.name));
    let mut counts: BTreeMap<&Text, i64> = BTreeMap::new();
    for (driver, _) in &wanted {
        *counts.entry(driver).or_default() += 1;
    }
    for (driver, more) in counts {
        let there = attached.iter().filter(|(other, _)| other == driver).count();
        let total = i64::try_from(there).unwrap_or(i64::MAX).saturating_add(more);
        if limits.iter().any(|(name, limit)| name == driver && total > *limit) {
            return Err(Rejection::unschedulable(NAME, "node(s) exceed max volume count"));
        }
    }
    Ok(())
}

/// The volumes of a pod that CSI drivers attach, each once. Volumes of in-tree plug-ins count for the driver that
/// replaces the plug-in, on every node that has any CSI driver.
fn volumes(cluster: &Volumes, pod: &Pod) -> BTreeSet<AttachedVolume> {
    let claims = pod.volume_claims().filter_map(|(claim, _)| volume_of_claim(cluster, &claim));
    let inline = pod.template.volumes.iter().filter_map(|volume| match volume {
        Volume::Disk(disk) => volume_of_disk(disk),
        _ => None,
    });
    claims.chain(inline).collect()
}

fn volume_of_claim(cluster: &Volumes, key: &Key) -> Option<AttachedVolume> {
    let claim = cluster.claim(key)?;
    if let Some(volume) = claim.volume.as_ref().and_then(|name| cluster.volume(name)) {
        return match (&volume.csi, &volume.disk) {
            (Some(csi), _) => Some(csi.clone()),
            (None, Some(disk)) => volume_of_disk(disk),
            (None, None) => None,
        };
    }
    // A volume that must still be provisioned counts for the driver that provisions it.
    let provisioner = &cluster.class(claim.class_name())?.provisioner;
    let placeholder: Text = format!("unbound:{key}").into();
    match MIGRATED.iter().find(|(plugin, _)| **plugin == **provisioner) {
        Some((_, driver)) => Some(((*driver)?.into(), placeholder)),
        None => Some((provisioner.clone(), placeholder)),
    }
}

fn volume_of_disk(disk: &Disk) -> Option<AttachedVolume> {
    let (plugin, handle) = disk.source.plugin()?;
    let (_, driver) = MIGRATED.iter().find(|(name, _)| *name == plugin)?;
    Some(((*driver)?.into(), handle))
}

impl DiskSource {
    /// The in-tree plug-in for this kind of disk, and the handle by which the CSI driver that replaces the plug-in
    /// knows the disk.
    fn plugin(&self) -> Option<(&'static str, Text)> {
        let (plugin, handle) = match self {
            DiskSource::GcePersistentDisk(name) => (0, name),
            DiskSource::AwsElasticBlockStore(id) => (1, id),
            DiskSource::AzureDisk(uri) => (2, uri),
            DiskSource::Cinder(id) => (3, id),
            DiskSource::Portworx(id) => (4, id),
            DiskSource::Vsphere(path) => (5, path),
            DiskSource::AzureFile(share) => (6, share),
            DiskSource::Iscsi(_) | DiskSource::Rbd { .. } => return None,
        };
        // In the handle `aws://zone/volume`, the CSI driver's handle is only the part after the last slash.
        let bare = handle.strip_prefix("aws://").and_then(|rest| rest.rsplit('/').next()).filter(|_| plugin == 1);
        Some((MIGRATED[plugin].0, bare.map_or_else(|| handle.clone(), Into::into)))
    }
}

/// The volumes that are attached to a node, or about to be attached, whether a pod on the node uses them or not.
fn attachments<'a>(cluster: &'a Volumes, node: &'a Text) -> impl Iterator<Item = AttachedVolume> + 'a {
    cluster.attachments().filter(move |one| one.node == *node).filter_map(|one| {
        let volume = cluster.volume(one.volume.as_ref()?)?;
        let (_, handle) = volume.csi.clone()?;
        Some((one.driver.clone(), handle))
    })
}
