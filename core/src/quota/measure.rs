//! Measures how much of each quota resource one object of a kind uses.

use super::{Selector, Usage};
use crate::schema::amount::Amount;
use holdfast_value::Value;

/// What quotas count for the objects of a kind in addition to `count/…`, and how.
#[derive(Debug)]
pub struct Measure {
    /// An older resource name that counts the objects, such as `secrets`.
    pub alias: Option<&'static str>,
    /// Whether objects of the kind use the quota resource with this name, in addition to `count/…`.
    pub answers: fn(&str) -> bool,
    /// Returns how much of each quota resource one object uses at a given time; `None` if quotas only count the
    /// objects.
    pub usage: Option<fn(&Value, &str) -> Usage>,
    /// Returns whether an object is within the scope that the selector names.
    pub within: fn(&Value, &Selector) -> bool,
    /// Returns the message for an object that lacks values which a quota on these resources requires; `None` if it
    /// lacks none.
    pub missing: fn(&Value, &[&str]) -> Option<String>,
    /// The subresources through which an update may raise the object's usage; "" stands for the object itself.
    pub grows_through: &'static [&'static str],
}

/// The measure of most kinds: quotas count the objects, and no scope selects them.
pub const NOTHING_BUT_ITS_NUMBER: Measure = Measure {
    alias: None,
    answers: |_| false,
    usage: None,
    within: |_, _| false,
    missing: |_, _| None,
    grows_through: &[],
};

/// A kind whose objects quotas count.
#[derive(Debug, Clone)]
pub struct Counted {
    name: std::borrow::Cow<'static, str>,
    group: std::borrow::Cow<'static, str>,
    pub measure: &'static Measure,
}

impl Measure {
    /// Whether quotas count only the number of the kind's objects, whatever the objects contain.
    pub fn is_number_alone(&self) -> bool {
        self.usage.is_none()
    }
}

impl Counted {
    pub const fn new(plural: &'static str, group: &'static str, measure: &'static Measure) -> Counted {
        Counted { name: std::borrow::Cow::Borrowed(plural), group: std::borrow::Cow::Borrowed(group), measure }
    }

    /// The kind with this plural name in this group; the name of the core group is empty.
    pub fn named(plural: &str, group: &str, measure: &'static Measure) -> Counted {
        Counted { name: plural.to_owned().into(), group: group.to_owned().into(), measure }
    }

    /// The resource name for the number of objects: `count/deployments.apps`.
    pub fn count_name(&self) -> String {
        match self.group.as_ref() {
            "" => format!("count/{}", self.name),
            group => format!("count/{}.{group}", self.name),
        }
    }

    /// Whether objects of this kind use the resource with this name.
    pub fn answers(&self, name: &str) -> bool {
        self.is_count(name) || self.measure.alias == Some(name) || (self.measure.answers)(name)
    }

    fn is_count(&self, name: &str) -> bool {
        let rest = name.strip_prefix("count/").and_then(|rest| rest.strip_prefix(self.name.as_ref()));
        rest.is_some_and(|rest| match self.group.as_ref() {
            "" => rest.is_empty(),
            group => rest.strip_prefix('.') == Some(group),
        })
    }

    pub fn usage(&self, object: &Value, now: &str) -> Usage {
        let mut usage = self.measure.usage.map_or_else(Usage::default, |usage| usage(object, now));
        usage.set(&self.count_name(), Amount::whole(1));
        if let Some(alias) = self.measure.alias {
            usage.set(alias, Amount::whole(1));
        }
        usage
    }
}
