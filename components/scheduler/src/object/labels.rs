//! Labels: sorted pairs of shared strings.

use super::{StringPool, Text, entries, text};
use holdfast_value::Value;

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<(Text, Text)>);

impl Labels {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn decode(pool: &mut StringPool, value: &Value) -> Self {
        // The keys of a JSON object are unique and, in `serde_json`, sorted.
        let mut pairs: Vec<_> = entries(value).map(|(key, value)| (pool.text(key), pool.text(text(value)))).collect();
        pairs.sort_unstable();
        Labels(pairs)
    }

    pub fn get(&self, key: &str) -> Option<&Text> {
        self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok().map(|at| &self.0[at].1)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Text, &Text)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Whether `other` has all labels of this set, with equal values.
    pub fn is_subset_of(&self, other: &Labels) -> bool {
        self.0.iter().all(|(key, value)| other.get(key) == Some(value))
    }
}

impl FromIterator<(Text, Text)> for Labels {
    fn from_iter<I: IntoIterator<Item = (Text, Text)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort();
        pairs.dedup_by(|later, earlier| later.0 == earlier.0);
        Labels(pairs)
    }
}
