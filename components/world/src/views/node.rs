//! Views of Nodes.

use super::condition::Condition;
use crate::cloud::NodeAddress;
use crate::object::or_default;
use crate::{Interned, InternedList, Time};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

crate::resource!(Node, "", "v1", "nodes", "Node", cluster);

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pub pod_cidrs: Vec<String>,
    /// The provider ID of the node's machine in a cloud: `PROVIDER://…`.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    pub unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub time_added: Option<Time>,
}

impl Node {
    pub fn is_ready(&self) -> bool {
        Condition::find(&self.status.conditions, "Ready").is_some_and(|ready| ready.status == "True")
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub allocatable: Interned<BTreeMap<String, String>>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: InternedList<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub addresses: InternedList<NodeAddress>,
}
