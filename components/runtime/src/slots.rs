//! Limits how many actions are carried out at the same time. The namespaces take turns for the slots.
//!
//! Actions at the same time slow each other down, because they share processors and the disk. While only one namespace
//! is active, it may have many slots. While other namespaces are active, too, each has few slots, so that the actions
//! of all namespaces are quick.

use crate::Rates;
use holdfast_world::Text;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How many slots a namespace may have while other namespaces are active. The number is enough for writes to share an
/// fsync.
const FEW: usize = 16;

/// The slots for actions at the same time. A namespace has at most as many slots as are free for all other namespaces
/// together, so that another namespace finds a free slot.
pub(crate) struct Slots {
    state: Mutex<SlotState>,
    /// Records which namespaces are active.
    rates: Arc<Rates>,
}

struct SlotState {
    free: usize,
    taken: HashMap<Text, usize>,
    /// The waiting actions of each namespace, oldest first. No queue in the map is empty.
    waiting: HashMap<Text, VecDeque<oneshot::Sender<Slot>>>,
    /// The namespaces with waiting actions, in the order of their turns.
    turns: VecDeque<Text>,
}

/// The right to carry out an action. The slot becomes free when this value is dropped.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    namespace: Text,
}

impl Slots {
    pub(crate) fn new(count: usize, rates: Arc<Rates>) -> Arc<Slots> {
        let state = Mutex::new(SlotState {
            free: count,
            taken: HashMap::new(),
            waiting: HashMap::new(),
            turns: VecDeque::new(),
        });
        Arc::new(Slots { state, rates })
    }

