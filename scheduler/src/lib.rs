//! Chooses the node of each pod as kube-scheduler does. Pure: no clock, thread or socket.
//!
//! A caller that builds a scheduler on this crate needs five things:
//! - [`Snapshot`]: everything that decisions rest on. Feed it one object at a time with [`Snapshot::apply`] (kinds and
//!   their resources: [`object::KINDS`]); each call returns an [`Event`], which goes to [`Queue::event`].
//! - [`Configuration`]: read with [`Configuration::read`], which reports all errors at once; it has the profiles.
//! - [`Queue`]: which pod is next. It is told of pods, events and the time, and knows back-off, gates and hints.
//! - [`Planner::plan`], or the plain [`plan`]: a [`Plan`] for a pod: bind it, or why it cannot be scheduled and which
//!   pods must be evicted for it.
//! - [`Snapshot::assume`], after a decision to bind, and [`Snapshot::forget`], when the binding failed.
//!
//! [`Scheduler`] has these together: it is told of changes, answers and the time, and returns the requests to send to
//! other servers, until every pod that fits somewhere is bound. The caller reads and writes objects, takes part in the
//! leader election, and brings the time.

pub mod clock;
pub mod configuration;
pub mod explain;
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
pub use plan::{Outcome, Plan, plan};
pub use planner::Planner;
pub use profile::Profile;
pub use queue::Queue;
pub use scheduler::Scheduler;
pub use snapshot::{Event, Snapshot};
