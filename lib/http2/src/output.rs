//! The bytes to send: small frames in one buffer, and large payloads between them without copying.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// A payload up to this size is copied, because copying costs less than sending the payload as a separate slice.
const COPIED_BYTES_MAX: usize = 4 << 10;
/// How many sent bytes may stay in front of the buffer before the rest is moved to its beginning.
const GONE_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub struct Output {
    small: Vec<u8>,
    /// How many bytes of `small` were sent.
    gone: usize,
    large: VecDeque<Large>,
    /// The number of bytes not sent yet, in small frames and large payloads.
    bytes: usize,
}

#[derive(Debug)]
struct Large {
    /// The payload is sent after this many bytes of `small`.
    behind: usize,
    bytes: Bytes,
}

impl Output {
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Calls `append`, which appends small frames to the buffer.
    pub fn write<R>(&mut self, append: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.small.len();
        let result = append(&mut self.small);
        self.bytes += self.small.len() - before;
        result
    }

    /// Appends a payload to the bytes to send.
    pub fn push(&mut self, payload: Bytes) {
        self.bytes += payload.len();
        if payload.len() <= COPIED_BYTES_MAX {
            self.small.extend_from_slice(&payload);
        } else {
            self.large.push_back(Large { behind: self.small.len(), bytes: payload });
        }
    }

    /// Fills `slices` with the bytes to send next. Returns how many slices it used.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut free = slices.iter_mut();
        let mut count = 0;
        let mut put = |bytes: &'a [u8]| {
            if bytes.is_empty() {
                return true;
            }
            count += 1;
            free.next().map(|slice| *slice = IoSlice::new(bytes)).is_some()
        };
        let mut from = self.gone;
        for large in &self.large {
            if !put(&self.small[from..large.behind]) || !put(&large.bytes) {
                return slices.len();
            }
            from = large.behind;
        }
        put(&self.small[from..]);
        count.min(slices.len())
    }

    /// Removes the first `bytes` bytes, because they were sent.
    pub fn advance(&mut self, bytes: usize) {
        let mut left = bytes.min(self.bytes);
        self.bytes -= left;
        if self.bytes == 0 {
            // Most connections are idle most of the time, and an idle connection should hold no memory.
            *self = Output::default();
            return;
        }
        while left > 0 {
            let until = self.large.front().map_or(self.small.len(), |large| large.behind);
            let small = left.min(until - self.gone);
            self.gone += small;
            left -= small;
            if let Some(large) = self.large.front_mut().filter(|_| left > 0) {
                let part = left.min(large.bytes.len());
                large.bytes.advance(part);
                left -= part;
                if large.bytes.is_empty() {
                    self.large.pop_front();
                }
            }
        }
        // Without this step, the buffer would grow without bound if the client never reads the whole buffer.
        if self.gone > GONE_BYTES_MAX && self.gone > self.small.len() / 2 {
            self.small.drain(..self.gone);
            self.large.iter_mut().for_each(|large| large.behind -= self.gone);
            self.gone = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The bytes leave in the order in which they were added, whatever their sizes are and however few are sent at
        /// a time.
        #[test]
        fn order_is_kept(sizes in prop::collection::vec(0..9_000usize, 0..20), taken in 1..20_000usize, room in 1..5usize) {
            let mut output = Output::default();
            let (mut put, mut got) = (Vec::new(), Vec::new());
            for (place, size) in sizes.iter().enumerate() {
                let piece: Vec<u8> = (0..*size).map(|byte| (byte + place) as u8).collect();
                put.extend_from_slice(&piece);
                if place % 3 == 0 {
                    output.write(|out| out.extend_from_slice(&piece));
                } else {
                    output.push(piece.into());
                }
                take(&mut output, &mut got, taken, room);
            }
            while output.len() > 0 {
                take(&mut output, &mut got, taken, room);
            }
            prop_assert!(got == put);
            prop_assert_eq!(output.small.capacity(), 0);
        }
    }

    fn take(output: &mut Output, got: &mut Vec<u8>, most: usize, room: usize) {
        let mut slices = vec![IoSlice::new(&[]); room];
        let count = output.slices(&mut slices);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).take(most).collect();
        assert_eq!(bytes.is_empty(), output.len() == 0);
        got.extend_from_slice(&bytes);
        output.advance(bytes.len());
    }

    #[test]
    fn what_a_slow_client_has_taken_is_not_kept() {
        let mut output = Output::default();
        output.write(|out| out.resize(1000, 0));
        for _ in 0..10_000 {
            output.write(|out| out.resize(out.len() + 100, 0));
            output.advance(100);
        }
        assert_eq!(output.len(), 1000);
        assert!(output.small.len() < 100_000, "{}", output.small.len());
    }
}
