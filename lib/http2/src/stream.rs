//! Streams, each with one request and its response (RFC 9113, section 5.1).

use crate::flow::{Incoming, Outgoing};
use bytes::Bytes;
use http::HeaderMap;
use std::collections::VecDeque;

/// Identifies a stream. Slots are small numbers that are used again after a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId {
    number: u32,
    slot: u32,
}

impl StreamId {
    /// The stream's number in frames.
    pub fn number(self) -> u32 {
        self.number
    }

    /// The index among the connection's slots.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// A stream that neither side has reset and that is not finished in both directions.
#[derive(Debug)]
pub struct Stream {
    /// Whether the client has sent its whole request.
    pub has_ended: bool,
    /// The bytes of the body that are still to come, if the client announced its length.
    pub announced: Option<u64>,
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// Whether the head of the response was sent.
    pub is_answered: bool,
    /// The parts of the response's body that are not in a frame yet.
    pub queue: VecDeque<Bytes>,
    /// The number of bytes in the queue.
    pub queued_bytes: usize,
    /// How the response ends after the queue; `None` while more may come.
    pub end: Option<End>,
    /// Whether the stream is in the connection's queue of streams with data to send.
    pub in_line: bool,
}

#[derive(Debug)]
pub enum End {
    Plain,
    Trailers(HeaderMap),
}

impl Stream {
    pub fn new(has_ended: bool, announced: Option<u64>, incoming: Incoming, outgoing: Outgoing) -> Stream {
        Stream {
            has_ended,
            announced,
            incoming,
            outgoing,
            is_answered: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            end: None,
            in_line: false,
        }
    }

    /// Whether the stream has data or an end that its window allows it to send.
    pub fn may_send(&self) -> bool {
        match self.queued_bytes {
            0 => self.end.is_some(),
            _ => self.outgoing.room() > 0,
        }
    }

    /// Counts bytes of the body; false if the sum exceeds the announced length, or falls short of it at the end.
    pub fn count(&mut self, bytes: usize, is_end: bool) -> bool {
        match &mut self.announced {
            None => true,
            Some(left) => match left.checked_sub(bytes as u64) {
                Some(rest) => {
                    *left = rest;
                    !is_end || rest == 0
                }
                None => false,
            },
        }
    }
}

/// The streams of one connection.
#[derive(Debug, Default)]
pub struct Streams {
    slots: Vec<Option<Stream>>,
    free: Vec<u32>,
    /// The ids of the existing streams, in the order of their numbers.
    ids: Vec<StreamId>,
}

/// If there are more slots than this number, the slots are freed when there is no stream.
const SLOTS_KEPT: usize = 8;

impl Streams {
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds a stream. Its number must be higher than the numbers of all earlier streams.
    pub fn add(&mut self, number: u32, stream: Stream) -> StreamId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Some(stream);
        let id = StreamId { number, slot };
        self.ids.push(id);
        id
    }

    pub fn find(&self, number: u32) -> Option<StreamId> {
        let place = self.ids.binary_search_by_key(&number, |id| id.number).ok()?;
        Some(self.ids[place])
    }

    /// The stream with this id; `None` if it has ended.
    pub fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        let is_there = || self.ids.binary_search_by_key(&id.number, |id| id.number).is_ok();
        // The newest stream is looked up most often.
        if self.ids.last() != Some(&id) && !is_there() {
            return None;
        }
        self.slots.get_mut(id.slot as usize)?.as_mut()
    }

    pub fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let place = self.ids.binary_search_by_key(&id.number, |id| id.number).ok()?;
        self.ids.remove(place);
        let stream = self.slots.get_mut(id.slot as usize)?.take();
        if self.ids.is_empty() && self.slots.len() > SLOTS_KEPT {
            *self = Streams::default();
        } else {
            self.free.push(id.slot);
        }
        stream
    }

    /// Calls `work` for all streams in the order of their numbers.
    pub fn each(&mut self, mut work: impl FnMut(StreamId, &mut Stream)) {
        for id in &self.ids {
            if let Some(stream) = &mut self.slots[id.slot as usize] {
                work(*id, stream);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream::new(true, None, Incoming::new(1), Outgoing::new(1))
    }

    #[test]
    fn slots_are_used_again_and_names_are_not() {
        let mut streams = Streams::default();
        let (one, three) = (streams.add(1, stream()), streams.add(3, stream()));
        assert_eq!((one.slot(), three.slot()), (0, 1));
        assert_eq!(streams.find(3), Some(three));
        assert!(streams.remove(one).is_some() && streams.remove(one).is_none());
        let five = streams.add(5, stream());
        assert_eq!(five.slot(), 0);
        assert!(streams.get_mut(one).is_none() && streams.get_mut(five).is_some() && streams.get_mut(three).is_some());
        let mut seen = Vec::new();
        streams.each(|id, _| seen.push(id.number()));
        assert_eq!(seen, [3, 5]);
    }

    #[test]
    fn nothing_is_kept_of_many_streams() {
        let mut streams = Streams::default();
        let ids: Vec<_> = (0..100).map(|number| streams.add(2 * number + 1, stream())).collect();
        ids.iter().for_each(|id| drop(streams.remove(*id)));
        assert_eq!((streams.len(), streams.slots.capacity(), streams.free.capacity()), (0, 0, 0));
    }

    #[test]
    fn bodies_are_as_long_as_announced() {
        let mut open = stream();
        assert!(open.count(100, false) && open.count(0, true));
        for (announced, pieces, fits) in
            [(5, &[2, 3][..], true), (5, &[2, 2], false), (5, &[6], false), (0, &[0], true), (5, &[5, 0], true)]
        {
            let mut stream = Stream { announced: Some(announced), ..stream() };
            let last = pieces.len() - 1;
            let all = pieces.iter().enumerate().all(|(place, piece)| stream.count(*piece, place == last));
            assert_eq!(all, fits, "{announced} {pieces:?}");
        }
    }
}
