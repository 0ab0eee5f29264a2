//! The views, a file a kind or a few that belong together.

pub mod autoscaler;
pub mod batch;
pub mod budget;
pub mod claim;
pub mod network;
pub mod node;
pub mod pod;
pub mod workloads;

pub use autoscaler::HorizontalPodAutoscaler;
pub use batch::{CronJob, Job};
pub use budget::PodDisruptionBudget;
pub use claim::PersistentVolumeClaim;
pub use network::{EndpointSlice, Endpoints, Service};
pub use node::Node;
pub use pod::Pod;
pub use workloads::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};
