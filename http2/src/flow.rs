//! Flow control: how much may be sent, in either direction (RFC 9113, section 5.2).

use crate::frame::NUMBER_MAX;

/// Windows begin with this size, until somebody says something else.
pub const WINDOW_BYTES: u32 = 65_535;

/// How much we may send. Settings of the peer can make it negative.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing(i64);

/// The window would be larger than RFC 9113 allows.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

impl Outgoing {
    pub fn new(bytes: u32) -> Outgoing {
        Outgoing(i64::from(bytes))
    }

    /// How many bytes may go.
    pub fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    pub fn take(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    pub fn change(&mut self, by: i64) -> Result<(), Overflow> {
        let changed = self.0 + by;
        if changed > i64::from(NUMBER_MAX) {
            return Err(Overflow);
        }
        self.0 = changed;
        Ok(())
    }
}

/// How much the peer may send, and what it is to be told of that.
///
/// Invariant: what is left, owed, and not read yet make up the whole window.
#[derive(Debug, Clone, Copy)]
pub struct Incoming {
    whole: u32,
    left: u32,
    /// It was read, and the peer does not know yet that there is room for as much again.
    owed: u32,
}

impl Incoming {
    pub fn new(whole: u32) -> Incoming {
        Incoming { whole, left: whole, owed: 0 }
    }

    /// Something came; false when it is more than the peer may send.
    pub fn take(&mut self, bytes: usize) -> bool {
        match u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes)) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Something was read. From half a window on the peer is told by how much its window grows.
    pub fn give_back(&mut self, bytes: usize) -> Option<u32> {
        let most = self.whole - self.left - self.owed;
        self.owed += u32::try_from(bytes).unwrap_or(u32::MAX).min(most);
        if self.owed == 0 || self.owed < self.whole / 2 {
            return None;
        }
        self.left += self.owed;
        Some(std::mem::take(&mut self.owed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_may_become_negative_and_no_larger_than_31_bits() {
        let mut window = Outgoing::new(100);
        window.take(80);
        assert_eq!(window.change(-50), Ok(()));
        assert_eq!(window.room(), 0);
        assert_eq!(window.change(40), Ok(()));
        assert_eq!(window.room(), 10);
        assert_eq!(window.change(i64::from(NUMBER_MAX) - 9), Err(Overflow));
        assert_eq!(window.change(i64::from(NUMBER_MAX) - 10), Ok(()));
        assert_eq!(window.room(), NUMBER_MAX as usize);
    }

    #[test]
    fn a_window_is_given_back_by_halves() {
        let mut window = Incoming::new(100);
        assert!(window.take(70));
        assert!(!window.take(31));
        assert_eq!(window.give_back(40), None);
        assert_eq!(window.give_back(10), Some(50));
        assert_eq!(window.give_back(1000), None, "only 20 are left that were not read");
        assert!(window.take(80) && !window.take(1));
        assert_eq!(window.give_back(usize::MAX), Some(100));
    }
}
