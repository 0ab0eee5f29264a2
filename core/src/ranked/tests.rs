//! Compares [`RankedMap`] with `BTreeMap`. The nodes of the map are so narrow that a few keys make a deep tree.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Map = RankedMap<u16, u32, 4>;
type Twin = BTreeMap<u16, u32>;

#[derive(Debug, Clone)]
enum Step {
    Insert(u16, u32),
    /// Inserts as many keys as the second number says, in order, beginning with the first number.
    Append(u16, u8),
    Remove(u16),
    /// Removes as many keys as the second number says, in order, beginning with the first number.
    Clear(u16, u8),
    /// Keeps a clone of the map. Later operations on the map must not change the clone.
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..400_u16;
    prop_oneof![
        6 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Step::Insert(key, value)),
        1 => (key.clone(), any::<u8>()).prop_map(|(key, count)| Step::Append(key, count)),
        4 => key.clone().prop_map(Step::Remove),
        1 => (key, any::<u8>()).prop_map(|(key, count)| Step::Clear(key, count)),
        1 => Just(Step::Keep),
    ]
}

fn take(map: &mut Map, twin: &mut Twin, step: &Step) {
    match *step {
        Step::Insert(key, value) => assert_eq!(map.insert(key, value), twin.insert(key, value)),
        Step::Append(key, count) => {
            for key in key..key + u16::from(count) {
                assert_eq!(map.insert(key, 0), twin.insert(key, 0));
            }
        }
        Step::Remove(key) => assert_eq!(map.remove(&key), twin.remove(&key)),
        Step::Clear(key, count) => {
            for key in key..key + u16::from(count) {
                assert_eq!(map.remove(&key), twin.remove(&key));
            }
        }
        Step::Keep => {}
    }
}

fn check(map: &Map, twin: &Twin) {
    assert_eq!(map.len(), twin.len());
    assert!(map.iter().eq(twin.iter()));
    for point in (0..700).step_by(13) {
        assert_eq!(map.get(&point), twin.get(&point));
        assert_eq!(map.rank(|key| *key < point), twin.range(..point).count());
        assert!(map.iter_from(|key| *key < point).eq(twin.range(point..)));
    }
    sound(&map.root, true);
}

/// Checks the invariants that the comments on the types of the map state. Returns the depth, and the lowest and the
/// highest key.
fn sound(node: &Node<u16, u32, 4>, root: bool) -> (usize, Option<(u16, u16)>) {
    assert!(node.width() <= 4 && (root || node.width() > 0));
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|one, other| one.0 < other.0));
            (1, entries.first().zip(entries.last()).map(|(first, last)| (first.0, last.0)))
        }
        Node::Branch(children) => {
            assert!(!root || children.len() > 1);
            let below: Vec<_> = children.iter().map(|child| sound(&child.node, false)).collect();
            let depth = below[0].0;
            for (at, (child, (its_depth, ends))) in children.iter().zip(&below).enumerate() {
                let (first, last) = ends.expect("no child is empty");
                assert_eq!((*its_depth, child.count), (depth, child.node.count()));
                assert!(child.lowest <= first);
                assert!(children.get(at + 1).is_none_or(|next| last < next.lowest));
            }
            let ends = below.first().zip(below.last()).and_then(|(first, last)| Some((first.1?.0, last.1?.1)));
            (depth + 1, ends)
        }
    }
}

proptest! {
    #[test]
    fn it_is_the_map_that_it_says(steps in prop::collection::vec(step(), 0..120)) {
        let (mut map, mut twin) = (Map::new(), Twin::new());
        let mut kept = vec![(map.clone(), twin.clone())];
        for step in &steps {
            take(&mut map, &mut twin, step);
            if matches!(step, Step::Keep) {
                kept.push((map.clone(), twin.clone()));
            }
        }
        check(&map, &twin);
        for (map, twin) in kept {
            check(&map, &twin);
        }
    }
}

#[test]
fn keys_in_order_fill_their_nodes() {
    let map: Map = (0..256).map(|key| (key, 0)).collect();
    let (depth, ends) = sound(&map.root, true);
    assert_eq!((depth, ends), (4, Some((0, 255))), "4 to the 4 keys, and every node is full");
}

#[test]
fn a_key_that_is_not_there_copies_nothing() {
    let mut map: Map = (0..100).map(|key| (2 * key, 0)).collect();
    let before = map.clone();
    assert_eq!(map.remove(&7), None);
    assert!(Arc::ptr_eq(&map.root, &before.root));
}
