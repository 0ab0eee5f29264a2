//! Scores by how much of a node's resources would be allocated.

use crate::object::Text;
use crate::object::resources::{CPU, EPHEMERAL_STORAGE, MEMORY, Resources, is_scalar};
use crate::plugin::MAX_SCORE;
use crate::snapshot::node_info::NodeInfo;

/// A resource that counts, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weighted {
    pub name: Text,
    pub weight: i64,
}

/// Processors and memory, both alike.
pub fn usual_resources() -> Vec<Weighted> {
    [CPU, MEMORY].map(|name| Weighted { name: name.into(), weight: 1 }).into()
}

/// What a resource comes to on a node with the pod on it: what there is, and what would be asked for.
/// `None` where the resource does not count there.
pub fn share(name: &str, node: &NodeInfo, sums: &Resources, pod: i64) -> Option<(i64, i64)> {
    // Whatever else a node has a number of, like places for pods, does not count.
    let counts = if is_scalar(name) { pod != 0 } else { matches!(name, CPU | MEMORY | EPHEMERAL_STORAGE) };
    if !counts {
        return None;
    }
    let there = node.node.allocatable.get(name);
    (there != 0).then(|| (there, sums.get(name).saturating_add(pod)))
}

#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of a line: utilization in percent, and the score there, up to 100.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Strategy {
    pub fn score(&self, resources: &[Weighted], node: &NodeInfo, pod: &Resources) -> i64 {
        let (mut sum, mut weights) = (0i64, 0i64);
        for Weighted { name, weight } in resources {
            // Of processors and memory, pods that say nothing count as if they asked for what is usual.
            let sums = if matches!(&**name, CPU | MEMORY) { &node.held_scored } else { &node.held };
            let Some((there, asked)) = share(name, node, sums, pod.get(name)) else { continue };
            let score = self.of_resource(there, asked);
            if matches!(self, Strategy::RequestedToCapacityRatio(_)) && score <= 0 {
                continue;
            }
            sum = sum.saturating_add(score.saturating_mul(*weight));
            weights += weight;
        }
        match (self, weights) {
            (_, 0) => 0,
            (Strategy::RequestedToCapacityRatio(_), _) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }

    fn of_resource(&self, there: i64, asked: i64) -> i64 {
        let percent = |part: i64| percent(part, there);
        match self {
            Strategy::LeastAllocated if asked > there => 0,
            Strategy::LeastAllocated => percent(there.saturating_sub(asked)),
            Strategy::MostAllocated => percent(asked.min(there)),
            Strategy::RequestedToCapacityRatio(line) => on_line(line, if asked > there { 100 } else { percent(asked) }),
        }
    }
}

fn percent(part: i64, whole: i64) -> i64 {
    let percent = i128::from(part) * i128::from(MAX_SCORE) / i128::from(whole);
    i64::try_from(percent).unwrap_or(i64::MAX)
}

/// The score at a utilization: between two points on the line between them, beyond the ends as at the ends.
fn on_line(line: &[(i64, i64)], at: i64) -> i64 {
    let after = line.iter().position(|(x, _)| at <= *x);
    match after {
        None => line.last().map_or(0, |(_, y)| *y),
        Some(0) => line[0].1,
        Some(index) => {
            let ((x0, y0), (x1, y1)) = (line[index - 1], line[index]);
            y0 + (y1 - y0) * (at - x0) / (x1 - x0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_flat_beyond_its_ends() {
        let line = [(20, 30), (50, 100), (80, 0)];
        assert_eq!([0, 20, 35, 50, 65, 80, 100].map(|at| on_line(&line, at)), [30, 30, 65, 100, 50, 0, 0]);
    }

    #[test]
    fn only_what_pods_ask_of_nodes_counts() {
        use crate::snapshot::Snapshot;
        use holdfast_value::json;
        let mut snapshot = Snapshot::new();
        let there = json!({"cpu": "4", "pods": "9", "ephemeral-storage": "8", "example.com/a": "2"});
        let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": there}});
        snapshot.apply(crate::object::Kind::Node, &crate::object::Key::cluster("n"), Some(&node));
        let node = snapshot.node_named("n").unwrap();
        let share = |name: &str, pod: i64| share(name, node, &node.held, pod);
        assert_eq!(share("ephemeral-storage", 1), Some((8, 1)));
        assert_eq!(share(CPU, 0), Some((4000, 0)));
        assert_eq!([share("pods", 0), share("", 0), share("example.com/a", 0)], [None; 3]);
        assert_eq!(share("example.com/a", 1), Some((2, 1)));
    }

    #[test]
    fn percents_of_large_amounts_do_not_overflow() {
        assert_eq!(percent(i64::MAX, i64::MAX), 100);
    }
}
