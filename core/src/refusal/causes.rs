//! Lists of causes, and of texts, that end where nobody reads on, and say how many more there are.

use super::cause::{Cause, MESSAGE_BYTES_MAX};
use super::cut::{cut, json_bytes};
use std::ops::{Deref, DerefMut};

/// How many causes are told of.
const TOLD_MAX: usize = 100;
/// How many bytes all of them may take in an answer, which has each twice.
const TOLD_BYTES_MAX: usize = 20 << 10;

/// The causes of a refusal: the first hundred, or the first 20 KiB of them, and how many more there are.
///
/// A body of three megabytes can break a rule a million times. What is not told of is not made: a cause that is pushed
/// as something that it can be made of costs nothing beyond the bound.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Causes {
    told: Vec<Cause>,
    bytes: usize,
    more: usize,
}

impl Causes {
    pub fn push(&mut self, cause: impl Into<Cause>) {
        self.push_with(|| cause);
    }

    /// The same for a cause that takes work to make.
    pub fn push_with<C: Into<Cause>>(&mut self, cause: impl FnOnce() -> C) {
        if !self.has_room() {
            self.more += 1;
            return;
        }
        let cause = cause().into();
        self.bytes += cause.size();
        self.told.push(cause);
    }

    /// Tells of these after its own.
    pub fn append(&mut self, others: Causes) {
        self.extend(others.told);
        self.more += others.more;
    }

    /// How many there are, with those that are not told of.
    pub fn len(&self) -> usize {
        self.told.len() + self.more
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are not told of.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Counts others that are not told of.
    pub fn add_more(&mut self, count: usize) {
        self.more += count;
    }

    /// Keeps those that the function lets pass, of those that are told of.
    pub fn retain(&mut self, keep: impl FnMut(&Cause) -> bool) {
        let before = self.told.len();
        self.told.retain(keep);
        if self.told.len() < before {
            self.bytes = self.told.iter().map(Cause::size).sum();
        }
    }

    /// Lets go of what became too much when values came to be shown in other words.
    pub fn fit(&mut self) {
        let more = self.more;
        let told = std::mem::take(self).told;
        self.extend(told);
        self.more += more;
    }

    pub fn has_room(&self) -> bool {
        self.told.len() < TOLD_MAX && self.bytes < TOLD_BYTES_MAX
    }
}

impl<C: Into<Cause>> Extend<C> for Causes {
    fn extend<I: IntoIterator<Item = C>>(&mut self, causes: I) {
        causes.into_iter().for_each(|cause| self.push(cause));
    }
}

impl<C: Into<Cause>> FromIterator<C> for Causes {
    fn from_iter<I: IntoIterator<Item = C>>(list: I) -> Causes {
        let mut causes = Causes::default();
        causes.extend(list);
        causes
    }
}

impl From<Cause> for Causes {
    fn from(cause: Cause) -> Causes {
        Causes::from_iter([cause])
    }
}

/// Those that are told of.
impl Deref for Causes {
    type Target = [Cause];

    fn deref(&self) -> &[Cause] {
        &self.told
    }
}

impl DerefMut for Causes {
    fn deref_mut(&mut self) -> &mut [Cause] {
        &mut self.told
    }
}

impl<'a> IntoIterator for &'a Causes {
    type Item = &'a Cause;
    type IntoIter = std::slice::Iter<'a, Cause>;

    fn into_iter(self) -> Self::IntoIter {
        self.told.iter()
    }
}

/// Faults or warnings as text, within the same bounds, and how many more there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    told: Vec<String>,
    bytes: usize,
    more: usize,
}

impl Texts {
    pub fn push(&mut self, text: impl Into<String>) {
        self.push_with(|| text.into());
    }

    /// The same for a text that takes work to make.
    pub fn push_with(&mut self, text: impl FnOnce() -> String) {
        if !self.has_room() {
            self.more += 1;
            return;
        }
        let text = cut(text(), MESSAGE_BYTES_MAX);
        self.bytes += json_bytes(&text);
        self.told.push(text);
    }

    /// The same for a text that is told once, however often there is reason to.
    pub fn push_once(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.push(text);
        }
    }

    /// Counts others that are not told of.
    pub fn add_more(&mut self, count: usize) {
        self.more += count;
    }

    pub fn sort(&mut self) {
        self.told.sort();
    }

    pub fn append(&mut self, others: Texts) {
        self.extend(others.told);
        self.more += others.more;
    }

    /// How many there are, with those that are not told of.
    pub fn len(&self) -> usize {
        self.told.len() + self.more
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn more(&self) -> usize {
        self.more
    }

    /// The same in other words.
    pub fn map(self, reword: impl Fn(String) -> String) -> Texts {
        Texts { told: self.told.into_iter().map(reword).collect(), ..self }
    }

    /// All that is told, and at the end how much is not.
    pub fn into_vec(self) -> Vec<String> {
        let mut told = self.told;
        told.extend(and_more(self.more));
        told
    }

    pub fn has_room(&self) -> bool {
        self.told.len() < TOLD_MAX && self.bytes < TOLD_BYTES_MAX
    }
}

impl<T: Into<String>> Extend<T> for Texts {
    fn extend<I: IntoIterator<Item = T>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push(text));
    }
}

impl<T: Into<String>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(list: I) -> Texts {
        let mut texts = Texts::default();
        texts.extend(list);
        texts
    }
}

impl From<String> for Texts {
    fn from(text: String) -> Texts {
        Texts::from_iter([text])
    }
}

/// Those that are told of.
impl Deref for Texts {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.told
    }
}

/// What is said of those that are not told of.
pub(super) fn and_more(count: usize) -> Option<String> {
    (count > 0).then(|| format!("and {} more", grouped(count)))
}

/// `count` as people read it: `999,900`.
pub fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_causes_are_told_and_the_others_counted() {
        let mut causes = Causes::default();
        for number in 0..1_000_000 {
            causes.push_with(|| Cause::required(format!("list[{number}]"), ""));
        }
        assert_eq!((causes.len(), causes.iter().len(), causes.more()), (1_000_000, TOLD_MAX, 999_900));
        let mut more = Causes::from(Cause::required("first", ""));
        more.append(causes);
        assert_eq!((more.len(), more.iter().len(), more.more()), (1_000_001, TOLD_MAX, 999_901));
        assert_eq!(and_more(more.more()).as_deref(), Some("and 999,901 more"));
        assert_eq!([0, 7, 999, 1_000, 1_234_567].map(grouped), ["0", "7", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn what_is_not_told_is_not_made() {
        let mut causes = Causes::default();
        let mut made = 0;
        for _ in 0..1_000 {
            causes.push_with(|| {
                made += 1;
                Cause::required("a".repeat(1_000), "")
            });
        }
        assert!(made < 30, "{made}");
        assert_eq!(causes.len(), 1_000);
    }

    #[test]
    fn texts_are_bounded_alike() {
        let mut texts = Texts::default();
        (0..150).for_each(|number| texts.push(number.to_string()));
        let told = texts.into_vec();
        assert_eq!((told.len(), told.last().map(String::as_str)), (TOLD_MAX + 1, Some("and 50 more")));
    }
}
