//! Annotates nodes with the number of seconds for which they may cache Secrets and ConfigMaps. The number grows with
//! the number of nodes.

use crate::subject::Subject;
use holdfast_world::views::Node;
use holdfast_world::{Change, Controller, Key, Keys, Plan, Resource, Stamp, View, World};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The seconds for each size of the cluster, from the first number of nodes to the second. The ranges of sizes overlap,
/// so that adding one node and removing it again does not change the annotations of all nodes twice.
const STEPS: [Sizes; 5] = [
    Sizes { from: 0, to: 100, seconds: "0" },
    Sizes { from: 90, to: 500, seconds: "15" },
    Sizes { from: 450, to: 1_000, seconds: "30" },
    Sizes { from: 900, to: 2_000, seconds: "60" },
    Sizes { from: 1_800, to: usize::MAX, seconds: "300" },
];

struct Sizes {
    from: usize,
    to: usize,
    seconds: &'static str,
}

/// Each plan is for one node.
#[derive(Default)]
pub struct NodeTtl {
    nodes: usize,
    step: usize,
}

impl Controller for NodeTtl {
    fn name(&self) -> &'static str {
        "ttl-controller"
    }

    fn queue(&self) -> &'static str {
        "ttlcontroller"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Node::resource().clone()]
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        match (&change.before, &change.after) {
            (None, Some(_)) => self.nodes += 1,
            (Some(_), None) => self.nodes = self.nodes.saturating_sub(1),
            _ => {}
        }
        let step = self.step;
        while self.nodes > STEPS[self.step].to {
            self.step += 1;
        }
        while self.nodes < STEPS[self.step].from {
            self.step -= 1;
        }
        if step == self.step {
            keys.add(change.key.clone());
        } else {
            world.all::<Node>().for_each(|node| keys.add(node.object.key()));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        let Some(node) = world.get::<Node>(key) else { return plan };
        let seconds = STEPS[self.step].seconds;
        if node.meta().annotation(ANNOTATION) != Some(seconds) {
            let patch = holdfast_value::json!({"metadata": {"annotations": {ANNOTATION: seconds}}});
            plan.then(Subject::from(node).strategic_patch(patch));
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;
    use holdfast_world::Trial;

    #[test]
    fn the_more_nodes_the_longer() {
        let mut trial = Trial::new().with(NodeTtl::default());
        let ttl = |trial: &Trial, node: usize| {
            trial.get("nodes", &format!("n{node:03}"))["metadata"]["annotations"][ANNOTATION]
                .as_str()
                .map(str::to_owned)
        };
        for node in 0..100 {
            trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{node:03}")}}));
        }
        trial.run();
        assert_eq!(ttl(&trial, 0).as_deref(), Some("0"));
        trial.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n100"}}));
        trial.run();
        assert_eq!(ttl(&trial, 0).as_deref(), Some("15"));
        (90..101).for_each(|node| trial.delete("nodes", &format!("n{node:03}")));
        trial.run();
        assert_eq!(ttl(&trial, 0).as_deref(), Some("15"), "90 nodes are not yet few enough");
        trial.delete("nodes", "n089");
        trial.run();
        assert_eq!(ttl(&trial, 0).as_deref(), Some("0"));
    }
}
