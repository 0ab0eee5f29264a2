//! What goes out: heads of answers, their data in turn and as far as windows go, and the bytes of it all.

use super::{Connection, RESET_KEPT};
use crate::frame::{HEAD_BYTES, Head, PAYLOAD_BYTES_MAX, flag, kind};
use crate::hpack::Encoder;
use crate::reason::Reason;
use crate::stream::{End, StreamId};
use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, StatusCode};
use std::io::IoSlice;

/// Data is made frames of while there is less than this to go out.
pub const OUTPUT_BYTES: usize = 64 << 10;

/// The head of an answer.
#[derive(Debug)]
pub struct Answer<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    /// What the headers get where they do not have it.
    pub date: Option<&'a HeaderValue>,
    pub length: Option<u64>,
    /// There is no body.
    pub is_end: bool,
}

impl Connection {
    /// How much is to go out, with no look at data that waits for its turn or for a window.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// What is to go out next, in as many slices as there is room for; how many there are.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(slices)
    }

    /// So many bytes of that have gone.
    pub fn sent(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Sends the head of an answer. False when the stream is gone.
    pub fn answer(&mut self, id: StreamId, answer: &Answer<'_>) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return false };
        stream.is_answered = true;
        self.head(id, answer.is_end, |encoder, out| {
            encoder.status(answer.status, out);
            let found = encoder.headers(answer.headers, out);
            if let Some(date) = answer.date.filter(|_| !found.date) {
                encoder.date(date, out);
            }
            if let Some(length) = answer.length.filter(|_| !found.length) {
                encoder.length(length, out);
            }
        });
        if answer.is_end {
            self.end(id);
        }
        true
    }

    /// Answers in the place of whoever serves.
    pub(super) fn refuse(&mut self, id: StreamId, status: StatusCode) {
        self.answer(id, &Answer { status, headers: &HeaderMap::new(), date: None, length: None, is_end: true });
    }

    /// Sends a part of the body, or its end. True when all that the stream has has gone into the output, or the stream
    /// is gone; otherwise [`Connection::drained`] tells when it has.
    pub fn send(&mut self, id: StreamId, data: Bytes, is_end: bool) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return true };
        if is_end {
            stream.end.get_or_insert(End::Plain);
        }
        if !data.is_empty() {
            stream.queued_bytes += data.len();
            stream.queue.push_back(data);
        }
        self.try_send(id)
    }

    /// Ends an answer with headers behind its body; as for [`Connection::send`].
    pub fn send_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return true };
        stream.end.get_or_insert(End::Trailers(trailers));
        self.try_send(id)
    }

    /// Sends at once what nobody stands before.
    fn try_send(&mut self, id: StreamId) -> bool {
        if self.line.is_empty() {
            while self.output.len() < OUTPUT_BYTES && self.send_frame(id) == Sent::More {}
        }
        self.join_line(id);
        self.streams.get_mut(id).is_none_or(|stream| stream.queued_bytes == 0 && stream.end.is_none())
    }

    /// Ends a stream, with all that it was to send.
    pub fn reset(&mut self, id: StreamId, reason: Reason) {
        if self.streams.remove(id).is_some() {
            self.write_reset(id.number(), reason);
        }
    }

    pub(super) fn write_reset(&mut self, number: u32, reason: Reason) {
        if self.reset.len() == RESET_KEPT {
            self.reset.pop_front();
        }
        self.reset.push_back(number);
        self.control(kind::RST_STREAM, 0, number, &reason.0.to_be_bytes());
    }

    /// A stream that may send something stands in line.
    pub(super) fn join_line(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.may_send()
            && !std::mem::replace(&mut stream.in_line, true)
        {
            self.line.push_back(id);
        }
    }

    /// Makes frames of the data of all streams in turn, while windows and the output have room. True when that was worth
    /// a try.
    pub fn fill(&mut self) -> bool {
        let mut has_filled = false;
        while self.output.len() < OUTPUT_BYTES
            && let Some(id) = self.line.pop_front()
        {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.in_line = false;
            }
            match self.send_frame(id) {
                Sent::More => self.join_line(id),
                Sent::All => self.drained.push(id),
                Sent::Nothing if self.outgoing.room() == 0 => {
                    // Nobody may send before the connection's window grows, but for the ends of answers.
                    self.line.push_front(id);
                    if let Some(stream) = self.streams.get_mut(id) {
                        stream.in_line = true;
                    }
                    break;
                }
                Sent::Nothing => continue,
            }
            has_filled = true;
        }
        has_filled
    }

    /// A stream of which all has gone into the output that it had to send, since [`Connection::send`] said no. It may have
    /// ended since.
    pub fn drained(&mut self) -> Option<StreamId> {
        self.drained.pop()
    }

    /// Makes a frame of what a stream has to send next.
    fn send_frame(&mut self, id: StreamId) -> Sent {
        let Some(stream) = self.streams.get_mut(id) else { return Sent::Nothing };
        let room = stream.outgoing.room().min(self.outgoing.room()).min(PAYLOAD_BYTES_MAX);
        let Some(first) = stream.queue.front_mut() else {
            return self.send_end(id);
        };
        if room == 0 {
            return Sent::Nothing;
        }
        let data =
            if first.len() <= room { stream.queue.pop_front().unwrap_or_default() } else { first.split_to(room) };
        stream.queued_bytes -= data.len();
        stream.outgoing.take(data.len());
        self.outgoing.take(data.len());
        self.counts.sent_data();
        let is_empty = stream.queued_bytes == 0;
        let is_end = is_empty && matches!(stream.end, Some(End::Plain));
        let flags = if is_end { flag::END_STREAM } else { 0 };
        let head = Head { length: data.len(), kind: kind::DATA, flags, stream: id.number() };
        self.output.write(|out| out.extend_from_slice(&head.bytes()));
        self.output.push(data);
        match (is_empty, is_end) {
            (true, true) => {
                self.end(id);
                Sent::All
            }
            (true, false) if stream.end.is_none() => Sent::All,
            _ => Sent::More,
        }
    }

    /// Ends an answer behind all its data.
    fn send_end(&mut self, id: StreamId) -> Sent {
        let Some(stream) = self.streams.get_mut(id) else { return Sent::Nothing };
        match stream.end.take() {
            None => return Sent::Nothing,
            Some(End::Plain) => self.control(kind::DATA, flag::END_STREAM, id.number(), &[]),
            Some(End::Trailers(trailers)) => self.head(id, true, |encoder, out| {
                encoder.headers(&trailers, out);
            }),
        }
        self.end(id);
        Sent::All
    }

    /// An answer has ended. Whatever the client has not sent yet, nobody wants any more.
    fn end(&mut self, id: StreamId) {
        self.counts.answered();
        if self.streams.remove(id).is_some_and(|stream| !stream.has_ended) {
            self.write_reset(id.number(), Reason::NO_ERROR);
        }
    }

    /// Writes fields as a HEADERS frame, and as CONTINUATION frames where they do not fit into it.
    fn head(&mut self, id: StreamId, is_end: bool, fields: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let encoder = &mut self.encoder;
        let end_stream = if is_end { flag::END_STREAM } else { 0 };
        let head = |length: usize, kind: u8, flags: u8| Head { length, kind, flags, stream: id.number() }.bytes();
        self.output.write(|out| {
            let begin = out.len();
            out.extend_from_slice(&[0; HEAD_BYTES]);
            encoder.begin(out);
            fields(encoder, out);
            let block = begin + HEAD_BYTES;
            let length = out.len() - block;
            if length <= PAYLOAD_BYTES_MAX {
                out[begin..block].copy_from_slice(&head(length, kind::HEADERS, end_stream | flag::END_HEADERS));
                return;
            }
            let rest = out.split_off(block + PAYLOAD_BYTES_MAX);
            out[begin..block].copy_from_slice(&head(PAYLOAD_BYTES_MAX, kind::HEADERS, end_stream));
            let mut fragments = rest.chunks(PAYLOAD_BYTES_MAX).peekable();
            while let Some(fragment) = fragments.next() {
                let flags = if fragments.peek().is_none() { flag::END_HEADERS } else { 0 };
                out.extend_from_slice(&head(fragment.len(), kind::CONTINUATION, flags));
                out.extend_from_slice(fragment);
            }
        });
    }
}

/// What became of a stream that was to send something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// A part of what it has.
    More,
    /// All that it had.
    All,
    /// It has nothing, or may not.
    Nothing,
}
