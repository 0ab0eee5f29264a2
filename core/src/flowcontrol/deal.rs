//! Shuffle sharding: each flow gets a hand of a level's queues, and two flows rarely get the same hand.
//!
//! A flow that fills its queues therefore fills few queues of any other flow. A hash of the flow determines its hand,
//! so that nothing is stored per flow.

use sha2::{Digest, Sha256};

/// An upper bound for `handSize`. Validation requires that queues^handSize fits into 60 bits and that handSize is at
/// most the number of queues, so a valid hand has at most 15 queues.
const HAND_MAX: usize = 16;

/// Identifies a flow within its level: the hash of schema name and distinguisher.
pub fn flow(schema: &str, distinguisher: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(schema);
    hash.update([0]);
    hash.update(distinguisher);
    let digest = hash.finalize();
    digest[..8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The queues of a flow; each queue occurs once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hand {
    queues: [u32; HAND_MAX],
    size: usize,
}

impl Hand {
    /// Deals a hand of `size` queues out of `deck` queues.
    pub fn deal(flow: u64, deck: u32, size: u32) -> Hand {
        let size = size.clamp(1, deck.max(1)) as usize;
        let mut hand = Hand { queues: [0; HAND_MAX], size: size.min(HAND_MAX) };
        // The queues dealt so far, in ascending order.
        let mut dealt = [0; HAND_MAX];
        let mut rest = flow;
        for place in 0..hand.size {
            let left = u64::from(deck.max(1)) - place as u64;
            // The index of the next queue among the queues that are not dealt yet.
            let mut card = (rest % left) as u32;
            rest /= left;
            let mut before = 0;
            while before < place && card >= dealt[before] {
                card += 1;
                before += 1;
            }
            dealt.copy_within(before..place, before + 1);
            dealt[before] = card;
            hand.queues[place] = card;
        }
        hand
    }

    pub fn queues(&self) -> &[u32] {
        &self.queues[..self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares with a simple implementation, which removes queues from a list one after another.
        #[test]
        fn hands_are_dealt_from_a_deck(seed: u64, deck in 1_u32..200, size in 1_u32..12) {
            let hand = Hand::deal(seed, deck, size);
            let mut cards: Vec<u32> = (0..deck).collect();
            let mut rest = seed;
            let mut expected = Vec::new();
            for _ in 0..size.min(deck) {
                let left = cards.len() as u64;
                expected.push(cards.remove((rest % left) as usize));
                rest /= left;
            }
            prop_assert_eq!(hand.queues(), &expected[..]);
        }
    }

    #[test]
    fn flows_seldom_share_a_hand() {
        let hand = |name: usize| -> BTreeSet<u32> {
            Hand::deal(flow("service-accounts", &format!("user-{name}")), 128, 6).queues().iter().copied().collect()
        };
        let first = hand(0);
        assert_eq!(first.len(), 6);
        assert_eq!((1..2000).filter(|name| hand(*name) == first).count(), 0);
        // The hands of 2000 flows contain every queue of the level.
        assert_eq!((0..2000).flat_map(hand).collect::<BTreeSet<u32>>().len(), 128);
    }

    #[test]
    fn the_schema_is_part_of_the_flow() {
        assert_ne!(flow("a", "b"), flow("b", "a"));
        assert_ne!(flow("ab", ""), flow("a", "b"));
    }

    #[test]
    fn odd_decks() {
        assert_eq!(Hand::deal(7, 0, 0).queues(), [0]);
        assert_eq!(Hand::deal(7, 1, 9).queues(), [0]);
        assert_eq!(Hand::deal(u64::MAX, u32::MAX, 100).queues().len(), HAND_MAX);
    }
}
