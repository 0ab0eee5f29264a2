//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list. What several of them do stands beside them: [`claim`] says
//! whose an object is, [`pods`] makes and deletes pods, [`subject`] writes statuses and
//! tells of things, [`conditions`] are the part of a status that others write too.

pub mod answers;
pub mod autoscaler;
pub mod claim;
pub mod conditions;
pub mod cron_job;
pub mod deployment;
pub mod disruption;
pub mod endpoint_slice;
pub mod endpoints;
pub mod garbage;
pub mod hash;
pub mod job;
pub mod names;
pub mod planted;
pub mod pods;
pub mod quota;
pub mod replicas;
pub mod root_ca;
pub mod service_account;
pub mod services;
pub mod settings;
pub mod subject;
pub mod ttl_after_finished;
pub mod volumes;

use holdfast_world::Controller;
use holdfast_world::views::{ReplicaSet, ReplicationController};
pub use settings::Settings;

/// Every controller there is, in the order in which `--controllers` lists them.
pub fn all(settings: &Settings) -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(garbage::GarbageCollector),
        Box::new(deployment::Deployments),
        Box::new(replicas::Replicas::<ReplicaSet>::default()),
        Box::new(replicas::Replicas::<ReplicationController>::default()),
        Box::new(quota::ResourceQuotas::default()),
        Box::new(root_ca::RootCa::new(settings)),
        Box::new(volumes::binder::Binder::new(settings)),
        Box::new(service_account::DefaultAccounts),
        Box::new(autoscaler::Autoscalers::default()),
        Box::new(cron_job::CronJobs),
        Box::new(disruption::Disruption::default()),
        Box::new(endpoint_slice::EndpointSlices::default()),
        Box::new(endpoint_slice::mirroring::Mirroring),
        Box::new(endpoints::EndpointsController::default()),
        Box::new(job::Jobs),
        Box::new(ttl_after_finished::TtlAfterFinished),
    ]
}
