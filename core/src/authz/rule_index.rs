//! Finds rules by their grants, in constant time for any number and length of rules.

use super::rule::{Part, PolicyRule};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

/// A rule grants the product of its lists (verbs, groups, resources, names). If the product exceeds this many times the
/// rule's entries, the rule is indexed by its resources alone, so that an index is never much larger than its rules.
const PARTS_AN_ENTRY: usize = 4;
/// Rules with at most this many parts are indexed by each part.
const PARTS_MIN: usize = 64;

/// An index from granted parts to rules, by rule number.
#[derive(Debug, Default)]
pub struct RuleIndex {
    /// The entries, sorted.
    entries: Box<[Entry]>,
    /// The sorted lists of rules that are indexed only by resources.
    wide: BTreeMap<u32, Sorted>,
    /// The lengths of URL prefixes before a `*`, sorted, without duplicates.
    prefix_lengths: Box<[usize]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// A hash of the granted part. Hashes may collide, so the rule itself is checked too.
    key: u64,
    rule: u32,
    /// The number of the part in the rule.
    part: u32,
}

/// The kind of an entry is hashed into its key. An entry of this kind stands for one part that a rule grants on
/// resources.
const EXACT: u64 = 1;
/// An entry of a rule that is indexed by its resources alone.
const WIDE: u64 = 2;
/// An entry of a URL without `*`.
const PATH: u64 = 3;
/// An entry of a URL that ends with `*`.
const PREFIX: u64 = 4;
/// Stands for the name in the key of a rule without names.
const ANY_NAME: u64 = 5;

impl RuleIndex {
    /// Builds the index. The rules are numbered from 0 in their order.
    pub fn new<'a>(rules: impl Iterator<Item = &'a PolicyRule>) -> RuleIndex {
        let mut entries = Vec::new();
        let mut wide = BTreeMap::new();
        let mut prefix_lengths = Vec::new();
        for (rule, number) in rules.zip(0_u32..) {
            let mut add = |key: u64, part: usize| {
                entries.extend(u32::try_from(part).ok().map(|part| Entry { key, rule: number, part }));
            };
            for (place, url) in rule.non_resource_urls.iter().enumerate() {
                add(key_of_url(url), place);
                prefix_lengths.extend(prefix(url).map(str::len));
            }
            let sides = Sides::of(rule);
            if sides.product() <= PARTS_AN_ENTRY.saturating_mul(sides.sum()).max(PARTS_MIN) {
                each_part(rule, &sides, add);
            } else {
                for (place, resource) in rule.resources.iter().enumerate() {
                    add(mixed([WIDE, hash(&[resource])]), place);
                }
                wide.insert(number, Sorted::new(rule));
            }
        }
        entries.sort_unstable();
        prefix_lengths.sort_unstable();
        prefix_lengths.dedup();
        RuleIndex { entries: entries.into(), wide, prefix_lengths: prefix_lengths.into() }
    }

    /// A rule that grants `part` and that `accept` accepts. To reject a rule, `accept` returns the number of the next
    /// rule that it could accept. `rule` returns the rule with a given number.
    pub fn find<'r>(
        &self,
        part: &Part<'_>,
        rule: impl Fn(u32) -> &'r PolicyRule,
        mut accept: impl FnMut(u32) -> Result<(), u32>,
    ) -> Option<u32> {
        let mut looked = |key: u64, grants: &dyn Fn(&Entry, &PolicyRule) -> bool| {
            let mut at = self.entries.partition_point(|entry| entry.key < key);
            while let Some(entry) = self.entries.get(at).filter(|entry| entry.key == key) {
                at += 1;
                if grants(entry, rule(entry.rule)) {
                    match accept(entry.rule) {
                        Ok(()) => return Some(entry.rule),
                        Err(next) => {
                            at += self.entries[at..].partition_point(|entry| entry.key == key && entry.rule < next);
                        }
                    }
                }
            }
            None
        };
        match *part {
            Part::Path { verb, path } => {
                let has_verb = |rule: &PolicyRule| rule.has_verb(verb);
                let exact = |entry: &Entry, rule: &PolicyRule| url(entry, rule) == Some(path) && has_verb(rule);
                if let Some(found) = looked(mixed([PATH, hash(&[path])]), &exact) {
                    return Some(found);
                }
                let starred = |entry: &Entry, rule: &PolicyRule| {
                    let start = url(entry, rule).and_then(prefix);
                    start.is_some_and(|start| path.starts_with(start)) && has_verb(rule)
                };
                let mut starts = self.prefix_lengths.iter().map_while(|length| path.as_bytes().get(..*length));
                starts.find_map(|start| looked(mixed([PREFIX, hash_bytes(&[start])]), &starred))
            }
            Part::Resource { verb, group, resource, subresource, name } => {
                let resources = [
                    Some(hash(&["*"])),
                    Some(hash_resource(resource, subresource)),
                    subresource.map(|subresource| hash(&["*/", subresource])),
                ];
                let resources = resources.into_iter().flatten();
                let (verbs, groups) = ([hash(&["*"]), hash(&[verb])], [hash(&["*"]), hash(&[group])]);
                let names = [Some(ANY_NAME), name.map(|name| hash(&[name]))].into_iter().flatten();
                let exact = |entry: &Entry, rule: &PolicyRule| part_grants(rule, entry.part as usize, part);
                let in_lists = |entry: &Entry, rule: &PolicyRule| {
                    let own = rule.resources.get(entry.part as usize);
                    own.is_some_and(|own| part.is_resource(own))
                        && self.wide.get(&entry.rule).is_some_and(|lists| lists.grant(rule, verb, group, name))
                };
                for of_resource in resources {
                    for of_verb in verbs {
                        for of_group in groups {
                            for of_name in names.clone() {
                                let key = mixed([EXACT, of_verb, of_group, of_resource, of_name]);
                                if let Some(found) = looked(key, &exact) {
                                    return Some(found);
                                }
                            }
                        }
                    }
                    if !self.wide.is_empty()
                        && let Some(found) = looked(mixed([WIDE, of_resource]), &in_lists)
                    {
                        return Some(found);
                    }
                }
                None
            }
        }
    }
}

