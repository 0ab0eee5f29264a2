//! A file on a simulated disk. Only a sync makes written pages safe, and a crash tears the pages that are not safe.

use crate::random::Dice;
use std::collections::BTreeSet;

/// The size of a page, in bytes. It is smaller than the size of a real page, so that most batches cover several pages.
pub const PAGE_BYTES: usize = 512;
/// The number of bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 64;

#[derive(Default)]
pub struct File {
    /// The content that the running server reads: with all writes.
    seen: Vec<u8>,
    /// The content that is certainly on the disk, as it was at the last sync.
    safe: Vec<u8>,
    /// The numbers of the pages that were written since the last sync.
    dirty: BTreeSet<usize>,
}

impl File {
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.seen.len() < end {
            self.seen.resize(end.next_multiple_of(PAGE_BYTES), 0);
        }
        self.seen[at..end].copy_from_slice(bytes);
        self.dirty.extend(at / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
    }

    /// Removes all content after the position `end`.
    pub fn cut(&mut self, end: usize) {
        let first = end / PAGE_BYTES;
        self.dirty.extend(first..self.seen.len().div_ceil(PAGE_BYTES));
        self.seen[end..].fill(0);
    }

    pub fn sync(&mut self) {
        self.safe.resize(self.seen.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            self.safe[bytes.clone()].copy_from_slice(&self.seen[bytes]);
        }
    }

    /// The power fails, or a sync fails and the pages are dropped. Each page that was not synced is independently
    /// written completely, partly or not at all.
    pub fn tear(&mut self, dice: &mut Dice) {
        self.safe.resize(self.seen.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            let start = page * PAGE_BYTES;
            let (from, to) = match dice.below(4) {
                0 => (0, 0),
                1 | 2 => (0, PAGE_BYTES),
                // Either the beginning or the end of a torn page may be missing, because disks write the sectors of a
                // page in any order.
                _ => {
                    let at = SECTOR_BYTES * dice.below(PAGE_BYTES / SECTOR_BYTES);
                    if dice.chance(70) { (0, at) } else { (at, PAGE_BYTES) }
                }
            };
            self.safe[start + from..start + to].copy_from_slice(&self.seen[start + from..start + to]);
        }
        self.seen.clone_from(&self.safe);
    }

    /// Makes all written pages safe. The caller reports the sync as failed nevertheless.
    pub fn keep(&mut self) {
        self.sync();
    }

    pub fn bytes(&self) -> &[u8] {
        &self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_stays() {
        for seed in 0..200 {
            let mut file = File::default();
            file.write(0, &[7; 700]);
            file.sync();
            file.write(700, &[8; 900]);
            file.tear(&mut Dice::new(seed));
            assert_eq!(file.bytes()[..700], [7; 700]);
        }
    }

    #[test]
    fn what_was_not_synced_may_be_there_in_any_part() {
        let counts: BTreeSet<usize> = (0..200)
            .map(|seed| {
                let mut file = File::default();
                file.write(0, &[8; 1500]);
                file.tear(&mut Dice::new(seed));
                file.bytes().iter().filter(|byte| **byte == 8).count()
            })
            .collect();
        assert!(counts.contains(&0) && counts.contains(&1500) && counts.len() > 10, "{counts:?}");
    }
}
