//! The objects of a cluster that components see, and the actions of components on the cluster.
//!
//! A component has a [`World`], which contains the objects that the component needs, with indexes by owner, namespace
//! and node. Each object has a small typed [`View`], its metadata and its bytes. A [`Controller`] is notified of every
//! change, returns the keys that the change concerns, and plans one key at a time. A [`Plan`] is data: actions, Events
//! for people, and the time at which to plan again. No part of this crate has a clock or a socket; the caller of a
//! controller provides them. Threads are used only to decode long first lists, and no result depends on the number of
//! threads.

pub mod cloud;
pub mod controller;
pub mod driver;
pub mod fair_queue;
pub mod interned;
pub mod object;
pub mod plan;
pub mod queue;
pub mod request;
pub mod resource;
pub mod selector;
pub mod time;
pub mod trial;
pub mod view;
pub mod views;
pub mod work;
pub mod world;

pub use controller::{Controller, ExtraKinds, Keys, Stamp};
pub use driver::{ActionResult, BackgroundPlan, Driver, FinishedPlan, NextPlan, Task, TaskOutcome, WriteResult};
pub use fair_queue::FairQueue;
pub use interned::{Interned, InternedList};
pub use object::{Key, Meta, Object, OwnerReference, Text};
pub use plan::{Action, ParallelActions, Plan, PlannedEvent, Propagation, Refusal, Refused, StatusUpdate, Verb};
pub use queue::{BackOff, WorkQueue};
pub use request::Actor;
pub use resource::Resource;
pub use selector::Selector;
pub use time::Time;
pub use trial::Trial;
pub use view::{View, Viewed};
pub use world::{Change, Served, World};