/// The lengths of a rule's lists. A rule without names counts as a rule with one name.
struct Sides {
    verbs: usize,
    groups: usize,
    resources: usize,
    names: usize,
}

impl Sides {
    fn of(rule: &PolicyRule) -> Sides {
        Sides {
            verbs: rule.verbs.len(),
            groups: rule.api_groups.len(),
            resources: rule.resources.len(),
            names: rule.resource_names.len().max(1),
        }
    }

    fn product(&self) -> usize {
        [self.verbs, self.groups, self.resources, self.names].into_iter().fold(1, usize::saturating_mul)
    }

    fn sum(&self) -> usize {
        self.verbs + self.groups + self.resources + self.names
    }
}

/// Calls `add` with the key of each part that a rule grants on resources.
fn each_part(rule: &PolicyRule, sides: &Sides, mut add: impl FnMut(u64, usize)) {
    let hashes = |list: &[String]| list.iter().map(|text| hash(&[text])).collect::<Vec<u64>>();
    let names = match rule.resource_names.is_empty() {
        true => vec![ANY_NAME],
        false => hashes(&rule.resource_names),
    };
    let (verbs, groups, resources) = (hashes(&rule.verbs), hashes(&rule.api_groups), hashes(&rule.resources));
    let mut part = 0;
    for verb in &verbs {
        for group in &groups {
            for resource in &resources {
                for name in &names {
                    add(mixed([EXACT, *verb, *group, *resource, *name]), part);
                    part += 1;
                }
            }
        }
    }
    debug_assert_eq!(part, sides.product());
}

