//! Scenarios of controllers, played against a server beside what Kubernetes made of them.
//!
//! Each scenario is a list of steps in a namespace of its own; then, after a while without a change, everything in the
//! namespace is compared: objects, Events, the order of changes, and the life of each object. What a server is free to
//! choose (names, hashes, times, addresses) is replaced by placeholders on both sides. The first line of the data tells
//! the form of steps and placeholders.

mod cluster;
mod compare;
mod life;
mod names;
mod path;
mod play;
mod resources;

pub use cluster::Cluster;
pub use compare::{Difference, compare};
pub use play::play;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One scenario, and what Kubernetes made of it.
#[derive(Deserialize)]
pub struct Scenario {
    pub id: String,
    pub controller: String,
    pub steps: Vec<Value>,
    pub seen: Value,
    /// Part, name and field that differed between recordings on one server.
    #[serde(default)]
    pub unstable: Vec<(String, String, String)>,
    /// Which changes of which resources are compared in their order.
    #[serde(default)]
    pub sequence: Option<BTreeMap<String, Vec<String>>>,
    /// The default service account, kube-root-ca.crt and namespaces are compared, too.
    #[serde(default)]
    pub defaults: bool,
    #[serde(default)]
    pub observe: Vec<String>,
    #[serde(default)]
    pub nslabels: Value,
    #[serde(default = "quiet")]
    pub quiet: f64,
    #[serde(default)]
    pub seconds: u64,
}

fn quiet() -> f64 {
    2.5
}
