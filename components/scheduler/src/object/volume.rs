//! Storage: PersistentVolumes, their claims and classes, and how many volumes CSI drivers can attach to nodes.

use super::labels::Labels;
use super::selector::Selector;
use super::terms::NodeSelector;
use super::{Key, StringPool, Text, bytes, items, text};
use holdfast_value::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct Volume {
    pub name: Text,
    pub uid: Text,
    /// The object's resourceVersion.
    pub version: Text,
    pub class: Text,
    pub capacity: i128,
    pub modes: Vec<Text>,
    /// The volume mode: `Filesystem` or `Block`.
    pub volume_mode: Text,
    pub labels: Labels,
    /// The claim to which the volume is bound, or for which it is reserved: the claim's key and uid.
    pub claim: Option<(Key, Text)>,
    pub node_affinity: Option<NodeSelector>,
    /// The name of the CSI driver, and the driver's handle for the volume.
    pub csi: Option<(Text, Text)>,
    pub disk: Option<Disk>,
    pub available: bool,
    pub deleting: bool,
    pub attributes_class: Option<Text>,
}

impl Volume {
    pub fn decode(pool: &mut StringPool, name: Text, object: &Value) -> Self {
        let spec = &object["spec"];
        let csi = &spec["csi"];
        let claim = &spec["claimRef"];
        let annotated_class = &object["metadata"]["annotations"][CLASS_ANNOTATION];
        Volume {
            name,
            uid: pool.field(&object["metadata"]["uid"]),
            version: text(&object["metadata"]["resourceVersion"]).into(),
            class: if annotated_class.is_string() {
                pool.field(annotated_class)
            } else {
                pool.field(&spec["storageClassName"])
            },
            capacity: bytes(&spec["capacity"]["storage"]),
            modes: pool.list(&spec["accessModes"]),
            volume_mode: volume_mode(pool, spec),
            labels: Labels::decode(pool, &object["metadata"]["labels"]),
            claim: claim
                .is_object()
                .then(|| (Key::new(text(&claim["namespace"]), text(&claim["name"])), pool.field(&claim["uid"]))),
            node_affinity: NodeSelector::decode(pool, &spec["nodeAffinity"]["required"]),
            csi: csi.is_object().then(|| (pool.field(&csi["driver"]), pool.field(&csi["volumeHandle"]))),
            disk: Disk::decode(pool, spec),
            available: text(&object["status"]["phase"]) == "Available",
            deleting: object["metadata"]["deletionTimestamp"].is_string(),
            attributes_class: pool.optional(&spec["volumeAttributesClassName"]),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    pub key: Key,
    pub uid: Text,
    /// The object's resourceVersion.
    pub version: Text,
    pub class: Option<Text>,
    pub volume: Option<Text>,
    /// Whether the claim has the annotation that its binding is complete.
    pub bound: bool,
    pub lost: bool,
    pub deleting: bool,
    pub modes: Vec<Text>,
    pub volume_mode: Text,
    pub request: i128,
    /// The labels that the claim requires of a volume; without a selector every volume matches.
    pub selector: Selector,
    /// The node that was chosen for a pod that uses the claim; the volume is provisioned for that node.
    pub selected_node: Option<Text>,
    /// The uid of the object that controls the claim, for example of the pod of an ephemeral volume.
    pub owner: Option<Text>,
    pub attributes_class: Option<Text>,
}

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

impl Claim {
    pub fn decode(pool: &mut StringPool, key: Key, object: &Value) -> Self {
        let (spec, meta) = (&object["spec"], &object["metadata"]);
        let annotations = &meta["annotations"];
        let class = if annotations[CLASS_ANNOTATION].is_string() {
            Some(pool.field(&annotations[CLASS_ANNOTATION]))
        } else {
            spec["storageClassName"].as_str().map(|class| pool.text(class))
        };
        let volume = pool.optional(&spec["volumeName"]);
        Claim {
            key,
            uid: pool.field(&meta["uid"]),
            version: text(&meta["resourceVersion"]).into(),
            class,
            bound: volume.is_some() && annotations[BIND_COMPLETED].is_string(),
            volume,
            lost: text(&object["status"]["phase"]) == "Lost",
            deleting: meta["deletionTimestamp"].is_string(),
            modes: pool.list(&spec["accessModes"]),
            volume_mode: volume_mode(pool, spec),
            request: bytes(&spec["resources"]["requests"]["storage"]),
            selector: if spec["selector"].is_object() {
                Selector::decode(pool, &spec["selector"])
            } else {
                Selector::everything()
            },
            selected_node: pool.optional(&annotations[SELECTED_NODE]),
            owner: items(&meta["ownerReferences"])
                .find(|owner| owner["controller"] == true)
                .map(|owner| pool.field(&owner["uid"])),
            attributes_class: pool.optional(&spec["volumeAttributesClassName"]),
        }
    }

    /// The name of the claim's StorageClass; empty if the claim has none.
    pub fn class_name(&self) -> &str {
        self.class.as_deref().unwrap_or("")
    }
}

fn volume_mode(pool: &mut StringPool, spec: &Value) -> Text {
    pool.text(spec["volumeMode"].as_str().unwrap_or("Filesystem"))
}

#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    pub provisioner: Text,
    pub waits_for_consumer: bool,
    /// The terms of `allowedTopologies`: each term is a list of node labels with their allowed values. If there are
    /// terms, a node must match one of them.
    pub topologies: Vec<Vec<(Text, Vec<Text>)>>,
}

impl Class {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let topologies = items(&object["allowedTopologies"]).map(|term| {
            items(&term["matchLabelExpressions"])
                .map(|one| (pool.field(&one["key"]), pool.list(&one["values"])))
                .collect()
        });
        Class {
            topologies: topologies.collect(),
            provisioner: pool.field(&object["provisioner"]),
            waits_for_consumer: text(&object["volumeBindingMode"]) == "WaitForFirstConsumer",
        }
    }

