//! The difference of two texts in the format of `diff -u`. Kubernetes shows it for a struct that must not change.
//!
//! Lines are matched as difflib does: first the longest common run, then recursively the lines before and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The number of unchanged lines that are shown around each change.
const CONTEXT: usize = 3;
/// If a text has at least this many lines, frequent lines are ignored when matching.
const LONG: usize = 200;
/// The maximum number of lines of a text. The work grows with the square of this number.
const LINES_MAX: usize = 4000;

/// The difference of two texts; empty if the texts are equal or too long to compare.
pub fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut out = String::new();
    if old.len() > LINES_MAX || new.len() > LINES_MAX {
        return out;
    }
    for hunk in hunks(&changes(&Texts::new(&old, &new).matches())) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (from, to) = (range(first.old.0, last.old.1), range(first.new.0, last.new.1));
        let _ = writeln!(out, "@@ -{from} +{to} @@");
        for run in &hunk {
            let mut tell = |mark: char, lines: &[&str]| {
                for line in lines {
                    let _ = writeln!(out, "{mark}{line}");
                }
            };
            if run.is_same {
                tell(' ', &old[run.old.0..run.old.1]);
            } else {
                tell('-', &old[run.old.0..run.old.1]);
                tell('+', &new[run.new.0..run.new.1]);
            }
        }
    }
    out
}

/// A range of lines in both texts; the end is exclusive.
#[derive(Clone, Copy)]
struct Run {
    is_same: bool,
    old: (usize, usize),
    new: (usize, usize),
}

/// A common run of lines: its start in each text, and its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    old: usize,
    new: usize,
    count: usize,
}

struct Texts<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    /// The positions of each line in the new text.
    places: BTreeMap<&'a str, Vec<usize>>,
}

impl<'a> Texts<'a> {
    fn new(old: &'a [&'a str], new: &'a [&'a str]) -> Self {
        let mut places: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(at);
        }
        if new.len() >= LONG {
            places.retain(|_, at| at.len() <= new.len() / 100 + 1);
        }
        Self { old, new, places }
    }

    /// All common runs in order. The last run is empty, at the end of both texts.
    fn matches(&self) -> Vec<Match> {
        let mut found = BTreeSet::new();
        let mut parts = vec![((0, self.old.len()), (0, self.new.len()))];
        while let Some((old, new)) = parts.pop() {
            let longest = self.longest(old, new);
            if longest.count == 0 {
                continue;
            }
            found.insert(longest);
            parts.push(((old.0, longest.old), (new.0, longest.new)));
            parts.push(((longest.old + longest.count, old.1), (longest.new + longest.count, new.1)));
        }
        let mut joined: Vec<Match> = Vec::new();
        for next in found {
            match joined.last_mut() {
                Some(last) if last.old + last.count == next.old && last.new + last.count == next.new => {
                    last.count += next.count;
                }
                _ => joined.push(next),
            }
        }
        joined.push(Match { old: self.old.len(), new: self.new.len(), count: 0 });
        joined
    }

    fn longest(&self, old: (usize, usize), new: (usize, usize)) -> Match {
        let mut best = Match { old: old.0, new: new.0, count: 0 };
        // For each line of the new text, the length of the common run that ends there.
        let mut ending: BTreeMap<usize, usize> = BTreeMap::new();
        for at in old.0..old.1 {
            let mut next = BTreeMap::new();
            let places = self.places.get(self.old[at]).map_or(&[][..], Vec::as_slice);
            for place in places.iter().copied().filter(|place| (new.0..new.1).contains(place)) {
                let before = place.checked_sub(1).and_then(|before| ending.get(&before)).copied();
                let count = before.unwrap_or(0) + 1;
                next.insert(place, count);
                if count > best.count {
                    best = Match { old: at + 1 - count, new: place + 1 - count, count };
                }
            }
            ending = next;
        }
        self.widened(best, old, new)
    }

    /// Extends a run by equal lines next to it, which were ignored because they are frequent.
    fn widened(&self, found: Match, old: (usize, usize), new: (usize, usize)) -> Match {
        let mut run = found;
        while run.old > old.0 && run.new > new.0 && self.old[run.old - 1] == self.new[run.new - 1] {
            run = Match { old: run.old - 1, new: run.new - 1, count: run.count + 1 };
        }
        while run.old + run.count < old.1
            && run.new + run.count < new.1
            && self.old[run.old + run.count] == self.new[run.new + run.count]
        {
            run.count += 1;
        }
        run
    }
}

/// The runs of equal and changed lines, which alternate.
fn changes(matches: &[Match]) -> Vec<Run> {
    let (mut runs, mut old, mut new) = (Vec::new(), 0, 0);
    for found in matches {
        if old < found.old || new < found.new {
            runs.push(Run { is_same: false, old: (old, found.old), new: (new, found.new) });
        }
        (old, new) = (found.old + found.count, found.new + found.count);
        if found.count > 0 {
            runs.push(Run { is_same: true, old: (found.old, old), new: (found.new, new) });
        }
    }
    runs
}

/// Groups nearby changes, with their context lines.
fn hunks(runs: &[Run]) -> Vec<Vec<Run>> {
    let (mut hunks, mut hunk) = (Vec::new(), Vec::new());
    for (at, run) in runs.iter().enumerate() {
        let length = run.old.1 - run.old.0;
        let (is_first, is_last) = (at == 0, at + 1 == runs.len());
        if !run.is_same || (!is_first && !is_last && length <= 2 * CONTEXT) {
            hunk.push(*run);
            continue;
        }
        let shown = length.min(CONTEXT);
        if !is_first {
            let end = Run { old: (run.old.0, run.old.0 + shown), new: (run.new.0, run.new.0 + shown), ..*run };
            hunk.push(end);
            hunks.push(std::mem::take(&mut hunk));
        }
        if !is_last {
            hunk.push(Run { old: (run.old.1 - shown, run.old.1), new: (run.new.1 - shown, run.new.1), ..*run });
        }
    }
    if hunk.iter().any(|run| !run.is_same) {
        hunks.push(hunk);
    }
    hunks
}

/// The range in the head of a hunk: the first line, counted from 1, and the number of lines unless that is 1.
fn range(start: usize, end: usize) -> String {
    match end - start {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        count => format!("{},{count}", start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn changes_stand_in_their_surroundings() {
        let lines = |changed: &[(usize, &str)]| -> String {
            let line = |at: usize| {
                changed.iter().find(|(of, _)| *of == at).map_or(format!("line {at}\n"), |(_, text)| (*text).to_owned())
            };
            (1..=30).map(line).collect()
        };
        assert_eq!(difference(&lines(&[]), &lines(&[])), "");
        assert_eq!(
            difference(&lines(&[]), &lines(&[(5, "five\n"), (20, ""), (30, "line 30\nmore\n")])),
            "@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n-line 5\n+five\n line 6\n line 7\n line 8\n\
             @@ -17,7 +17,6 @@\n line 17\n line 18\n line 19\n-line 20\n line 21\n line 22\n line 23\n\
             @@ -28,3 +27,4 @@\n line 28\n line 29\n line 30\n+more\n"
        );
        assert_eq!(difference("", "one\n"), "@@ -0,0 +1 @@\n+one\n");
    }

    #[test]
    fn long_texts_are_not_compared() {
        assert_eq!(difference(&"a\n".repeat(5000), "b\n"), "");
    }
}