/// Whether the part with this number, in the order of [`each_part`], grants `part`.
fn part_grants(rule: &PolicyRule, number: usize, part: &Part<'_>) -> bool {
    let Part::Resource { verb, group, name, .. } = *part else { return false };
    let sides = Sides::of(rule);
    let (rest, of_name) = (number / sides.names, number % sides.names);
    let (rest, of_resource) = (rest / sides.resources.max(1), rest % sides.resources.max(1));
    let (of_verb, of_group) = (rest / sides.groups.max(1), rest % sides.groups.max(1));
    let is =
        |list: &[String], place: usize, wanted: &str| list.get(place).is_some_and(|own| own == "*" || own == wanted);
    is(&rule.verbs, of_verb, verb)
        && is(&rule.api_groups, of_group, group)
        && rule.resources.get(of_resource).is_some_and(|own| part.is_resource(own))
        && match rule.resource_names.get(of_name) {
            Some(own) => name == Some(own),
            None => rule.resource_names.is_empty(),
        }
}

/// The indexes of the texts in a rule's lists, sorted by text.
#[derive(Debug)]
struct Sorted {
    verbs: Box<[u32]>,
    groups: Box<[u32]>,
    names: Box<[u32]>,
}

impl Sorted {
    fn new(rule: &PolicyRule) -> Sorted {
        let sorted = |list: &[String]| {
            let mut places: Box<[u32]> = (0_u32..).take(list.len()).collect();
            places.sort_unstable_by_key(|place| &list[*place as usize]);
            places
        };
        Sorted { verbs: sorted(&rule.verbs), groups: sorted(&rule.api_groups), names: sorted(&rule.resource_names) }
    }

    fn grant(&self, rule: &PolicyRule, verb: &str, group: &str, name: Option<&str>) -> bool {
        let has = |places: &[u32], list: &[String], text: &str| {
            places.binary_search_by(|place| list[*place as usize].as_str().cmp(text)).is_ok()
        };
        let has_or_all =
            |places: &[u32], list: &[String], text: &str| has(places, list, "*") || has(places, list, text);
        has_or_all(&self.verbs, &rule.verbs, verb)
            && has_or_all(&self.groups, &rule.api_groups, group)
            && (self.names.is_empty() || name.is_some_and(|name| has(&self.names, &rule.resource_names, name)))
    }
}

fn url<'r>(entry: &Entry, rule: &'r PolicyRule) -> Option<&'r str> {
    rule.non_resource_urls.get(entry.part as usize).map(String::as_str)
}

/// The part of a URL before its `*`; `None` without a `*`.
fn prefix(url: &str) -> Option<&str> {
    url.ends_with('*').then(|| url.trim_end_matches('*'))
}

fn key_of_url(url: &str) -> u64 {
    match prefix(url) {
        Some(start) => mixed([PREFIX, hash(&[start])]),
        None => mixed([PATH, hash(&[url])]),
    }
}

fn hash_resource(resource: &str, subresource: Option<&str>) -> u64 {
    match subresource {
        Some(subresource) => hash(&[resource, "/", subresource]),
        None => hash(&[resource]),
    }
}

/// The hash of the text that the pieces make together.
fn hash(pieces: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    pieces.iter().for_each(|piece| hasher.write(piece.as_bytes()));
    hasher.finish()
}

fn hash_bytes(pieces: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    pieces.iter().for_each(|piece| hasher.write(piece));
    hasher.finish()
}

