//! Runs controllers and the scheduler. For controllers it passes news to a [`Driver`](holdfast_world::Driver), carries
//! out the plans that the driver makes, and writes the Events of these plans. [`scheduling`] does the same for the
//! scheduler.
//!
//! `holdfast_world`, which has no clock, decides which work is done and when. This crate adds tokio, the time, and two
//! traits: a [`Feed`] returns the changes of the cluster, and [`Act`] carries out actions. The API server's own process
//! implements them over its log and its service; every other process uses [`remote`].
//!
//! This crate never polls: as long as a cluster does not change, it does no work.

pub mod act;
mod cloud;
pub mod feed;
pub mod metrics;
mod own_thread;
pub mod rates;
mod recorder;
pub mod remote;
mod run;
pub mod scheduling;
mod slots;
mod writer;

pub use act::{Act, ActionDone, Charged};
pub use cloud::Cloud;
pub use feed::{Feed, News};
pub use holdfast_background::heavy;
pub use metrics::Metrics;
pub use own_thread::run_on_own_thread;
pub use rates::Rates;
pub use run::{Clock, Runtime, WallClock};
