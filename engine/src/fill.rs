//! Who fills the disk: how much of what was written of late each namespace wrote.
//!
//! When a disk becomes full, somebody's writes must end first. Those do that fill it: as long as there is some room left,
//! whoever writes little goes on, and the less is left, the smaller is the part of the writes that is too much.

use std::collections::HashMap;

/// "Of late" is what was written since so many bytes, or twice as many.
const WINDOW_BYTES: u64 = 64 << 20;
/// What each write takes beside its bytes, which bounds how many namespaces are known.
const WRITE_BYTES: u64 = 4096;
/// With all of the room left, half of what was written is too much for one namespace.
const MOST_PART: u64 = 2;
/// The cluster's own namespaces, and what is in none, are not refused before everything is.
const OWN: &str = "kube-";

/// What was written of late, in bytes.
#[derive(Debug, Default)]
pub struct Fill {
    now: Written,
    /// The same of the window before.
    before: Written,
}

#[derive(Debug, Default)]
struct Written {
    of: HashMap<Box<str>, u64>,
    all: u64,
}

impl Fill {
    pub fn note(&mut self, namespace: &str, bytes: u64) {
        if self.now.all >= WINDOW_BYTES {
            self.before = std::mem::take(&mut self.now);
        }
        let bytes = bytes.saturating_add(WRITE_BYTES);
        self.now.all = self.now.all.saturating_add(bytes);
        match self.now.of.get_mut(namespace) {
            Some(of) => *of = of.saturating_add(bytes),
            None => _ = self.now.of.insert(namespace.into(), bytes),
        }
    }

    /// Whether a namespace wrote too much of it, and then how many bytes it wrote of how many, where so many thousandths
    /// are left of the room in which only those are refused who fill it.
    pub fn too_much(&self, namespace: &str, left: u64) -> Option<(u64, u64)> {
        if namespace.is_empty() || namespace.starts_with(OWN) {
            return None;
        }
        let of = |written: &Written| written.of.get(namespace).copied().unwrap_or(0);
        let (wrote, all) =
            (of(&self.now).saturating_add(of(&self.before)), self.now.all.saturating_add(self.before.all));
        let is_more = u128::from(wrote) * u128::from(MOST_PART) * 1000 > u128::from(all) * u128::from(left);
        is_more.then_some((wrote, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_smaller_is_the_part_that_is_too_much() {
        let mut fill = Fill::default();
        assert_eq!(fill.too_much("a", 0), None, "nothing was written");
        for (namespace, mebibytes) in [("a", 30), ("b", 8), ("c", 1), ("kube-system", 9), ("", 9)] {
            fill.note(namespace, mebibytes << 20);
        }
        let refused = |fill: &Fill, left: u64| -> Vec<&'static str> {
            let names = ["a", "b", "c", "d", "kube-system", ""];
            names.into_iter().filter(|name| fill.too_much(name, left).is_some()).collect()
        };
        let (wrote, all) = fill.too_much("a", 999).expect("more than half");
        assert_eq!((wrote >> 20, all >> 20), (30, 57));
        assert_eq!(refused(&fill, 999), ["a"]);
        assert_eq!(refused(&fill, 200), ["a", "b"]);
        assert_eq!(refused(&fill, 0), ["a", "b", "c"]);
        // Two windows later, what was written then counts no more.
        for _ in 0..33 {
            fill.note("d", 4 << 20);
        }
        assert_eq!(refused(&fill, 10), ["d"]);
    }

    #[test]
    fn few_namespaces_are_known_however_many_are_written_to() {
        let mut fill = Fill::default();
        for number in 0..100_000 {
            fill.note(&number.to_string(), 0);
        }
        assert!(fill.now.of.len() + fill.before.of.len() <= 2 * (WINDOW_BYTES / WRITE_BYTES) as usize);
    }
}
