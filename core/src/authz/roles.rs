//! The rules of roles. They are stored once for each role, even if many bindings name it, and are indexed by their
//! grants.

use super::aggregation::RuleBlock;
use super::rule::{Part, PolicyRule};
use super::rule_index::RuleIndex;
use imbl::OrdMap;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// The maximum number of rules that are searched without an index, because an index would be no faster.
const RULES_WALKED: usize = 16;
/// The maximum number of texts in rules that are searched without an index.
const TEXTS_WALKED: usize = 256;

/// The rules of a role, from one document or aggregated from many.
#[derive(Debug, Default)]
pub struct Rules {
    blocks: Box<[RuleBlock]>,
    is_short: bool,
    /// The index, which is built on first use.
    index: OnceLock<RuleIndex>,
}

impl Rules {
    pub fn new(blocks: Vec<RuleBlock>) -> Rules {
        let rules = || blocks.iter().flat_map(|block| block.iter());
        let is_short = rules().take(RULES_WALKED + 1).count() <= RULES_WALKED
            && rules().flat_map(PolicyRule::texts).take(TEXTS_WALKED + 1).count() <= TEXTS_WALKED;
        Rules { blocks: blocks.into(), is_short, index: OnceLock::new() }
    }

    /// Whether these rules come from the same documents as `blocks`.
    pub fn is_of(&self, blocks: &[RuleBlock]) -> bool {
        self.blocks.len() == blocks.len() && self.blocks.iter().zip(blocks).all(|(own, other)| Arc::ptr_eq(own, other))
    }

    pub fn iter(&self) -> impl Iterator<Item = &PolicyRule> {
        self.blocks.iter().flat_map(|block| block.iter())
    }

    pub fn blocks(&self) -> &[RuleBlock] {
        &self.blocks
    }

    /// Aggregated rules without duplicates; a single document's rules unchanged.
    pub fn each_listed(&self) -> impl Iterator<Item = &PolicyRule> {
        let (is_gathered, mut seen) = (self.blocks.len() > 1, BTreeSet::new());
        self.iter().filter(move |rule| !is_gathered || seen.insert(*rule))
    }

    /// Whether a rule grants this part.
    pub fn grant(&self, part: &Part<'_>) -> bool {
        if self.is_short {
            return self.iter().any(|rule| rule.grants(part));
        }
        let index = self.index.get_or_init(|| RuleIndex::new(self.iter()));
        index.find(part, |number| self.numbered(number), |_| Ok(())).is_some()
    }

    fn numbered(&self, number: u32) -> &PolicyRule {
        let mut number = number as usize;
        for block in &self.blocks {
            match block.get(number) {
                Some(rule) => return rule,
                None => number -= block.len(),
            }
        }
        unreachable!("an index knows its own rules")
    }
}

/// The roles of a namespace or the cluster, by name and by their grants.
///
/// A write of a role re-indexes few roles. Roles are stored in segments, each at most half as large as the segment
/// before it. A written role goes into the last segment, and segments that are too large for their position are merged.
/// Segments may still contain older versions of roles; a look-up compares them with the current versions.
#[derive(Debug, Clone, Default)]
pub struct RoleSet {
    by_name: OrdMap<Arc<str>, Arc<Rules>>,
    segments: Vec<Arc<Segment>>,
}

#[derive(Debug, Default)]
struct Segment {
    roles: Vec<(Arc<str>, Arc<Rules>)>,
    /// The index, which is built on first use.
    index: OnceLock<SegmentIndex>,
}

#[derive(Debug)]
struct SegmentIndex {
    /// The number of each role's first rule.
    firsts: Vec<u32>,
    index: RuleIndex,
}

impl RoleSet {
    pub fn get(&self, name: &str) -> Option<&Arc<Rules>> {
        self.by_name.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub fn put(&mut self, name: &str, rules: Rules) {
        let (name, rules): (Arc<str>, _) = (name.into(), Arc::new(rules));
        self.by_name.insert(name.clone(), rules.clone());
        self.segments.push(Arc::new(Segment { roles: vec![(name, rules)], index: OnceLock::new() }));
        while let [.., one, last] = &self.segments[..]
            && one.roles.len() < 2 * last.roles.len()
        {
            let both = one.roles.iter().chain(&last.roles);
            let roles = both.filter(|(name, rules)| self.is_current(name, rules)).cloned().collect();
            self.segments.truncate(self.segments.len() - 2);
            self.segments.push(Arc::new(Segment { roles, index: OnceLock::new() }));
        }
    }

    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        let held: usize = self.segments.iter().map(|segment| segment.roles.len()).sum();
        if held > 2 * self.by_name.len() {
            let roles = self.by_name.iter().map(|(name, rules)| (name.clone(), rules.clone())).collect();
            self.segments = vec![Arc::new(Segment { roles, index: OnceLock::new() })];
        }
    }

