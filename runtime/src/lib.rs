//! Runs controllers and the scheduler. Controllers: it hands news to a [`Driver`](holdfast_world::Driver), has its plans
//! carried out, and writes the Events that they tell. [`scheduling`] does the same for the scheduler, which plans for
//! itself.
//!
//! What is to be done and when is decided in `holdfast_world`, which knows no clock. Here are tokio, the time, and two
//! traits: a [`Feed`] brings news of the cluster, [`Act`] carries out actions. A server in the same process has them over
//! its own log and its own door; anywhere else they are [`remote`].
//!
//! Nothing here asks again and again whether there is something to do: a cluster in which nothing happens costs nothing.

pub mod act;
mod apart;
mod cloud;
pub mod feed;
pub mod metrics;
pub mod rates;
mod recorder;
pub mod remote;
mod run;
pub mod scheduling;
mod slots;
mod writer;

pub use act::{Act, Charged, Done};
pub use apart::apart;
pub use cloud::Cloud;
pub use feed::{Feed, News};
pub use holdfast_background::heavy;
pub use metrics::Metrics;
pub use rates::Rates;
pub use run::{Clock, Runtime, System};
