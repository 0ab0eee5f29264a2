//! Nodes, as controllers look at them.

use super::pod::Condition;
use crate::object::or_default;
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
#[serde(default)]
pub struct NodeSpec {
    pub unschedulable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub allocatable: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub conditions: Vec<Condition>,
}
