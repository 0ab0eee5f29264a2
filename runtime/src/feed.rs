//! News of a cluster.

use async_trait::async_trait;
use holdfast_core::object::Body;
use holdfast_world::{Driver, Key, Resource, Served, Sight, Time};

/// Brings news of a cluster, in order.
#[async_trait]
pub trait Feed: Send + 'static {
    /// What is new since this was asked last, waiting for it. It begins with all objects that are looked at, up to
    /// [`News::Complete`]. Asking may be given up and taken up again.
    async fn next(&mut self) -> Vec<News>;

    /// What is to be told of beside the resources that are named, from here on. Called after news was taken in; mostly
    /// nothing has changed.
    fn look(&mut self, _sight: Sight) {}
}

#[derive(Debug)]
pub enum News {
    /// These are all objects of a resource, each with its version, at a version.
    Replaced { resource: Resource, objects: Vec<(Key, Body, u64)>, version: u64 },
    /// An object at a version, or its absence.
    Changed { resource: Resource, key: Key, body: Option<Body>, version: u64 },
    /// A resource is no longer served.
    Dropped(Resource),
    /// Which kinds are served in which versions, from here on.
    Served(Served),
    /// Everything of the resource up to this version has been told.
    Reached(Resource, u64),
    /// Everything up to this version has been told, whatever the resource.
    ReachedAll(u64),
    /// Everything that there was at the beginning has been told.
    Complete,
}

impl News {
    /// Whether it is about so much that to take it in takes long.
    pub fn is_heavy(&self) -> bool {
        matches!(self, News::Replaced { .. } | News::Complete)
    }

    /// Tells a driver.
    pub fn tell(self, driver: &mut Driver, now: Time) {
        match self {
            News::Replaced { resource, objects, version } => driver.replace(&resource, objects, version, now),
            News::Changed { resource, key, body, version } => driver.change(&resource, key, body, version, now),
            News::Dropped(resource) => driver.drop_resource(&resource, now),
            News::Served(served) => driver.serve(served),
            News::Reached(resource, version) => driver.reach(&resource, version),
            News::ReachedAll(version) => driver.reach_all(version),
            News::Complete => driver.complete(),
        }
    }
}
