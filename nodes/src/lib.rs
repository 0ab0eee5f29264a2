//! Simulated nodes: they register, renew leases, and take pods through their lives as kubelets do. No container runs.
//!
//! [`kubelet`] decides, from a pod's status and the time alone; [`stage`] does where users say otherwise, in the form that
//! KWOK knows. [`Nodes`] and [`Pods`] are controllers that carry it out for any number of nodes, [`Others`] plays Stages for
//! objects of all other kinds, [`stages::Reports`] tells of Stages that are not understood.

/// How each of these controllers is called, and that it acts as a kubelet does.
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
pub mod inside;
mod jq;
pub mod kubelet;
pub mod metrics;
pub mod node;
mod nodes;
pub mod objects;
mod others;
mod pods;
pub mod stage;
mod stages;
mod template;
#[cfg(test)]
mod trials;

pub use behaviour::{Behaviour, PREFIX, Span, Told, Usage};
pub use node::Template;
pub use nodes::Nodes;
pub use others::Others;
pub use pods::Pods;
pub use stages::Reports;

use holdfast_world::Controller;
use std::sync::Arc;

/// The service account in `kube-system` that simulated nodes act as: one for all of them.
pub const ACCOUNT: &str = "simulated-nodes";
/// Who owns the fields that they write, as on nodes where containers run.
pub const MANAGER: &str = "kubelet";

/// All that simulates `count` nodes, and the Nodes of others that ask to be simulated.
pub fn all(template: Template, count: u32) -> Vec<Box<dyn Controller>> {
    let template = Arc::new(template);
    vec![
        Box::new(Nodes::new(template.clone(), count)),
        Box::new(Pods::new(template)),
        Box::new(Others::default()),
        Box::new(Reports),
    ]
}
