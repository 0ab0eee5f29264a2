//! Combines the requirements of a long selector into one test for each key, so that each label is looked up once.

use super::requirement::{Operator, Requirement, find_label};

/// The requirements of a selector, combined into one test for each key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByKey {
    /// The tests of the labels, sorted by key.
    tests: Box<[Test]>,
    /// The number of keys that an object must have to match the selector.
    needed: usize,
}

/// The combined requirements on the labels with one key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Test {
    /// The index of the first requirement with this key.
    first: u32,
    needs: bool,
    forbids: bool,
    /// The values that the label may have, sorted; `None` if every value is allowed.
    among: Option<Box<[Place]>>,
    /// The values that the label must not have, sorted.
    except: Box<[Place]>,
    above: Option<i64>,
    below: Option<i64>,
}

/// Where a value is: the index of its requirement, and the index of the value in the requirement.
type Place = (u32, u32);

impl ByKey {
    /// Combines requirements, which must be sorted.
    pub fn new(requirements: &[Requirement]) -> ByKey {
        let mut tests = Vec::new();
        let mut first = 0;
        for of_key in requirements.chunk_by(|one, next| one.key == next.key) {
            tests.push(Test::new(requirements, first, of_key.len()));
            first += of_key.len();
        }
        ByKey { needed: tests.iter().filter(|test| test.needs).count(), tests: tests.into() }
    }

    pub fn match_by<'a>(&self, all: &[Requirement], label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.tests.iter().all(|test| test.holds(all, label(test.key(all))))
    }

    /// Whether labels match. `labels` must be sorted by key.
    pub fn match_sorted(&self, all: &[Requirement], labels: &[(Box<str>, Box<str>)]) -> bool {
        if self.needed > labels.len() {
            return false;
        }
        if self.tests.len() <= labels.len() {
            return self.match_by(all, |key| find_label(labels, key));
        }
        let mut needed = self.needed;
        labels.iter().all(|(key, value)| {
            let Ok(at) = self.tests.binary_search_by(|test| test.key(all).cmp(key)) else { return true };
            let test = &self.tests[at];
            needed -= usize::from(test.needs);
            test.holds(all, Some(value))
        }) && needed == 0
    }

    pub fn bytes(&self) -> usize {
        let places = |test: &Test| test.except.len() + test.among.as_ref().map_or(0, |among| among.len());
        self.tests.iter().map(|test| size_of::<Test>() + size_of::<Place>() * places(test)).sum()
    }
}

impl Test {
    /// The test for one key, which has `count` requirements that begin at index `first`.
    fn new(all: &[Requirement], first: usize, count: usize) -> Test {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let mut test = Test {
            first: number(first),
            needs: false,
            forbids: false,
            among: None,
            except: Box::default(),
            above: None,
            below: None,
        };
        let mut except = Vec::new();
        for (at, one) in all.iter().enumerate().skip(first).take(count) {
            let places = (0_u32..).take(one.values.len()).map(|value| (number(at), value));
            let limit = one.values.first().and_then(|value| value.parse::<i64>().ok());
            test.needs |= !matches!(one.operator, Operator::NotEquals | Operator::NotIn | Operator::DoesNotExist);
            match one.operator {
                Operator::Exists => {}
                Operator::DoesNotExist => test.forbids = true,
                Operator::Equals | Operator::In => {
                    test.among = Some(match test.among.take() {
                        None => places.collect(),
                        Some(known) => {
                            let both = known.iter().filter(|place| one.matches(Some(text(all, place))));
                            both.copied().collect()
                        }
                    });
                }
                Operator::NotEquals | Operator::NotIn => except.extend(places),
                Operator::GreaterThan => test.above = test.above.max(limit),
                Operator::LessThan => {
                    test.below = [test.below, limit].into_iter().flatten().min();
                }
            }
        }
        except.sort_unstable_by_key(|place| text(all, place));
        Test { except: except.into(), ..test }
    }

    fn key<'a>(&self, all: &'a [Requirement]) -> &'a str {
        &all[self.first as usize].key
    }

    fn holds(&self, all: &[Requirement], label: Option<&str>) -> bool {
        let Some(label) = label else { return !self.needs };
        let has = |places: &[Place]| places.binary_search_by(|place| text(all, place).cmp(label)).is_ok();
        let number = || label.parse::<i64>().ok();
        !self.forbids
            && self.among.as_ref().is_none_or(|among| has(among))
            && !has(&self.except)
            && self.above.is_none_or(|above| number().is_some_and(|number| number > above))
            && self.below.is_none_or(|below| number().is_some_and(|number| number < below))
    }
}

fn text<'a>(all: &'a [Requirement], place: &Place) -> &'a str {
    &all[place.0 as usize].values[place.1 as usize]
}

#[cfg(test)]
mod tests {
    use super::super::LabelSelector;
    use super::*;
    use std::cell::Cell;

    /// Ten thousand requirements of any kind need few look-ups for an object with few labels.
    #[test]
    fn a_label_is_looked_at_once() {
        let rows = [
            ("!k{}", true, 1),
            ("k{}", false, 1),
            ("a!=v{}", true, 1),
            ("a in (x,v{})", true, 1),
            ("a in (y,v{})", false, 1),
            ("a>{}", false, 1),
        ];
        for (pattern, expected, keys) in rows {
            let parts: Vec<String> = (0..10_000).map(|number| pattern.replace("{}", &number.to_string())).collect();
            let selector = LabelSelector::parse(&parts.join(",")).expect(pattern);
            let labels: [(Box<str>, Box<str>); 1] = [("a".into(), "x".into())];
            assert_eq!(selector.matches_sorted(&labels), expected, "{pattern}");
            let looks = Cell::new(0);
            let by_key = ByKey::new(selector.requirements());
            by_key.match_by(selector.requirements(), |_| {
                looks.set(looks.get() + 1);
                Some("x")
            });
            assert!(pattern.contains("k{}") || looks.get() == keys, "{pattern}: {}", looks.get());
            assert!(selector.looks(1) < 16);
        }
    }
}
