//! Chooses the node of each pod like kube-scheduler. The crate is pure: it has no clock, thread or socket.
//!
//! A caller that builds a scheduler on this crate needs five things:
//! - [`Snapshot`]: all objects on which decisions depend. [`Snapshot::apply`] applies one changed object at a time
//!   (kinds and their resources: [`object::KINDS`]); each call returns a [`ClusterEvent`], which the caller passes to
//!   [`Queue::handle_event`].
//! - [`Configuration`]: read with [`Configuration::read`], which reports all errors at once; it has the profiles.
//! - [`Queue`]: chooses the next pod, by events, hints, gates and back-off.
//! - [`Planner::plan`], or the plain [`plan`]: returns a [`Plan`] for a pod, which names the node for the pod, or says
//!   why the pod cannot be scheduled and which pods must be evicted for it.
//! - [`Snapshot::assume`], after a decision to bind, and [`Snapshot::forget`], when the binding failed.
//!
//! [`Scheduler`] combines these: the caller passes changes, outcomes of requests and the time, and sends the requests
//! that the scheduler returns, until every pod that fits on a node is bound. The caller reads and writes objects, takes
//! part in the leader election, and passes the time.

pub mod clock;
pub mod configuration;
pub mod explain;
mod filters;
pub mod object;
pub mod plan;
pub mod planner;
pub mod planted;
pub mod plugin;
pub mod plugins;
pub mod profile;
pub mod queue;
pub mod scheduler;
pub mod snapshot;
pub mod status;

pub use clock::Clock;
pub use configuration::Configuration;
pub use object::{Key, Kind};
pub use plan::{Plan, PlanOutcome, plan};
pub use planner::Planner;
pub use profile::Profile;
pub use queue::Queue;
pub use scheduler::Scheduler;
pub use snapshot::{ClusterEvent, Snapshot};
