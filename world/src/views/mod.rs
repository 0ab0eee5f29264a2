//! The views, a file a kind or a few that belong together.

pub mod claim;
pub mod node;
pub mod pod;
pub mod workloads;

pub use claim::PersistentVolumeClaim;
pub use node::Node;
pub use pod::Pod;
pub use workloads::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, ReplicationController, StatefulSet};
