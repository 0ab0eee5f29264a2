//! Whose turn it is among namespaces: that of the one for which the least work was done.
//!
//! Each namespace has an account of work. A namespace that had nothing to do for a while starts with the account of the
//! namespace whose turn it is now: it is next, but cannot save up turns. All accounts end when no namespace has
//! anything to do.

use crate::Text;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Default)]
pub struct Turns {
    /// The members that have keys of a namespace, by the namespace's account and name.
    standing: BTreeMap<(u64, Text), BTreeSet<usize>>,
    /// The work done for each namespace; one without an entry has the account `now`.
    accounts: HashMap<Text, u64>,
    /// The account of the namespace that had the last turn.
    now: u64,
    /// At so many accounts, those that are not above `now` are dropped.
    most: usize,
}

impl Turns {
    fn account(&self, namespace: &str) -> u64 {
        self.accounts.get(namespace).copied().unwrap_or(0).max(self.now)
    }

    /// A member has keys of a namespace.
    pub fn stand(&mut self, namespace: Text, member: usize) {
        let place = match self.place_of(&namespace) {
            Some(place) => place,
            None => {
                let place = (self.account(&namespace), namespace.clone());
                self.accounts.insert(namespace, place.0);
                place
            }
        };
        self.standing.entry(place).or_default().insert(member);
    }

    /// A member has no more keys of a namespace.
    pub fn leave(&mut self, namespace: &Text, member: usize) {
        let Some(place) = self.place_of(namespace) else { return };
        if let Some(members) = self.standing.get_mut(&place) {
            members.remove(&member);
            if members.is_empty() {
                self.standing.remove(&place);
            }
        }
        // Once no namespace waits, no work needs to be made up for.
        if self.standing.is_empty() {
            self.accounts.clear();
            self.now = 0;
        }
    }

    /// The next namespace of those for which `may` allows it, and the first of its allowed members from `first` on.
    pub fn next(&mut self, first: usize, may: impl Fn(usize, &str) -> bool) -> Option<(Text, usize)> {
        let of = |((account, namespace), members): (&(u64, Text), &BTreeSet<usize>)| {
            let mut members = members.range(first..).chain(members.range(..first));
            let member = members.find(|member| may(**member, namespace))?;
            Some((*account, namespace.clone(), *member))
        };
        let (account, namespace, member) = self.standing.iter().find_map(of)?;
        self.now = self.now.max(account);
        Some((namespace, member))
    }

    /// Adds work to the account of a namespace.
    pub fn charge(&mut self, namespace: &Text, work: u64) {
        if self.standing.is_empty() {
            return;
        }
        let place = self.place_of(namespace);
        let account = self.account(namespace).saturating_add(work);
        if self.accounts.len() >= self.most {
            let (now, standing) = (self.now, &self.standing);
            self.accounts.retain(|of, account| *account > now || standing.contains_key(&(*account, of.clone())));
            self.most = 2 * self.accounts.len() + 64;
        }
        self.accounts.insert(namespace.clone(), account);
        if let Some(members) = place.and_then(|place| self.standing.remove(&place)) {
            self.standing.insert((account, namespace.clone()), members);
        }
    }

    /// The entry of a namespace in `standing`, if it has keys.
    fn place_of(&self, namespace: &Text) -> Option<(u64, Text)> {
        let place = (*self.accounts.get(namespace)?, namespace.clone());
        self.standing.contains_key(&place).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(turns: &mut Turns) -> Option<(String, usize)> {
        turns.next(0, |_, _| true).map(|(namespace, member)| (namespace.to_string(), member))
    }

    #[test]
    fn the_least_work_is_next_and_nobody_saves_up() {
        let mut turns = Turns::default();
        for namespace in ["a", "b"] {
            turns.stand(namespace.into(), 7);
        }
        let mut had = Vec::new();
        for _ in 0..6 {
            let (namespace, _) = next(&mut turns).expect("two stand");
            turns.charge(&namespace.as_str().into(), if namespace == "a" { 30 } else { 10 });
            had.push(namespace);
        }
        assert_eq!(had.concat(), "abbbab");
        turns.stand("c".into(), 7);
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
        let mut turns = Turns::default();
        turns.stand("a".into(), 1);
        turns.stand("b".into(), 1);
        turns.stand("b".into(), 3);
        let chosen = turns.next(2, |_, namespace| namespace != "a");
        assert_eq!(chosen, Some(("b".into(), 3)));
        assert_eq!(turns.next(2, |member, _| member == 1), Some(("a".into(), 1)));
        turns.leave(&"a".into(), 1);
        turns.leave(&"b".into(), 1);
        assert_eq!(next(&mut turns), Some(("b".to_owned(), 3)));
        turns.leave(&"b".into(), 3);
        assert_eq!(next(&mut turns), None);
        for number in 0..10_000 {
            let namespace: Text = format!("n{number}").into();
            turns.stand(namespace.clone(), 0);
            assert!(next(&mut turns).is_some());
            turns.charge(&namespace, 10);
            turns.leave(&namespace, 0);
        }
        assert!(turns.accounts.len() < 200, "{}", turns.accounts.len());
    }
}
