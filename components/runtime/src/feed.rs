//! The source of a cluster's changes for components.

use async_trait::async_trait;
use holdfast_core::object::Body;
use holdfast_world::{Driver, ExtraKinds, Key, Resource, Served, Time};

/// Returns the changes of a cluster, in order.
#[async_trait]
pub trait Feed: Send + 'static {
    /// The news since the last call; waits until there is some. The first news are all existing objects, up to
    /// [`News::Complete`]. A call may be cancelled and repeated without losing news.
    async fn next(&mut self) -> Vec<News>;

    /// Sets which objects are reported in addition to the objects of the named resources. Called after each batch of
    /// news; mostly the extra kinds have not changed since the last call.
    fn set_extra_kinds(&mut self, _extra_kinds: ExtraKinds) {}
}

#[derive(Debug)]
pub enum News {
    /// All objects of a resource at a version, each with its own version.
    Replaced { resource: Resource, objects: Vec<(Key, Body, u64)>, version: u64 },
    /// An object at a version; `body` is `None` if the object was deleted.
    Changed { resource: Resource, key: Key, body: Option<Body>, version: u64 },
    /// A resource is no longer served.
    Dropped(Resource),
    /// The kinds that are served, and their versions. This set replaces the previous set.
    Served(Served),
    /// All changes of the resource up to this version were reported.
    Reached(Resource, u64),
    /// All changes up to this version were reported, whatever the resource.
    ReachedAll(u64),
    /// All objects that existed at the start were reported.
    Complete,
}

impl News {
    /// Whether applying this news takes long.
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
