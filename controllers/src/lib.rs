//! The controllers of a cluster: each a pure plan for one key at a time, over what the world shows.
//!
//! A folder (or a file) a controller; [`all`] is their list. What several of them do stands beside them: [`claim`] says
//! whose an object is, [`pods`] makes and deletes pods, [`subject`] writes statuses and tells of things.

pub mod claim;
pub mod hash;
pub mod planted;
pub mod pods;
pub mod replicas;
pub mod subject;

use holdfast_world::Controller;
use holdfast_world::views::{ReplicaSet, ReplicationController};

/// Every controller there is.
pub fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(replicas::Replicas::<ReplicaSet>::default()),
        Box::new(replicas::Replicas::<ReplicationController>::default()),
    ]
}
