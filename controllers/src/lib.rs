//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list. What several of them do stands beside them: [`subject`]
//! writes statuses and tells of things.

pub mod quota;
pub mod root_ca;
pub mod service_account;
pub mod settings;
pub mod subject;
pub mod volumes;

use holdfast_world::Controller;
pub use settings::Settings;

/// Every controller there is, in the order in which `--controllers` lists them.
pub fn all(settings: &Settings) -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(quota::ResourceQuotas::default()),
        Box::new(root_ca::RootCa::new(settings)),
        Box::new(volumes::binder::Binder::new(settings)),
        Box::new(service_account::DefaultAccounts),
    ]
}
