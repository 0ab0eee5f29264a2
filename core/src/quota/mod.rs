//! Computes how much a namespace uses of the resources that ResourceQuotas limit.
//!
//! Each kind's [`Measure`] computes how much one of its objects uses. A [`Quota`] limits amounts by resource name, for
//! the objects within its scopes. The controller writes sums of [`Usage`] into a quota's status, and admission compares
//! new objects with them.

mod measure;
mod room;
mod scope;

pub use measure::{Counted, Measure, NOTHING_BUT_ITS_NUMBER};
pub use room::{BYTES, Room};
pub use scope::{Operator, Selector};

use crate::schema::amount::Amount;
use holdfast_value::{Map, Value};
use std::collections::BTreeMap;

/// Amounts by the name of the quota resource: `pods`, `requests.cpu`, `count/deployments.apps`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage(pub BTreeMap<String, Amount>);

/// The limits that one ResourceQuota sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quota {
    pub hard: Usage,
    pub selectors: Vec<Selector>,
}

impl Usage {
    /// Reads amounts from a document. Amounts that cannot be used in computations are skipped.
    pub fn of(amounts: &Value) -> Usage {
        let amounts = amounts.as_object().into_iter().flatten();
        Usage(amounts.filter_map(|(name, amount)| Some((name.to_string(), Amount::of(amount)?))).collect())
    }

    pub fn get(&self, name: &str) -> Option<Amount> {
        self.0.get(name).copied()
    }

    pub fn set(&mut self, name: &str, amount: Amount) {
        self.0.insert(name.to_owned(), amount);
    }

    pub fn add(&mut self, other: &Usage) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_insert(Amount::ZERO);
            *sum = sum.plus(*amount);
        }
    }

    pub fn subtract(&mut self, other: &Usage) {
        for (name, amount) in &other.0 {
            let rest = self.0.entry(name.clone()).or_insert(Amount::ZERO);
            *rest = rest.minus(*amount);
        }
    }

    /// Raises each amount to the amount that `other` has for the same name, if that amount is larger.
    pub fn raise(&mut self, other: &Usage) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_insert(*amount);
            *most = most.or_more(*amount);
        }
    }

    /// Retains only the amounts for whose names `keeps` is true.
    pub fn only(mut self, keeps: impl Fn(&str) -> bool) -> Usage {
        self.0.retain(|name, _| keeps(name));
        self
    }

    /// The amounts as a document, in the form of a ResourceQuota's `hard` and `used`.
    pub fn document(&self) -> Value {
        let amounts = self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into()));
        Value::Object(amounts.collect::<Map>())
    }
}

impl Quota {
    /// Reads the spec of a ResourceQuota.
    pub fn of(document: &Value) -> Quota {
        Quota { hard: Usage::of(&document["spec"]["hard"]), selectors: Selector::all(&document["spec"]) }
    }

    /// Whether the quota limits any resource that objects of this kind use.
    pub fn concerns(&self, counted: &Counted) -> bool {
        self.hard.0.keys().any(|name| counted.answers(name))
    }

    /// Whether an object is within all scopes of the quota.
    pub fn covers(&self, counted: &Counted, object: &Value) -> bool {
        self.selectors.iter().all(|selector| (counted.measure.within)(object, selector))
    }

    /// How much of the limited resources an object uses at the time `now` (`2026-11-22T17:00:00Z`). If the quota does
    /// not cover the object, it uses nothing.
    pub fn usage(&self, counted: &Counted, object: &Value, now: &str) -> Usage {
        if !self.concerns(counted) || !self.covers(counted, object) {
            return Usage::default();
        }
        let mut usage = counted.usage(object, now).only(|name| self.hard.0.contains_key(name));
        usage.0.values_mut().for_each(|amount| *amount = amount.countable());
        usage
    }

    /// The limited resource names that objects of these kinds may use, each with an amount of zero.
    pub fn unused<'a>(&self, kinds: impl Iterator<Item = &'a Counted> + Clone) -> Usage {
        let counts = |name: &&String| kinds.clone().any(|counted| counted.answers(name));
        Usage(self.hard.0.keys().filter(counts).map(|name| (name.clone(), Amount::ZERO)).collect())
    }

    /// The resource names of which more is used than the limit allows.
    pub fn exceeded<'a>(&'a self, used: &'a Usage) -> impl Iterator<Item = &'a str> {
        let over = move |(name, limit): (&'a String, &Amount)| {
            used.get(name).is_some_and(|used| used > *limit).then_some(name.as_str())
        };
        self.hard.0.iter().filter_map(over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::json;

    const DEPLOYMENTS: Counted = Counted::new("deployments", "apps", &NOTHING_BUT_ITS_NUMBER);

    #[test]
    fn an_object_of_any_kind_counts_as_one() {
        let quota = Quota::of(&json!({"spec": {"hard": {"count/deployments.apps": "2", "pods": "1"}}}));
        assert!(quota.concerns(&DEPLOYMENTS));
        let usage = quota.usage(&DEPLOYMENTS, &json!({}), "");
        assert_eq!(usage.document(), json!({"count/deployments.apps": "1"}));
        assert_eq!(quota.unused([DEPLOYMENTS].iter()).document(), json!({"count/deployments.apps": "0"}));
    }

    #[test]
    fn a_scope_that_a_kind_knows_nothing_of_covers_none_of_its_objects() {
        let quota = json!({"spec": {"hard": {"count/deployments.apps": "2"}, "scopes": ["BestEffort"]}});
        assert_eq!(Quota::of(&quota).usage(&DEPLOYMENTS, &json!({}), ""), Usage::default());
    }

    #[test]
    fn what_is_beyond_the_limit() {
        let quota = Quota::of(&json!({"spec": {"hard": {"a": "1Gi", "b": "1", "c": "1"}}}));
        let used = Usage::of(&json!({"a": "1025Mi", "b": "1000m", "d": "5"}));
        assert_eq!(quota.exceeded(&used).collect::<Vec<_>>(), ["a"]);
    }
}
