//! The parts that all Kubernetes components share: leader election, secure serving with delegated authentication and
//! authorization, health, metrics, logging, feature gates.
//!
//! [`options`] has the flags in groups that a command flattens into its own flags. A [`Component`] is made from these
//! options. It serves the standard endpoints, and does the component's work while it leads.

pub mod api;
pub mod authentication;
pub mod authorization;
pub mod certificates;
pub mod component;
pub mod connect;
pub mod election;
pub mod gates;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod options;
mod process;
pub mod serving;
pub mod throttle;
pub mod values;

pub use component::Component;
pub use holdfast_files::file as files;
