//! The rules of the core group's kinds.

mod annotations;
mod config;
mod container;
mod endpoints;
mod environment;
mod mount;
mod node;
mod object;
mod persistent;
mod placement;
mod pod;
mod pod_parts;
mod pod_update;
mod probe;
mod quota;
mod replication;
mod resources;
mod security;
mod service;
mod service_update;
mod source;
mod volume;

pub use config::{config_map, secret};
pub use endpoints::endpoints;
pub use node::node;
pub use object::{namespace, namespace_finalize, namespace_status};
pub use persistent::{claim, claim_status, volume as persistent_volume};
pub(in crate::kinds) use persistent::{claim_spec, inline_volume};
pub(in crate::kinds) use placement::{node_selector, tolerations};
pub(in crate::kinds) use pod::template;
pub use pod::{pod, pod_template};
pub use pod_parts::{ephemeral_containers, resize, status as pod_status};
pub use quota::{limit_range, resource_quota, resource_quota_status};
pub use replication::controller_status;
pub(in crate::kinds) use resources::container_amounts;
pub use service::{service, service_status};
