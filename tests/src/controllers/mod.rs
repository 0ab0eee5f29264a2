//! Plays scenarios of controllers against a server, and compares the results with Kubernetes' results.
//!
//! Each scenario is a list of steps in a namespace of its own. After a while without changes, everything in the
//! namespace is compared: objects, Events, the order of changes, and the life of each object, which is a list of words
//! for its changes. Values that a server is free to choose (names, hashes, times, addresses) are replaced by
//! placeholders on both sides. The first line of the data describes the format of steps and placeholders.

mod cluster;
mod compare;
mod life;
mod names;
mod path;
mod play;
mod reduce;
mod resources;

pub use cluster::Cluster;
pub use compare::{Difference, compare};
pub use play::play;

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// A scenario with the results in Kubernetes.
#[derive(Deserialize)]
pub struct Scenario {
    pub id: String,
    pub controller: String,
    pub steps: Vec<Value>,
    pub seen: Value,
    /// Part, name and field of values that differed between recordings on one server.
    #[serde(default)]
    pub unstable: Vec<(String, String, String)>,
    /// The resources and changes whose order is compared.
    #[serde(default)]
    pub sequence: Option<BTreeMap<String, Vec<String>>>,
    /// Whether the default service account, kube-root-ca.crt and namespaces are compared, too.
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

/// A text of a document; empty if there is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
