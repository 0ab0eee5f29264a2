//! The state machine of Holdfast. This crate is pure: it uses no I/O, clock, randomness, threads or logging.
//!
//! Start at [`pipeline`](mod@pipeline), which judges a request against a snapshot and returns a decision or a refusal,
//! and at [`apply`](mod@apply), which folds an accepted event into the state. The other modules serve these two:
//!
//! - `schema`: the table of field types; `kinds`: the definition of each kind; `object`: documents.
//! - `merge`: patches; `select`: label and field selectors.
//! - `authz`: permissions of users; `admission`: changes and refusals in addition to the rules of a kind.
//! - `wire`: every response body other than stored bytes.
//! - [`etcd`]: keys and values of a store shared with Kubernetes.
//! - [`flowcontrol`]: priority and fairness of requests.
//! - [`history`]: the log shown to people; [`visible`]: untrusted text made safe to show.

pub mod admission;
pub mod amends;
pub mod apiservices;
pub mod apply;
pub mod authz;
mod cached;
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
