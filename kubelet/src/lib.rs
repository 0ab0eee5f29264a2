//! What kubelets serve, for simulated nodes: logs, commands and ports of containers of which none runs.
//!
//! One listener stands for all nodes of a process. A container's command is run by a shell of our own
//! (`holdfast-shell`), in memory and only while somebody looks at it: [`containers`] makes it go on from the pod's
//! status to the present, and keeps what a command that was executed in it has changed.

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
pub use serve::Server;
