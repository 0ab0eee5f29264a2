//! The source of the changes of a cluster, from which components learn the cluster's state.

use async_trait::async_trait;
use holdfast_core::object::Body;
use holdfast_world::{Driver, ExtraKinds, Key, Resource, Served, Time};

/// Reports the changes of a cluster, in order.
#[async_trait]
pub trait Feed: Send + 'static {
    /// The news since the last call. If there is no news, the function waits for it. The first news contains all
    /// existing objects, and ends with [`News::Complete`]. If a call is cancelled, no news is lost.
    async fn next(&mut self) -> Vec<News>;

    /// Sets which objects are reported in addition to the objects of the named resources. The caller calls this
    /// function after each batch of news; mostly the extra kinds have not changed since the last call.
    fn set_extra_kinds(&mut self, _extra_kinds: ExtraKinds) {}
}

#[derive(Debug)]
pub enum News {
    /// All objects of a resource at a version of the cluster. Each object also has its own version.
    Replaced { resource: Resource, objects: Vec<(Key, Body, u64)>, version: u64 },
    /// An object at a version; `body` is `None` if the object was deleted.
    Changed { resource: Resource, key: Key, body: Option<Body>, version: u64 },
    /// The server does not serve the resource any more.
    Dropped(Resource),
    /// The kinds that the server serves, each with its versions. This set replaces the set that was reported before.
    Served(Served),
    /// All changes of the resource up to this version were reported.
    Reached(Resource, u64),
    /// All changes up to this version were reported, whatever the resource.
    ReachedAll(u64),
    /// All objects that existed at the start were reported.
    Complete,
}

impl News {
    /// Whether applying this news may take long.
    pub fn is_heavy(&self) -> bool {
        matches!(self, News::Replaced { .. } | News::Complete)
    }

    /// Applies this news to a driver.
    pub fn apply_to(self, driver: &mut Driver, now: Time) {
        match self {
            News::Replaced { resource, objects, version } => driver.replace(&resource, objects, version, now),
            News::Changed { resource, key, body, version } => driver.apply(&resource, key, body, version, now),
            News::Dropped(resource) => driver.drop_resource(&resource, now),
            News::Served(served) => driver.set_served(served),
            News::Reached(resource, version) => driver.reach(&resource, version),
            News::ReachedAll(version) => driver.reach_all(version),
            News::Complete => driver.complete(),
        }
    }
}
