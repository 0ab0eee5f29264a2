//! The nodes to which balancers send traffic. All balancers have the same nodes.
//!
//! A node is added when it is ready, and stays when it becomes unready: the balancer's own health checks notice an
//! unready node sooner. A node is removed when a label excludes it, when it is about to be deleted, or when it is gone.

use holdfast_world::cloud::{Host, NodeRef};
use holdfast_world::views::Node;
use holdfast_world::{Change, Key, Viewed};
use std::collections::BTreeMap;
use std::sync::Arc;

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";
const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Default)]
pub struct Hosts {
    joined: BTreeMap<Key, Host>,
    /// All hosts; `None` if a node has changed and the hosts were not computed since.
    all: Option<Arc<[Host]>>,
}

impl Hosts {
    /// Applies a change of a node. Returns whether the hosts of balancers must be updated.
    pub fn apply(&mut self, change: &Change) -> bool {
        let known = self.joined.get(&change.key);
        let host = change.after::<Node>().filter(|node| {
            let same = known.is_some_and(|known| known.node.provider_id == node.spec.provider_id);
            is_eligible(*node) && (node.is_ready() || same)
        });
        let host = host.map(host_of);
        if known == host.as_ref() {
            return false;
        }
        match host {
            Some(host) => _ = self.joined.insert(change.key.clone(), host),
            None => _ = self.joined.remove(&change.key),
        }
        self.all = None;
        true
    }

    /// All hosts, sorted by name.
    pub fn all(&mut self) -> Arc<[Host]> {
        self.all.get_or_insert_with(|| self.joined.values().cloned().collect()).clone()
    }
}

fn is_eligible(node: Viewed<'_, Node>) -> bool {
    let excluded = node.meta().label(EXCLUDED).is_some_and(|value| value != "false");
    let leaves = node.view.spec.taints.iter().any(|taint| taint.key == TO_BE_DELETED);
    !(excluded || leaves || node.meta().is_deleting())
}

fn host_of(node: Viewed<'_, Node>) -> Host {
    Host {
        node: NodeRef { name: node.meta().name.clone(), provider_id: node.view.spec.provider_id.clone() },
        zone: node.meta().label(ZONE).unwrap_or_default().to_owned(),
        addresses: node.view.status.addresses.to_vec(),
    }
}
