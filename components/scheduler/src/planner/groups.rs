//! Feasible nodes in groups. The plug-ins that look at more than one node have equal answers for all nodes of a group.
//!
//! A group is identified by its *marks*, the numbers by which these plug-ins distinguish nodes. Within a group the
//! nodes are sorted by the scores that depend on the node alone, so the best node of a group is its first node. So the
//! best of all nodes is the first node of one of the groups. Marks depend on a node's topology domains and on counts,
//! such as the number of matching pods in a domain. So the number of groups grows with the number of different domains
//! and counts, and not with the number of nodes.

use crate::snapshot::node_info::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct NodeGroups {
    groups: Vec<NodeGroup>,
    /// The numbers of groups that have no nodes, for reuse.
    free: Vec<usize>,
    by_marks: HashMap<Arc<[i64]>, usize>,
    /// For each feasible node, the number of its group, and the sum of the scores that depend on the node alone.
    members: Vec<Option<(usize, i64)>>,
}

pub(super) struct NodeGroup {
    pub marks: Arc<[i64]>,
    nodes: BTreeSet<(Reverse<i64>, NodeId)>,
}

impl NodeGroup {
    /// The highest score of a node in the group, and the first node that has this score.
    pub fn best(&self) -> Option<(i64, NodeId)> {
        self.nodes.first().map(|(Reverse(score), node)| (*score, *node))
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }
}

impl NodeGroups {
    /// The groups that have nodes.
    pub fn iter(&self) -> impl Iterator<Item = &NodeGroup> {
        self.groups.iter().filter(|group| !group.nodes.is_empty())
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.member(node).is_some()
    }

    /// The score and the marks of a node; `None` if the node is in no group.
    pub fn score_and_marks(&self, node: NodeId) -> Option<(i64, Arc<[i64]>)> {
        self.member(node).map(|(group, score)| (score, self.groups[group].marks.clone()))
    }

    fn member(&self, node: NodeId) -> Option<(usize, i64)> {
        self.members.get(node).copied().flatten()
    }

    pub fn put(&mut self, node: NodeId, score: i64, marks: &[i64]) {
        let group = match self.member(node) {
            Some((group, known)) if *self.groups[group].marks == *marks => {
                if known == score {
                    return;
                }
                self.groups[group].nodes.remove(&(Reverse(known), node));
                group
            }
            _ => {
                self.remove(node);
                self.group_with_marks(marks)
            }
        };
        if node >= self.members.len() {
            self.members.resize(node + 1, None);
        }
        self.members[node] = Some((group, score));
        self.groups[group].nodes.insert((Reverse(score), node));
    }

    pub fn remove(&mut self, node: NodeId) {
        let Some((number, score)) = self.members.get_mut(node).and_then(Option::take) else { return };
        let group = &mut self.groups[number];
        group.nodes.remove(&(Reverse(score), node));
        if group.nodes.is_empty() {
            self.by_marks.remove(&group.marks);
            self.free.push(number);
        }
    }

    /// The number of the group with these marks. If there is no such group, it is created.
    fn group_with_marks(&mut self, marks: &[i64]) -> usize {
        if let Some(number) = self.by_marks.get(marks) {
            return *number;
        }
        let marks: Arc<[i64]> = marks.into();
        let group = NodeGroup { marks: marks.clone(), nodes: BTreeSet::new() };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number] = group;
                number
            }
            None => {
                self.groups.push(group);
                self.groups.len() - 1
            }
        };
        self.by_marks.insert(marks, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(groups: &NodeGroups) -> Vec<(Vec<i64>, i64, NodeId, usize)> {
        let mut found: Vec<_> = groups
            .iter()
            .filter_map(|group| group.best().map(|(score, node)| (group.marks.to_vec(), score, node, group.len())))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn each_group_returns_its_first_best_node() {
        let mut groups = NodeGroups::default();
        groups.put(3, 7, &[1]);
        groups.put(2, 7, &[1]);
        groups.put(5, 9, &[2]);
        assert_eq!(firsts(&groups), [(vec![1], 7, 2, 2), (vec![2], 9, 5, 1)]);
        groups.put(3, 8, &[1]);
        assert_eq!(firsts(&groups), [(vec![1], 8, 3, 2), (vec![2], 9, 5, 1)]);
    }

    #[test]
    fn a_node_with_new_marks_changes_its_group() {
        let mut groups = NodeGroups::default();
        groups.put(0, 1, &[1]);
        groups.put(0, 1, &[2]);
        assert_eq!(firsts(&groups), [(vec![2], 1, 0, 1)]);
        groups.remove(0);
        assert!(firsts(&groups).is_empty() && !groups.contains(0));
        groups.put(4, 2, &[2]);
        assert_eq!(groups.score_and_marks(4), Some((2, [2].into())));
        assert_eq!(groups.groups.len(), 1, "the numbers of empty groups are used again");
    }
}
