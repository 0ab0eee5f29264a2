//! Counts the bytes that each namespace wrote recently, to find the namespaces that fill the disk.
//!
//! When the disk is nearly full, writes to these namespaces are refused first, while writes to other namespaces are
//! still accepted. Writes to a namespace are refused if its share of the recently written bytes is above a limit. The
//! limit falls with the room on the disk.

use std::collections::HashMap;

/// A window ends when all namespaces together have written this many bytes. The bytes of the present window and of the
/// window before it count as recently written.
const WINDOW_BYTES: u64 = 64 << 20;
/// The number of bytes that are counted for each write in addition to its own bytes, so that a window has a bounded
/// number of writes and namespaces.
const WRITE_BYTES: u64 = 4096;
/// While the disk has all of its room left, a namespace may have 1/`MOST_PART` of the recently written bytes. The
/// permitted share falls with the room.
const MOST_PART: u64 = 2;
/// The namespaces of the cluster's own components. Their writes, and the writes of cluster-scoped objects, are refused
/// only when all writes are refused. Names are compared as a whole, because a tenant may create a namespace with any
/// other name.
const OWN: [&str; 3] = ["kube-system", "kube-node-lease", "kube-public"];

/// The number of bytes that were written recently, by namespace.
#[derive(Debug, Default)]
pub struct Fill {
    now: Written,
    /// The bytes that were written in the window before the present window.
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

    /// If the namespace wrote too large a share, returns the bytes that it wrote and the bytes that all namespaces
    /// wrote. `left` is the field of [`Lack::Soon`](crate::log::Lack::Soon). The less room is left, the smaller is the
    /// share that counts as too large.
    pub fn too_much(&self, namespace: &str, left: u64) -> Option<(u64, u64)> {
        if namespace.is_empty() || OWN.contains(&namespace) {
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
        // These writes fill two windows, after which the writes before them no longer count as recent.
        for _ in 0..33 {
            fill.note("d", 4 << 20);
        }
        assert_eq!(refused(&fill, 10), ["d"]);
    }

    #[test]
    fn a_tenants_namespace_is_counted_whatever_its_name_begins_with() {
        let mut fill = Fill::default();
        fill.note("kube-tenant", 30 << 20);
        assert!(fill.too_much("kube-tenant", 999).is_some());
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
