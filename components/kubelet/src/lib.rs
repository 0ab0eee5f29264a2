//! The kubelet API of simulated nodes: logs, commands and ports of containers that do not really run.
//!
//! One listener serves all nodes of a process. A container's command is run by the shell `holdfast-shell`, in memory
//! and only while a client uses the container. [`containers`] replays it from the pod's status to the present, and
//! keeps what executed commands have changed.

mod answers;
mod cluster;
mod containers;
mod forward;
mod journal;
mod logs;
mod metrics;
mod remote;
mod request;
mod serve;

pub use cluster::Cluster;
pub use serve::NodeServer;