    /// Waits for a slot. If the returned future is dropped, the slot goes to another action.
    pub(crate) async fn take(self: &Arc<Slots>, namespace: &Text) -> Slot {
        self.rates.acts_for(namespace);
        let waiting = {
            let mut state = self.state();
            if !state.waits(namespace) && self.may_take(&state, namespace) {
                return self.slot(&mut state, namespace);
            }
            let (sender, waiting) = oneshot::channel();
            let line = state.waiting.entry(namespace.clone()).or_default();
            line.push_back(sender);
            if line.len() == 1 {
                state.turns.push_back(namespace.clone());
            }
            waiting
        };
        match waiting.await {
            Ok(slot) => slot,
            // This case does not occur, because the sender is in the queue as long as this future exists.
            Err(_) => std::future::pending().await,
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_take(&self, state: &SlotState, namespace: &Text) -> bool {
        let taken = state.taken.get(namespace).copied().unwrap_or(0);
        state.free > 0 && taken <= state.free && (taken < FEW || !self.rates.acts_for_others(namespace))
    }

    fn slot(self: &Arc<Slots>, state: &mut SlotState, namespace: &Text) -> Slot {
        state.free -= 1;
        *state.taken.entry(namespace.clone()).or_default() += 1;
        Slot { slots: self.clone(), namespace: namespace.clone() }
    }

    /// Gives free slots to waiting actions. Each namespace gets one slot in turn, and then the turns begin again.
    fn hand_out(self: &Arc<Slots>) {
        let mut given = Vec::new();
        {
            let mut state = self.state();
            let mut passed = 0;
            // The loop ends when no slot is free, so that it does not visit every waiting namespace.
            while state.free > 0 && passed < state.turns.len() {
                let Some(namespace) = state.turns.pop_front() else { break };
                let Some(mut line) = state.waiting.remove(&namespace) else { continue };
                passed += 1;
                if self.may_take(&state, &namespace) {
                    // If the receiver of a sender is gone, the action does not wait any more, and the sender is
                    // skipped.
                    while line.front().is_some_and(oneshot::Sender::is_closed) {
                        line.pop_front();
                    }
                    if let Some(waiting) = line.pop_front() {
                        given.push((waiting, self.slot(&mut state, &namespace)));
                    }
                    passed = 0;
                }
                if !line.is_empty() {
                    state.waiting.insert(namespace.clone(), line);
                    state.turns.push_back(namespace);
                }
            }
        }
        // If the receiver was dropped in the meantime, the slot is dropped here and goes to the next action.
        given.into_iter().for_each(|(waiting, slot)| drop(waiting.send(slot)));
    }
}

impl SlotState {
    fn waits(&self, namespace: &Text) -> bool {
        self.waiting.contains_key(namespace)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        {
            let mut state = self.slots.state();
            state.free += 1;
            if let Some(taken) = state.taken.get_mut(&self.namespace) {
                *taken -= 1;
                if *taken == 0 {
                    state.taken.remove(&self.namespace);
                }
            }
            if state.waiting.is_empty() {
                return;
            }
        }
        self.slots.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn now(slots: &Arc<Slots>, namespace: &str) -> Option<Slot> {
        slots.take(&namespace.into()).now_or_never()
    }

    #[tokio::test]
    async fn one_namespace_leaves_slots_for_others_and_they_take_turns() {
        let slots = Slots::new(9, Arc::default());
        let mut of_one: Vec<Slot> = (0..9).map_while(|_| now(&slots, "one")).collect();
        assert_eq!(of_one.len(), 5);
        let others: Vec<Slot> = ["a", "b", "c", "d"].iter().map_while(|name| now(&slots, name)).collect();
        assert_eq!(others.len(), 4);
        // Twenty actions of one namespace begin to wait, and then one action of another namespace.
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                tokio::spawn({
                    let slots = slots.clone();
                    async move { slots.take(&"one".into()).await }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        let other = tokio::spawn({
            let slots = slots.clone();
            async move { slots.take(&"other".into()).await }
        });
        tokio::task::yield_now().await;
        assert!(now(&slots, "e").is_none());
        of_one.pop();
        let other = other.await.expect("the first that is free is given to who has none");
        drop((other, of_one, others));
        for waits in waiting {
            drop(waits.await.expect("each has its turn"));
        }
        assert_eq!(slots.state().free, 9);
        assert!(slots.state().taken.is_empty() && slots.state().waiting.is_empty());
    }

    #[tokio::test]
    async fn who_waits_no_longer_keeps_no_slot() {
        let slots = Slots::new(1, Arc::default());
        let held = now(&slots, "a").expect("free");
        assert!(now(&slots, "a").is_none() && now(&slots, "b").is_none(), "both gave up");
        drop(held);
        assert!(now(&slots, "c").is_some());
    }

    #[tokio::test]
    async fn a_freed_slot_looks_at_no_more_lines_than_it_serves() {
        let slots = Slots::new(1, Arc::default());
        let held = now(&slots, "a").expect("free");
        let mut waiting: Vec<_> = (0..1000)
            .map(|number| {
                let slots = slots.clone();
                Box::pin(async move { slots.take(&number.to_string().as_str().into()).await })
            })
            .collect();
        for waits in &mut waiting {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let order = |slots: &Arc<Slots>| slots.state().turns.clone();
        let before = order(&slots);
        drop(held);
        // The first namespace in the order has got the free slot, and the other namespaces keep their order. If the
        // loop had visited another namespace, it would have moved that namespace to the end.
        assert_eq!(order(&slots), before.range(1..).cloned().collect::<VecDeque<_>>());
        let first = waiting[0].as_mut().now_or_never();
        assert!(first.is_some());
        assert_eq!(order(&slots).len(), 999);
        assert_eq!(slots.state().waiting.len(), 999);
    }

    #[tokio::test]
    async fn who_has_many_has_few_while_something_is_done_for_others() {
        let slots = Slots::new(400, Arc::default());
        let take = |namespace: &'static str, most: usize| -> Vec<Slot> {
            (0..most).map_while(|_| now(&slots, namespace)).collect()
        };
        let alone = take("one", 80);
        assert_eq!(alone.len(), 80);
        // Actions for the namespaces of the cluster's own components do not reduce the slots of other namespaces.
        let own = take("kube-node-lease", 40);
        assert_eq!((own.len(), take("one", 5).len()), (40, 5));
        let other = take("other", 1);
        assert_eq!((take("one", 1).len(), take("kube-node-lease", 10).len()), (0, 10));
        drop((alone, other));
        assert_eq!(take("one", 80).len(), FEW);
        assert_eq!(take("other", 80).len(), FEW);
    }
}
