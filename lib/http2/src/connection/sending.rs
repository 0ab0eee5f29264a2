//! Sends the heads of responses, and their data in turn, as far as the windows allow.

use super::{Connection, RESET_KEPT};
use crate::frame::{HEAD_BYTES, Head, PAYLOAD_BYTES_MAX, flag, kind};
use crate::hpack::Encoder;
use crate::reason::Reason;
use crate::stream::{End, StreamId};
use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, StatusCode};
use std::io::IoSlice;

/// Data becomes frames only while the output has fewer than this number of bytes.
pub const OUTPUT_BYTES: usize = 64 << 10;

/// The head of a response.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    pub status: StatusCode,
    pub headers: &'a HeaderMap,
    /// The date that is sent if the headers contain none.
    pub date: Option<&'a HeaderValue>,
    pub length: Option<u64>,
    /// Whether the response has no body.
    pub is_end: bool,
}

impl Connection {
    /// The number of bytes in the output, without the data of streams that wait for their turn or for a wider window.
    pub fn output_bytes(&self) -> usize {
        self.output.len()
    }

    /// Fills `slices` with the bytes to send next. Returns how many slices it used.
    pub fn output<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.output.slices(slices)
    }

    /// Removes bytes of the output that were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.output.advance(bytes);
    }

    /// Sends the head of a response. Returns false if the stream is gone.
    pub fn answer(&mut self, id: StreamId, answer: &ResponseHead<'_>) -> bool {
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

    /// Sends a response without a body, for a request that the driver never receives.
    pub(super) fn refuse(&mut self, id: StreamId, status: StatusCode) {
        self.answer(id, &ResponseHead { status, headers: &HeaderMap::new(), date: None, length: None, is_end: true });
    }

    /// Sends a part of the body, or its end. Returns true if all data of the stream is in the output, or the stream has
    /// ended. Otherwise [`Connection::drained`] returns the stream once its data is in the output.
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

    /// Ends a response with trailers. The result has the same meaning as the result of [`Connection::send`].
    pub fn send_trailers(&mut self, id: StreamId, trailers: HeaderMap) -> bool {
        let Some(stream) = self.streams.get_mut(id) else { return true };
        stream.end.get_or_insert(End::Trailers(trailers));
        self.try_send(id)
    }

    /// Sends the stream's data at once if no other stream waits for its turn.
    fn try_send(&mut self, id: StreamId) -> bool {
        if self.line.is_empty() {
            while self.output.len() < OUTPUT_BYTES && self.send_frame(id) == Sent::More {}
        }
        self.join_line(id);
        self.streams.get_mut(id).is_none_or(|stream| stream.queued_bytes == 0 && stream.end.is_none())
    }

    /// Resets a stream; its unsent data is dropped.
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

    /// Adds a stream to the queue `line` if it may send data.
    pub(super) fn join_line(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(id)
            && stream.may_send()
            && !std::mem::replace(&mut stream.in_line, true)
        {
            self.line.push_back(id);
        }
    }

    /// Makes frames of the streams' data in turn, while the windows and the output have room. Returns whether it made
    /// any frames.
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
                    // Until the connection's window grows, only the ends of responses may be sent.
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

    /// A stream whose data has gone into the output completely since [`Connection::send`] returned false. Such a stream
    /// may have ended already.
    pub fn drained(&mut self) -> Option<StreamId> {
        self.drained.pop()
    }

    /// Makes a frame of the stream's next data.
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

    /// Sends the end of a response, after its data.
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

    /// Handles the end of a response. If the client has not sent its whole request, the rest is not needed, and the
    /// stream is reset.
    fn end(&mut self, id: StreamId) {
        self.counts.answered();
        if self.streams.remove(id).is_some_and(|stream| !stream.has_ended) {
            self.write_reset(id.number(), Reason::NO_ERROR);
        }
    }

    /// Writes fields as a HEADERS frame, followed by CONTINUATION frames if they do not fit into it.
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

/// The result of sending on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// A part of its data was sent.
    More,
    /// All of the stream's data was sent.
    All,
    /// The stream has nothing to send, or its window is empty.
    Nothing,
}
