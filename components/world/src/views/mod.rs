//! The views. Each kind, or each group of a few related kinds, has its own file.

pub mod account;
pub mod autoscaler;
pub mod batch;
pub mod budget;
pub mod claim;
pub mod cluster;
pub mod condition;
pub mod definition;
pub mod device;
pub mod network;
pub mod node;
pub mod pod;
pub mod volume;
pub mod workloads;

pub use account::{ConfigMap, Namespace, ResourceQuota, Secret, ServiceAccount};
pub use autoscaler::HorizontalPodAutoscaler;
pub use batch::{CronJob, Job};
pub use budget::PodDisruptionBudget;
pub use claim::PersistentVolumeClaim;
pub use cluster::{
    CertificateSigningRequest, IPAddress, Lease, PodCertificateRequest, ServiceCIDR, StorageVersion,
    ValidatingAdmissionPolicy,
};
pub use condition::Condition;
pub use definition::Definition;
pub use device::{DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
pub use network::{EndpointSlice, Endpoints, Service};
pub use node::Node;
pub use pod::Pod;
pub use volume::{CSIDriver, PersistentVolume, StorageClass, VolumeAttachment, VolumeAttributesClass};
pub use workloads::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};
