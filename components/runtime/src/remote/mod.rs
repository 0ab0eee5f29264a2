//! Access to a cluster behind a remote API server, through the crate `kube`.

mod act;
mod discovery;
mod feed;
mod follow;
mod http;

pub use act::{Connect, RemoteAct};
pub use feed::RemoteFeed;
pub use http::{fault, refusal};