fn mixed<const N: usize>(hashes: [u64; N]) -> u64 {
    hashes.iter().fold(0, |sum: u64, hash| (sum.rotate_left(29) ^ hash).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::{paths, rule};
    use super::*;
    use proptest::prelude::*;

    fn found(rules: &[PolicyRule], part: &Part<'_>) -> Option<u32> {
        RuleIndex::new(rules.iter()).find(part, |number| &rules[number as usize], |_| Ok(()))
    }

    #[test]
    fn no_index_is_much_larger_than_its_rules() {
        let many = |letter: char| (0..60).map(|number| format!("{letter}{number}")).collect::<Vec<_>>();
        let long = PolicyRule {
            verbs: many('v'),
            api_groups: many('g'),
            resources: many('r'),
            resource_names: many('n'),
            non_resource_urls: vec![],
        };
        let rules = [rule("get", "", "pods", ""), long, paths("get", "/a,/b*,/b/c*")];
        let index = RuleIndex::new(rules.iter());
        assert!(index.entries.len() <= 60 + 1 + 3, "{}", index.entries.len());
        let part = |verb, group, resource, name| Part::Resource { verb, group, resource, subresource: None, name };
        assert_eq!(found(&rules, &part("v59", "g0", "r30", Some("n7"))), Some(1));
        for part in [
            part("v60", "g0", "r30", Some("n7")),
            part("v59", "", "r30", Some("n7")),
            part("v59", "g0", "r30", Some("m")),
            part("v59", "g0", "r30", None),
        ] {
            assert_eq!(found(&rules, &part), None, "{part:?}");
        }
        assert_eq!(found(&rules, &Part::Path { verb: "get", path: "/b/c/d" }), Some(2));
        assert_eq!(found(&rules, &Part::Path { verb: "get", path: "/a/b" }), None);
    }

    #[test]
    fn whoever_takes_no_rule_of_a_role_is_asked_for_none_of_its_others() {
        let rules: Vec<PolicyRule> = (0..10_000).map(|_| rule("get", "", "pods", "")).collect();
        let index = RuleIndex::new(rules.iter());
        let mut asked = 0;
        let part = Part::Resource { verb: "get", group: "", resource: "pods", subresource: None, name: Some("a") };
        let taken = index.find(
            &part,
            |number| &rules[number as usize],
            |number| {
                asked += 1;
                if number < 9_000 { Err(9_000) } else { Ok(()) }
            },
        );
        assert_eq!((taken, asked), (Some(9_000), 2));
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_a_walk_finds(
            lists in prop::collection::vec(
                (
                    prop::sample::subsequence(vec!["get", "list", "*"], 0..=3),
                    prop::sample::subsequence(vec!["", "apps", "*"], 0..=3),
                    prop::sample::subsequence(vec!["pods", "pods/log", "*/log", "*", "pods/"], 0..=5),
                    prop::sample::subsequence(vec!["x", "y", ""], 0..=3),
                    prop::sample::subsequence(vec!["/a", "/a/*", "/*", "*", "/a**"], 0..=5),
                    0..3_usize,
                ),
                0..6,
            ),
        ) {
            let texts = |list: Vec<&str>, more: usize| {
                // The lists are long enough to be indexed only by resources.
                let padding = (0..more * 12).map(|number| format!("more{number}"));
                list.into_iter().map(str::to_owned).chain(padding).collect::<Vec<_>>()
            };
            let rules: Vec<PolicyRule> = lists
                .into_iter()
                .map(|(verbs, groups, resources, names, urls, more)| PolicyRule {
                    verbs: texts(verbs, more),
                    api_groups: texts(groups, more),
                    resources: texts(resources, more),
                    resource_names: texts(names, more),
                    non_resource_urls: texts(urls, 0),
                })
                .collect();
            let mut parts: Vec<Part> = ["/a", "/a/b", "/", "/a/*", "*"].map(|path| Part::Path { verb: "get", path }).into();
            for verb in ["get", "delete", "*"] {
                for group in ["", "apps", "batch", "*"] {
                    for (resource, subresource) in
                        [("pods", None), ("pods", Some("log")), ("jobs", Some("log")), ("*", None), ("*", Some("log")), ("pods", Some(""))]
                    {
                        for name in [None, Some("x"), Some("z"), Some("")] {
                            parts.push(Part::Resource { verb, group, resource, subresource, name });
                        }
                    }
                }
            }
            for part in parts {
                prop_assert_eq!(found(&rules, &part).is_some(), rules.iter().any(|rule| rule.grants(&part)), "{:?} {:?}", part, rules);
            }
        }
    }
}
