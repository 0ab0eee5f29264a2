//! Chooses the namespace that has the next turn: the namespace for which the least work was done.
//!
//! Each namespace has an account, which is the sum of the work done for it. If a namespace had no keys for a while, its
//! account is raised to at least the account of the namespace that had the last turn. So the namespace gets a turn
//! soon, but cannot save up turns. When no namespace has keys, all accounts are deleted.

use crate::Text;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub struct FairQueue {
    /// The controllers that have keys of a namespace, by the namespace's account and name.
    waiting: BTreeMap<(u64, Text), BTreeSet<usize>>,
    /// The sum of the work done for each namespace. A namespace that is not in the map has the account `now`.
    accounts: HashMap<Text, u64>,
    /// The account of the namespace that had the last turn.
    now: u64,
    /// If there are this many accounts, the accounts that are not above `now` are dropped.
    sweep_at: usize,
}

impl FairQueue {
    fn account(&self, namespace: &str) -> u64 {
        self.accounts.get(namespace).copied().unwrap_or(0).max(self.now)
    }

    /// Registers that a controller has keys of a namespace.
    pub fn join(&mut self, namespace: Text, controller: usize) {
        let entry = match self.entry_of(&namespace) {
            Some(entry) => entry,
            None => {
                let entry = (self.account(&namespace), namespace.clone());
                self.accounts.insert(namespace, entry.0);
                entry
            }
        };
        self.waiting.entry(entry).or_default().insert(controller);
    }

    /// Registers that a controller has no more keys of a namespace.
    pub fn leave(&mut self, namespace: &Text, controller: usize) {
        let Some(entry) = self.entry_of(namespace) else { return };
        if let Some(controllers) = self.waiting.get_mut(&entry) {
            controllers.remove(&controller);
            if controllers.is_empty() {
                self.waiting.remove(&entry);
            }
        }
        // When no namespace waits, all accounts are deleted, so that all namespaces are equal again.
        if self.waiting.is_empty() {
            self.accounts.clear();
            self.now = 0;
        }
    }

    /// The next namespace that has a controller which `may` allows, and the first of its allowed controllers. The
    /// controllers are tried in the order of their indexes from `first` on, and then from 0.
    pub fn next(&mut self, first: usize, may: impl Fn(usize, &str) -> bool) -> Option<(Text, usize)> {
        let of = |((account, namespace), controllers): (&(u64, Text), &BTreeSet<usize>)| {
            let mut controllers = controllers.range(first..).chain(controllers.range(..first));
            let controller = controllers.find(|controller| may(**controller, namespace))?;
            Some((*account, namespace.clone(), *controller))
        };
        let (account, namespace, controller) = self.waiting.iter().find_map(of)?;
        self.now = self.now.max(account);
        Some((namespace, controller))
    }

    /// Adds work to the account of a namespace.
    pub fn charge(&mut self, namespace: &Text, work: u64) {
        if self.waiting.is_empty() {
            return;
        }
        let entry = self.entry_of(namespace);
        let account = self.account(namespace).saturating_add(work);
        if self.accounts.len() >= self.sweep_at {
            let (now, waiting) = (self.now, &self.waiting);
            self.accounts.retain(|of, account| *account > now || waiting.contains_key(&(*account, of.clone())));
            self.sweep_at = 2 * self.accounts.len() + 64;
        }
        self.accounts.insert(namespace.clone(), account);
        if let Some(controllers) = entry.and_then(|entry| self.waiting.remove(&entry)) {
            self.waiting.insert((account, namespace.clone()), controllers);
        }
    }

    /// The entry of a namespace in `waiting`; `None` if the namespace has no waiting keys.
    fn entry_of(&self, namespace: &Text) -> Option<(u64, Text)> {
        let entry = (*self.accounts.get(namespace)?, namespace.clone());
        self.waiting.contains_key(&entry).then_some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(turns: &mut FairQueue) -> Option<(String, usize)> {
        turns.next(0, |_, _| true).map(|(namespace, controller)| (namespace.to_string(), controller))
    }

    #[test]
    fn the_least_work_is_next_and_nobody_saves_up() {
        let mut turns = FairQueue::default();
        for namespace in ["a", "b"] {
            turns.join(namespace.into(), 7);
        }
        let mut had = Vec::new();
        for _ in 0..6 {
            let (namespace, _) = next(&mut turns).expect("two stand");
            turns.charge(&namespace.as_str().into(), if namespace == "a" { 30 } else { 10 });
            had.push(namespace);
        }
        assert_eq!(had.concat(), "abbbab");
        turns.join("c".into(), 7);
        let mut had = Vec::new();
        for _ in 0..4 {
            let (namespace, _) = next(&mut turns).expect("three stand");
            turns.charge(&namespace.as_str().into(), 10);
            had.push(namespace);
        }
        assert!(had.iter().filter(|namespace| *namespace == "c").count() <= 2, "{had:?}");
    }

    #[test]
    fn who_may_not_is_passed_over_and_who_left_is_forgotten() {
        let mut turns = FairQueue::default();
        turns.join("a".into(), 1);
        turns.join("b".into(), 1);
        turns.join("b".into(), 3);
        let chosen = turns.next(2, |_, namespace| namespace != "a");
        assert_eq!(chosen, Some(("b".into(), 3)));
        assert_eq!(turns.next(2, |controller, _| controller == 1), Some(("a".into(), 1)));
        turns.leave(&"a".into(), 1);
        turns.leave(&"b".into(), 1);
        assert_eq!(next(&mut turns), Some(("b".to_owned(), 3)));
        turns.leave(&"b".into(), 3);
        assert_eq!(next(&mut turns), None);
        for number in 0..10_000 {
            let namespace: Text = format!("n{number}").into();
            turns.join(namespace.clone(), 0);
            assert!(next(&mut turns).is_some());
            turns.charge(&namespace, 10);
            turns.leave(&namespace, 0);
        }
        assert!(turns.accounts.len() < 200, "{}", turns.accounts.len());
    }
}
