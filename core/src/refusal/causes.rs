//! Bounded lists of causes and of texts. They count the entries beyond the bound.

use super::cause::{Cause, MESSAGE_BYTES_MAX};
use super::cut::{cut, json_bytes};
use std::ops::{Deref, DerefMut};

/// The maximum number of entries that a bounded list keeps.
const TOLD_MAX: usize = 100;
/// The maximum number of bytes of all entries of a list. An answer contains each entry twice: in its message and in its
/// details.
const TOLD_BYTES_MAX: usize = 20 << 10;

/// A bounded list of the causes of a refusal.
pub type Causes = Told<Cause>;
/// A bounded list of faults or warnings that are texts.
pub type Texts = Told<String>;

/// A list of at most 100 entries and 20 KiB, and the number of further entries.
///
/// A body of 3 MB can violate a rule a million times, so entries beyond the bound are not even built: `push` takes a
/// value that is converted only if there is room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told<T> {
    told: Vec<T>,
    bytes: usize,
    more: usize,
}

/// A type whose values can be entries of a bounded list.
pub trait Tell: Sized {
    /// The entry, cut to its largest size.
    fn cut(self) -> Self;

    /// The number of bytes that the entry takes in an answer.
    fn size(&self) -> usize;
}

impl Tell for Cause {
    /// A cause is cut when it is created, so it is not cut again.
    fn cut(self) -> Cause {
        self
    }

    fn size(&self) -> usize {
        Cause::size(self)
    }
}

impl Tell for String {
    fn cut(self) -> String {
        cut(self, MESSAGE_BYTES_MAX)
    }

    fn size(&self) -> usize {
        json_bytes(self)
    }
}

impl<T: Tell> Told<T> {
    pub fn push(&mut self, one: impl Into<T>) {
        self.push_with(|| one);
    }

    /// Like `push`, for an entry that is expensive to build. `one` is called only if the list has room.
    pub fn push_with<O: Into<T>>(&mut self, one: impl FnOnce() -> O) {
        if !self.has_room() {
            self.more += 1;
            return;
        }
        let one = one().into().cut();
        self.bytes += one.size();
        self.told.push(one);
    }

    /// Appends another list, and adds its count of further entries.
    pub fn append(&mut self, others: Told<T>) {
        self.extend(others.told);
        self.more += others.more;
    }

    /// The number of entries, including the entries that were left out.
    pub fn len(&self) -> usize {
        self.told.len() + self.more
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of entries that were left out.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Counts further entries that are not listed.
    pub fn add_more(&mut self, count: usize) {
        self.more += count;
    }

    /// Retains the listed entries for which `keep` returns true.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        let before = self.told.len();
        self.told.retain(keep);
        if self.told.len() < before {
            self.bytes = self.told.iter().map(T::size).sum();
        }
    }

    /// Cuts the list to its bounds again. Its entries may have grown after they were added, because values are then
    /// shown in another form.
    pub fn fit(&mut self) {
        let others = std::mem::take(self);
        self.append(others);
    }

    pub fn has_room(&self) -> bool {
        self.told.len() < TOLD_MAX && self.bytes < TOLD_BYTES_MAX
    }
}

impl Texts {
    /// Adds a text unless the list has it already.
    pub fn push_once(&mut self, text: String) {
        if !self.told.contains(&text) {
            self.push(text);
        }
    }

    /// Rewrites each text.
    pub fn map(self, reword: impl Fn(String) -> String) -> Texts {
        Texts { told: self.told.into_iter().map(reword).collect(), ..self }
    }

    /// The listed texts. If entries were left out, a last text gives their number.
    pub fn into_vec(self) -> Vec<String> {
        let mut told = self.told;
        told.extend(and_more(self.more));
        told
    }
}

impl<T> Default for Told<T> {
    fn default() -> Told<T> {
        Told { told: Vec::new(), bytes: 0, more: 0 }
    }
}

impl<T: Tell, O: Into<T>> Extend<O> for Told<T> {
    fn extend<I: IntoIterator<Item = O>>(&mut self, list: I) {
        list.into_iter().for_each(|one| self.push(one));
    }
}

impl<T: Tell, O: Into<T>> FromIterator<O> for Told<T> {
    fn from_iter<I: IntoIterator<Item = O>>(list: I) -> Told<T> {
        let mut told = Told::default();
        told.extend(list);
        told
    }
}

impl<T: Tell> From<T> for Told<T> {
    fn from(one: T) -> Told<T> {
        Told::from_iter([one])
    }
}

/// Gives access to the listed entries as a slice.
impl<T> Deref for Told<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.told
    }
}

impl<T> DerefMut for Told<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.told
    }
}

impl<'a, T> IntoIterator for &'a Told<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.told.iter()
    }
}

/// The text for the entries that were left out; `None` if there are none.
pub(super) fn and_more(count: usize) -> Option<String> {
    (count > 0).then(|| format!("and {} more", grouped(count)))
}

/// The number with thousands separated: `999,900`.
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
