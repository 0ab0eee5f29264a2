//! Storage: volumes, claims, classes and the limits of CSI drivers on nodes.

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
    /// `Filesystem` or `Block`.
    pub volume_mode: Text,
    pub labels: Labels,
    /// The claim that the volume is bound to or reserved for: its key and uid.
    pub claim: Option<(Key, Text)>,
    pub node_affinity: Option<NodeSelector>,
    /// The CSI driver and its handle.
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
    /// Whether the claim's binding is complete.
    pub bound: bool,
    pub lost: bool,
    pub deleting: bool,
    pub modes: Vec<Text>,
    pub volume_mode: Text,
    pub request: i128,
    /// The labels that a volume must have; everything if the claim has no selector.
    pub selector: Selector,
    /// The node that was chosen for a pod that uses the claim.
    pub selected_node: Option<Text>,
    /// The uid of the controller that owns the claim.
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

    /// The name of the claim's class; empty if it has none.
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
    /// Terms over labels of nodes; if there are any, one of them must match.
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

/// A CSINode: the data that CSI drivers report about a node.
#[derive(Debug, Clone, PartialEq)]
pub struct CsiNode {
    /// How many volumes of each driver can be attached to the node.
    pub limits: Vec<(Text, i64)>,
    /// In-tree plug-ins whose volumes a CSI driver serves on this node.
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

/// A driver's free capacity for volumes of a class, for some nodes.
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

/// A volume that is attached to a node, or being attached.
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

/// Whether the driver's capacity is checked before volumes are provisioned.
pub fn tracks_capacity(object: &Value) -> bool {
    object["spec"]["storageCapacity"] == true
}

/// A disk of a cloud or a storage system, which a pod or a PersistentVolume names.
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
    /// The disk of a pod's volume, or of a PersistentVolume.
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
