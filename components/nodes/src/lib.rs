//! Simulated nodes. They register, renew their leases, and give pods the statuses that a kubelet would give them. No
//! container runs.
//!
//! [`kubelet`] computes a pod's status from its present status and the time. If users have written Stages in KWOK's
//! form, [`stage`] computes the status instead. The controllers [`Nodes`] and [`Pods`] do so for any number of nodes.
//! [`OtherKinds`] plays Stages for objects of all other kinds, and [`stages::Reports`] reports Stages that cannot be
//! parsed.

/// Gives a controller its name, and lets it act as the account of the nodes.
macro_rules! acts_as_kubelet {
    ($name:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn account(&self) -> &'static str {
            $crate::ACCOUNT
        }

        fn manager(&self) -> &'static str {
            $crate::MANAGER
        }

        fn component(&self) -> &'static str {
            $crate::MANAGER
        }
    };
}

mod addresses;
mod behaviour;
mod budget;
mod command;
pub mod course;
pub mod environment;
mod jq;
pub mod kubelet;
pub mod metrics;
pub mod node;
mod nodes;
pub mod objects;
mod other_kinds;
mod pods;
pub mod stage;
mod stages;
mod template;
#[cfg(test)]
mod trials;

pub use behaviour::{Behaviour, BehaviourSettings, PREFIX, ResourceUsage, Span};
pub use node::Template;
pub use nodes::Nodes;
pub use other_kinds::OtherKinds;
pub use pods::Pods;
pub use stages::Reports;

use holdfast_world::Controller;
use std::sync::Arc;

/// The service account in `kube-system` that all simulated nodes use.
pub const ACCOUNT: &str = "simulated-nodes";
/// The field manager of the writes of simulated nodes, the same name as on real nodes.
pub const MANAGER: &str = "kubelet";

/// The controllers that simulate `count` nodes, and also every Node that a user has created and marked as simulated.
pub fn all(template: Template, count: u32) -> Vec<Box<dyn Controller>> {
    let template = Arc::new(template);
    vec![
        Box::new(Nodes::new(template.clone(), count)),
        Box::new(Pods::new(template)),
        Box::new(OtherKinds::default()),
        Box::new(Reports),
    ]
}