    /// Whether volumes of this class may be provisioned for a node with these labels.
    pub fn allows_node(&self, labels: &Labels) -> bool {
        let holds = |(key, values): &(Text, Vec<Text>)| labels.get(key).is_some_and(|value| values.contains(value));
        self.topologies.is_empty() || self.topologies.iter().any(|term| !term.is_empty() && term.iter().all(holds))
    }
}

/// A CSINode: what CSI drivers report about one node.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiNode {
    /// For each CSI driver, how many of its volumes can be attached to the node.
    pub limits: Vec<(Text, i64)>,
    /// The in-tree volume plug-ins whose volumes a CSI driver serves on this node.
    pub migrated: Vec<Text>,
}

impl CsiNode {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let drivers = items(&object["spec"]["drivers"]);
        let migrated = text(&object["metadata"]["annotations"]["storage.alpha.kubernetes.io/migrated-plugins"]);
        CsiNode {
            limits: drivers
                .filter_map(|one| Some((pool.field(&one["name"]), one["allocatable"]["count"].as_i64()?)))
                .collect(),
            migrated: migrated.split(',').filter(|one| !one.is_empty()).map(|one| pool.text(one.trim())).collect(),
        }
    }
}

/// A CSIStorageCapacity: how much free storage a driver has for volumes of a class, on some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Capacity {
    pub class: Text,
    pub nodes: Selector,
    pub free_bytes: Option<i128>,
}

impl Capacity {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        let free_bytes =
            ["maximumVolumeSize", "capacity"].iter().map(|field| &object[*field]).find(|value| value.is_string());
        Capacity {
            class: pool.field(&object["storageClassName"]),
            nodes: Selector::decode(pool, &object["nodeTopology"]),
            free_bytes: free_bytes.map(bytes),
        }
    }
}

/// A VolumeAttachment: a volume that is attached to a node, or about to be attached.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    pub driver: Text,
    pub node: Text,
    pub volume: Option<Text>,
}

impl Attachment {
    pub fn decode(pool: &mut StringPool, object: &Value) -> Self {
        Attachment {
            driver: pool.field(&object["spec"]["attacher"]),
            node: pool.field(&object["spec"]["nodeName"]),
            volume: pool.optional(&object["spec"]["source"]["persistentVolumeName"]),
        }
    }
}

/// Whether a CSIDriver says that the driver's free capacity must be checked before volumes are provisioned.
pub fn tracks_capacity(object: &Value) -> bool {
    object["spec"]["storageCapacity"] == true
}

/// A disk of a cloud or a storage system. Pods and PersistentVolumes name such disks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Disk {
    pub source: DiskSource,
    pub read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DiskSource {
    GcePersistentDisk(Text),
    AwsElasticBlockStore(Text),
    Iscsi(Text),
    Rbd { monitors: Vec<Text>, pool: Text, image: Text },
    AzureDisk(Text),
    Cinder(Text),
    Vsphere(Text),
    Portworx(Text),
    AzureFile(Text),
}

impl Disk {
    /// Decodes the disk that a pod's volume or a PersistentVolume names; `None` if it names none.
    pub fn decode(pool: &mut StringPool, volume: &Value) -> Option<Self> {
        type Make = fn(&mut StringPool, &Value) -> DiskSource;
        let sources: [(&str, Make); 9] = [
            ("gcePersistentDisk", |pool, one| DiskSource::GcePersistentDisk(pool.field(&one["pdName"]))),
            ("awsElasticBlockStore", |pool, one| DiskSource::AwsElasticBlockStore(pool.field(&one["volumeID"]))),
            ("iscsi", |pool, one| DiskSource::Iscsi(pool.field(&one["iqn"]))),
            ("rbd", |pool, one| DiskSource::Rbd {
                monitors: pool.list(&one["monitors"]),
                pool: pool.field(&one["pool"]),
                image: pool.field(&one["image"]),
            }),
            ("azureDisk", |pool, one| DiskSource::AzureDisk(pool.field(&one["diskURI"]))),
            ("cinder", |pool, one| DiskSource::Cinder(pool.field(&one["volumeID"]))),
            ("vsphereVolume", |pool, one| DiskSource::Vsphere(pool.field(&one["volumePath"]))),
            ("portworxVolume", |pool, one| DiskSource::Portworx(pool.field(&one["volumeID"]))),
            ("azureFile", |pool, one| DiskSource::AzureFile(pool.field(&one["shareName"]))),
        ];
        sources.iter().find(|(field, _)| volume[*field].is_object()).map(|(field, make)| {
            let one = &volume[*field];
            Disk { source: make(pool, one), read_only: one["readOnly"] == true }
        })
    }
}
