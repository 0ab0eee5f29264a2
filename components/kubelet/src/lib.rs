//! The kubelet API of simulated nodes: logs, commands and ports of containers that do not really run.
//!
//! One listener serves all nodes of a process. The shell `holdfast-shell` runs a container's command, in memory and
//! only while a client uses the container. [`containers`] replays the command from the start time in the pod's status
//! to the present, and keeps what executed commands have changed.

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
