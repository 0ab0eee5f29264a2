//! Which node a pod goes to, as Kubernetes decides it: pure, without clock, thread or socket.
//!
//! Who builds a scheduler on this crate needs five things:
//! - [`Snapshot`]: everything that decisions rest on. Feed it one object at a time with [`Snapshot::apply`]
//!   (kinds and their resources: [`object::KINDS`]); what it returns is an [`Event`], which goes to [`Queue::event`].
//! - [`Configuration`]: read with [`Configuration::read`], which tells all that is wrong at once; it has the profiles.
//! - [`Queue`]: which pod is next. It is told of pods, events and the time, and knows back-off, gates and hints.
//! - [`Planner::plan`], or the plain [`plan`]: a [`Plan`] for a pod: bind it, or why not, and who must go for it.
//! - [`Snapshot::assume`], after a decision to bind, and [`Snapshot::forget`], when it could not be carried out.
//!
//! [`Scheduler`] has these together: told of changes, answers and the time, it says what is to be asked of others, until
//! every pod lies somewhere that can. What is left to the caller: reading and writing objects, leader election, the time.

pub mod clock;
pub mod configuration;
mod duration;
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
