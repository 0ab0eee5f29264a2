//! Flow control in both directions (RFC 9113, section 5.2).

use crate::frame::NUMBER_MAX;

/// The initial size of every window in bytes, unless SETTINGS frames change the size.
pub const WINDOW_BYTES: u32 = 65_535;

/// The number of bytes that this side may still send on a stream or a connection. The peer's settings can make the
/// number negative.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing(i64);

/// The error for a change that would make a window larger than RFC 9113 allows.
#[derive(Debug, PartialEq, Eq)]
pub struct Overflow;

impl Outgoing {
    pub fn new(bytes: u32) -> Outgoing {
        Outgoing(i64::from(bytes))
    }

    /// The number of bytes that this side may send now, which is never negative.
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

/// The window in which the peer may send, and the window updates that we owe the peer.
///
/// Invariant: `left`, `owed` and the unread bytes add up to `whole`.
#[derive(Debug, Clone, Copy)]
pub struct Incoming {
    whole: u32,
    left: u32,
    /// Bytes that were read, and for which the peer has no window update yet.
    owed: u32,
}

impl Incoming {
    pub fn new(whole: u32) -> Incoming {
        Incoming { whole, left: whole, owed: 0 }
    }

    /// Counts received bytes; false when they are more than the window.
    pub fn take(&mut self, bytes: usize) -> bool {
        match u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes)) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Counts read bytes. Returns a window update once half a window is owed.
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
