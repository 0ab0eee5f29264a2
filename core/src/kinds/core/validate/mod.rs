//! The rules of the core group's kinds.

mod config;
mod container;
mod placement;
mod pod;
mod service;
mod volume;

pub use config::{config_map, secret};
pub(in crate::kinds) use placement::{node_selector, tolerations};
pub(in crate::kinds) use pod::template;
pub use pod::{pod, pod_template};
pub use service::service;
pub use volume::claim;
