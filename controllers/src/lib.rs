//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list. What several of them do stands beside them: [`subject`]
//! writes statuses and tells of things.

pub mod node_lifecycle;
pub mod node_ttl;
pub mod pod_gc;
pub mod quota;
pub mod root_ca;
pub mod service_account;
pub mod settings;
pub mod subject;
pub mod taint_eviction;
pub mod volumes;

use holdfast_world::Controller;
pub use settings::Settings;

/// Every controller there is, in the order in which `--controllers` lists them.
pub fn all(settings: &Settings) -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(quota::ResourceQuotas::default()),
        Box::new(root_ca::RootCa::new(settings)),
        Box::new(node_lifecycle::NodeLifecycle::new(settings)),
        Box::new(node_ttl::NodeTtl::default()),
        Box::new(pod_gc::PodCollector::new(settings)),
        Box::new(volumes::binder::Binder::new(settings)),
        Box::new(volumes::ephemeral::EphemeralVolumes),
        Box::new(volumes::protection::AttributesClassProtection),
        Box::new(volumes::protection::ClaimProtection),
        Box::new(volumes::protection::VolumeProtection),
        Box::new(taint_eviction::TaintEviction::default()),
        Box::new(service_account::DefaultAccounts),
    ]
}
