//! The state machine of Holdfast, pure: no I/O, clock, randomness, thread or log line.
//!
//! Start at [`pipeline`](mod@pipeline) (a request against a snapshot gives a decision or a refusal) and
//! [`apply`](mod@apply) (an accepted event folds into the state). Everything else serves these two:
//! `schema` is the one table of field types, `kinds` says what each kind is, `object` knows documents,
//! `merge` the patches, `select` the selectors, `authz` who may do what, `admission` what is changed or refused besides, `wire` what goes out.
//! [`etcd`] has the keys and values of a store that is shared with Kubernetes, [`flowcontrol`] says which requests go first, [`history`] tells what happened, for people, and [`visible`] has what
//! others wrote shown to them as text.

pub mod admission;
pub mod apiservices;
pub mod apply;
pub mod authz;
pub mod cel;
pub mod digest;
pub mod election;
pub mod etcd;
pub mod event;
pub mod expiry;
pub mod flowcontrol;
pub mod history;
pub mod kinds;
pub mod list;
pub mod merge;
pub mod namespace;
pub mod object;
pub mod pipeline;
pub mod presence;
pub mod quota;
mod ranked;
pub mod refusal;
pub mod request;
pub mod schema;
pub mod select;
pub mod stamp;
pub mod state;
pub mod visible;
pub mod wire;

pub use refusal::{Cause, CauseReason, Refusal};
