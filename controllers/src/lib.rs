//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list. What several of them do stands beside them: [`claim`] says
//! whose an object is, [`pods`] makes and deletes pods, [`subject`] writes statuses and tells of things.

pub mod answers;
pub mod claim;
pub mod cron_job;
pub mod disruption;
pub mod endpoint_slice;
pub mod endpoints;
pub mod hash;
pub mod job;
pub mod planted;
pub mod pods;
pub mod replicas;
pub mod services;
pub mod subject;
pub mod ttl_after_finished;

use holdfast_world::Controller;
use holdfast_world::views::{ReplicaSet, ReplicationController};

/// Every controller there is.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(replicas::Replicas::<ReplicaSet>::default()),
        Box::new(replicas::Replicas::<ReplicationController>::default()),
        Box::new(cron_job::CronJobs),
        Box::new(disruption::Disruption::default()),
        Box::new(endpoint_slice::EndpointSlices::default()),
        Box::new(endpoint_slice::mirroring::Mirroring),
        Box::new(endpoints::EndpointsController::default()),
        Box::new(job::Jobs),
        Box::new(ttl_after_finished::TtlAfterFinished),
    ]
}