    /// A role that grants this part and for which `wanted` is true.
    pub fn find(&self, part: &Part<'_>, mut wanted: impl FnMut(&str) -> bool) -> Option<&Arc<str>> {
        self.segments.iter().find_map(|segment| {
            segment.find(part, |(name, rules)| self.is_current(name, rules) && wanted(name)).map(|(name, _)| name)
        })
    }

    fn is_current(&self, name: &str, rules: &Arc<Rules>) -> bool {
        self.by_name.get(name).is_some_and(|current| Arc::ptr_eq(current, rules))
    }
}

impl Segment {
    fn find(
        &self,
        part: &Part<'_>,
        mut wanted: impl FnMut(&(Arc<str>, Arc<Rules>)) -> bool,
    ) -> Option<&(Arc<str>, Arc<Rules>)> {
        let SegmentIndex { firsts, index } = self.index.get_or_init(|| {
            let firsts = self.roles.iter().scan(0, |next: &mut u32, (_, rules)| {
                let first = *next;
                *next = first.saturating_add(u32::try_from(rules.iter().count()).unwrap_or(u32::MAX));
                Some(first)
            });
            let rules = self.roles.iter().flat_map(|(_, rules)| rules.iter());
            SegmentIndex { firsts: firsts.collect(), index: RuleIndex::new(rules) }
        });
        // The last role that begins at or before the rule. A role without rules begins at the same number as the next
        // role.
        let place = |number: u32| firsts.partition_point(|first| *first <= number).saturating_sub(1);
        let rule = |number: u32| {
            let place = place(number);
            self.roles[place].1.numbered(number - firsts[place])
        };
        let accept = |number: u32| {
            let place = place(number);
            match wanted(&self.roles[place]) {
                true => Ok(()),
                false => Err(firsts.get(place + 1).copied().unwrap_or(u32::MAX)),
            }
        };
        index.find(part, rule, accept).map(|number| &self.roles[place(number)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::rule;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn rules(verbs: &[&str]) -> Rules {
        Rules::new(vec![verbs.iter().map(|verb| rule(verb, "", "pods", "")).collect::<Vec<_>>().into()])
    }

    fn ask(verb: &str) -> Part<'_> {
        Part::Resource { verb, group: "", resource: "pods", subresource: None, name: Some("a") }
    }

    /// The number of roles that a look-up examines does not grow with the number of roles in the set.
    #[test]
    fn a_look_among_many_roles_costs_as_much_as_among_few() {
        let mut set = RoleSet::default();
        for number in 0..1_000 {
            set.put(&format!("r{number}"), rules(&[&format!("v{number}"), "get"]));
        }
        assert!(set.segments.len() <= 11, "{}", set.segments.len());
        let mut asked = 0;
        let found = set.find(&ask("v500"), |_| {
            asked += 1;
            true
        });
        assert_eq!((found.map(|name| &**name), asked), (Some("r500"), 1));
        // The segments do not collect old versions of a role that is written repeatedly.
        for _ in 0..5_000 {
            set.put("r1", rules(&["list"]));
        }
        let held: usize = set.segments.iter().map(|segment| segment.roles.len()).sum();
        assert!(held <= 2_100, "{held}");
        for number in 0..1_000 {
            set.remove(&format!("r{number}"));
        }
        assert!(set.is_empty() && set.segments.iter().all(|segment| segment.roles.is_empty()));
    }

    proptest! {
        #[test]
        fn a_set_knows_what_its_roles_are_now(
            writes in prop::collection::vec((0..6_usize, prop::option::of(prop::sample::subsequence(vec!["get", "list", "put"], 0..=3))), 0..60),
        ) {
            let mut set = RoleSet::default();
            let mut twin: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (number, verbs) in writes {
                let name = format!("r{number}");
                match verbs {
                    Some(verbs) => {
                        set.put(&name, rules(&verbs));
                        twin.insert(name, verbs);
                    }
                    None => {
                        set.remove(&name);
                        twin.remove(&name);
                    }
                }
                for verb in ["get", "list", "put"] {
                    let mut found = Vec::new();
                    set.find(&ask(verb), |name| {
                        found.push(name.to_owned());
                        false
                    });
                    found.sort();
                    let wanted: Vec<String> = twin.iter().filter(|(_, verbs)| verbs.contains(&verb)).map(|(name, _)| name.clone()).collect();
                    prop_assert_eq!(found, wanted);
                }
            }
        }
    }
}
