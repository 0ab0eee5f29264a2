//! The state of one connection. This file handles incoming frames; `sending.rs` makes outgoing frames.

mod sending;
#[cfg(test)]
mod tests;

pub use sending::ResponseHead;

use crate::fault::Fault;
use crate::flow::{Incoming, Outgoing, WINDOW_BYTES};
use crate::frame::{self, HEAD_BYTES, NUMBER_MAX, PAYLOAD_BYTES_MAX, PREFACE, flag, kind};
use crate::head::{BlockOutcome, Head, Nobody, Trailers};
use crate::hpack::{Broken, Decoder, Encoder};
use crate::limits::{CONTINUATIONS_MAX, Limits, UselessFrames};
use crate::output::Output;
use crate::reason::Reason;
use crate::settings::{self, Settings, TABLE_BYTES};
use crate::stream::{Stream, StreamId, Streams};
use http::{Request, StatusCode};
use std::collections::VecDeque;

/// The payloads of the pings that this side sends. Two payloads are used, so that the client's acknowledgements can be
/// distinguished.
const KEEP_ALIVE: [u8; 8] = *b"alive?\0\0";
const FAREWELL: [u8; 8] = *b"farewell";
/// The number of streams reset by us that are remembered. Frames that the client sent before it received the reset are
/// no error.
const RESET_KEPT: usize = 256;

/// An event that the driver must handle, decoded from a client's bytes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an event is looked at where it is told, and never kept")]
pub enum Event<'a> {
    /// A request; `is_end` means that it has no body.
    Request { stream: StreamId, head: Request<()>, is_end: bool },
    /// A part of a body, or its end.
    Data { stream: StreamId, data: &'a [u8], is_end: bool },
    /// The stream has ended, and all data that was still to be sent on the stream is dropped.
    Reset { stream: StreamId, reason: Reason },
}

/// The state of one HTTP/2 connection, on the server's side.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    /// The number of bytes of the client's preface that have arrived.
    preface: usize,
    /// Whether the client's first settings have arrived.
    is_open: bool,
    /// Whether the client has acknowledged our settings.
    is_acknowledged: bool,
    /// The beginning of an incomplete frame.
    partial: Vec<u8>,
    /// An incomplete head, which CONTINUATION frames continue.
    block: Option<Block>,
    decoder: Decoder,
    encoder: Encoder,
    peer: Settings,
    streams: Streams,
    /// The highest stream number that the client has opened.
    last: u32,
    /// The numbers of the last streams that we reset.
    reset: VecDeque<u32>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// The streams that have data to send, in the order in which each gets its turn to send one frame.
    line: VecDeque<StreamId>,
    /// Streams that have sent all their data, not yet returned by [`Connection::drained`].
    drained: Vec<StreamId>,
    output: Output,
    leaving: Leaving,
    is_ping_due: bool,
    counts: UselessFrames,
    frames: u64,
    failed: Option<(Reason, &'static str)>,
}

/// The phases of a graceful shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    No,
    /// A GOAWAY frame has asked the client to open no more streams. Streams that it opened before it received the frame
    /// may still arrive.
    Announced,
    /// The final GOAWAY frame was sent. Streams with numbers above this number are ignored.
    Since(u32),
}

/// A header block whose last CONTINUATION frame has not arrived yet.
#[derive(Debug)]
struct Block {
    stream: u32,
    is_end: bool,
    continuations: u32,
    bytes: Vec<u8>,
}

impl Connection {
    /// A new connection; its settings are in the output.
    pub fn new(limits: Limits) -> Connection {
        let mut output = Output::default();
        output.write(|out| {
            settings::announce(out, &limits);
            if let Some(more) = limits.connection_window.checked_sub(WINDOW_BYTES).filter(|more| *more > 0) {
                frame::write(out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
            }
        });
        Connection {
            limits,
            preface: 0,
            is_open: false,
            is_acknowledged: false,
            partial: Vec::new(),
            block: None,
            decoder: Decoder::new(TABLE_BYTES),
            encoder: Encoder::default(),
            peer: Settings::default(),
            streams: Streams::default(),
            last: 0,
            reset: VecDeque::new(),
            incoming: Incoming::new(limits.connection_window.max(WINDOW_BYTES)),
            outgoing: Outgoing::new(WINDOW_BYTES),
            line: VecDeque::new(),
            drained: Vec::new(),
            output,
            leaving: Leaving::No,
            is_ping_due: false,
            counts: UselessFrames::default(),
            frames: 0,
            failed: None,
        }
    }

    /// Whether the client has sent the preface and its settings.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the client has acknowledged our settings.
    pub fn is_acknowledged(&self) -> bool {
        self.is_acknowledged
    }

    /// The number of streams that have not ended.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The number of whole frames that were received.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The reason why no more input is read, which the remaining output reports to the client; `None` while input is
    /// read.
    pub fn failed(&self) -> Option<(Reason, &'static str)> {
        self.failed
    }

    /// Whether the connection may be closed once its output was sent.
    pub fn is_finished(&self) -> bool {
        self.failed.is_some() || matches!(self.leaving, Leaving::Since(_)) && self.streams.len() == 0
    }

    /// Begins a new period. The number of idle frames and of errors is limited in each period.
    pub fn tick(&mut self) {
        self.counts.tick();
    }

    /// Sends a ping to check whether the client still answers.
    pub fn ping(&mut self) {
        self.is_ping_due = true;
        self.control(kind::PING, 0, 0, &KEEP_ALIVE);
    }

    /// Whether a ping is still unanswered.
    pub fn is_ping_due(&self) -> bool {
        self.is_ping_due
    }

    /// Ends the connection once its requests are answered, including requests that the client has already sent. A ping
    /// follows the GOAWAY frame; its acknowledgement means that every request which the client sent before it received
    /// the GOAWAY frame has arrived.
    pub fn shut_down(&mut self) {
        if self.leaving == Leaving::No && self.failed.is_none() {
            self.leaving = Leaving::Announced;
            self.go_away(NUMBER_MAX, Reason::NO_ERROR, "");
            self.control(kind::PING, 0, 0, &FAREWELL);
        }
    }

    /// Ends the connection at once, with all requests in progress.
    pub fn fail(&mut self, reason: Reason, why: &'static str) {
        if self.failed.is_none() {
            self.failed = Some((reason, why));
            self.streams = Streams::default();
            self.line = VecDeque::new();
            self.go_away(self.last, reason, why);
        }
    }

    fn go_away(&mut self, last: u32, reason: Reason, why: &str) {
        let payload = [&last.to_be_bytes(), &reason.0.to_be_bytes(), why.as_bytes()].concat();
        self.control(kind::GOAWAY, 0, 0, &payload);
    }

    fn control(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.output.write(|out| frame::write(out, kind, flags, stream, payload));
    }

    /// Processes bytes from the client, and calls `tell` with each event that they complete.
    pub fn receive(&mut self, mut input: &[u8], tell: &mut impl FnMut(Event<'_>)) {
        if self.preface < PREFACE.len() {
            input = self.begin(input);
        }
        while self.failed.is_none() && !input.is_empty() {
            let handled = match self.partial.is_empty() {
                true => self.whole(&mut input, tell),
                false => self.completed(&mut input, tell),
            };
            if let Err(Fault::Connection { reason, why }) = handled.or_else(|fault| self.survive(fault, tell)) {
                self.fail(reason, why);
            }
        }
    }

    /// Reads the preface. Returns the bytes after the preface.
    fn begin<'a>(&mut self, input: &'a [u8]) -> &'a [u8] {
        let expected = &PREFACE[self.preface..];
        let (begin, rest) = input.split_at(expected.len().min(input.len()));
        if begin != &expected[..begin.len()] {
            self.fail(Reason::PROTOCOL_ERROR, "this is not HTTP/2");
            return &[];
        }
        self.preface += begin.len();
        rest
    }

    /// Handles one frame at the start of the input. If the frame is incomplete, its bytes are stored.
    fn whole(&mut self, input: &mut &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let head = frame::Head::parse(input);
        let whole = match head {
            Some(head) => HEAD_BYTES + allowed(head)?.length,
            None => usize::MAX,
        };
        match input.split_at_checked(whole) {
            Some((frame, rest)) => {
                *input = rest;
                match head {
                    Some(head) => self.frame(head, &frame[HEAD_BYTES..], tell),
                    None => Ok(()),
                }
            }
            None => {
                self.partial.extend_from_slice(input);
                *input = &[];
                Ok(())
            }
        }
    }

    /// Adds input to an incomplete frame, and handles the frame once it is complete.
    fn completed(&mut self, input: &mut &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let mut fill = |partial: &mut Vec<u8>, whole: usize| {
            let missing = whole.saturating_sub(partial.len());
            let (begin, rest) = input.split_at(missing.min(input.len()));
            partial.extend_from_slice(begin);
            *input = rest;
            partial.len() >= whole
        };
        if !fill(&mut self.partial, HEAD_BYTES) {
            return Ok(());
        }
        let Some(head) = frame::Head::parse(&self.partial) else { return Ok(()) };
        let length = allowed(head)?.length;
        self.partial.reserve_exact((HEAD_BYTES + length).saturating_sub(self.partial.len()));
        if !fill(&mut self.partial, HEAD_BYTES + length) {
            return Ok(());
        }
        let frame = std::mem::take(&mut self.partial);
        self.frame(head, &frame[HEAD_BYTES..], tell)
    }

    /// After a stream error, resets the stream, and the connection continues unless there were too many errors. Returns
    /// connection errors unchanged.
    fn survive(&mut self, fault: Fault, tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let Fault::Stream { number, reason, .. } = fault else { return Err(fault) };
        if let Some(stream) = self.streams.find(number) {
            self.streams.remove(stream);
            tell(Event::Reset { stream, reason });
        }
        self.write_reset(number, reason);
        self.counts.mistake()
    }

    fn frame(&mut self, head: frame::Head, payload: &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        self.frames += 1;
        if !self.is_open && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR, "settings come first"));
        }
        if self.block.is_some() && head.kind != kind::CONTINUATION {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR, "a frame in the middle of a head"));
        }
        let of_connection = match head.kind {
            kind::DATA | kind::HEADERS | kind::PRIORITY | kind::RST_STREAM | kind::CONTINUATION => false,
            kind::SETTINGS | kind::PING | kind::GOAWAY => true,
            _ => head.stream == 0,
        };
        if of_connection != (head.stream == 0) {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR, "a frame on a stream where it does not belong"));
        }
        match head.kind {
            kind::DATA => self.data(head, payload, tell),
            kind::HEADERS => self.headers(head, payload, tell),
            kind::CONTINUATION => self.continuation(head, payload, tell),
            kind::RST_STREAM => self.reset_by_client(head.stream, payload, tell),
            kind::SETTINGS => self.settings(head, payload),
            kind::PING => self.pinged(head, payload),
            kind::WINDOW_UPDATE => self.window_update(head.stream, payload),
            kind::PRIORITY if payload.len() != 5 => {
                Err(Fault::stream(head.stream, Reason::FRAME_SIZE_ERROR, "a priority of another size"))
            }
            kind::GOAWAY if payload.len() < 8 => {
                Err(Fault::connection(Reason::FRAME_SIZE_ERROR, "a GOAWAY that is cut off"))
            }
            kind::PUSH_PROMISE => Err(Fault::connection(Reason::PROTOCOL_ERROR, "a client promises nothing")),
            // Frames of unknown types and PRIORITY frames are ignored. After a client's GOAWAY frame, the client's
            // remaining streams are still served.
            _ => self.counts.idle(),
        }
    }

    fn headers(&mut self, head: frame::Head, payload: &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let fragment = frame::fragment(head, payload)?;
        let is_end = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.block(head.stream, is_end, fragment, tell);
        }
        self.block = Some(Block { stream: head.stream, is_end, continuations: 0, bytes: fragment.to_vec() });
        Ok(())
    }

    fn continuation(
        &mut self,
        head: frame::Head,
        payload: &[u8],
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        let Some(mut block) = self.block.take().filter(|block| block.stream == head.stream) else {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR, "a CONTINUATION of nothing"));
        };
        block.continuations += 1;
        // A compressed head above the limit would be above it when decompressed, too.
        let is_large = block.bytes.len() + payload.len() > self.limits.head_bytes_max;
        if is_large || block.continuations > CONTINUATIONS_MAX {
            return Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "a head that goes on and on"));
        }
        block.bytes.extend_from_slice(payload);
        if head.has(flag::END_HEADERS) {
            return self.block(block.stream, block.is_end, &block.bytes, tell);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Handles a complete head, of a request or of trailers.
    fn block(
        &mut self,
        number: u32,
        is_end: bool,
        block: &[u8],
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        let broken = |Broken(why)| Fault::connection(Reason::COMPRESSION_ERROR, why);
        if let Some(stream) = self.streams.find(number) {
            let mut trailers = Trailers::default();
            self.decoder.decode(block, &mut trailers).map_err(broken)?;
            return self.trailers(stream, is_end, trailers, tell);
        }
        if number.is_multiple_of(2) {
            return Err(Fault::connection(Reason::PROTOCOL_ERROR, "streams of clients have odd numbers"));
        }
        if number <= self.last {
            self.decoder.decode(block, &mut Nobody).map_err(broken)?;
            return match self.reset.contains(&number) {
                true => self.counts.idle(),
                false => Err(Fault::connection(Reason::STREAM_CLOSED, "a head on a stream that has ended")),
            };
        }
        if matches!(self.leaving, Leaving::Since(_)) {
            self.decoder.decode(block, &mut Nobody).map_err(broken)?;
            return self.counts.idle();
        }
        self.last = number;
        let mut head = Head::new(self.limits.head_bytes_max);
        self.decoder.decode(block, &mut head).map_err(broken)?;
        if self.streams.len() >= self.limits.streams_max as usize {
            self.write_reset(number, Reason::REFUSED_STREAM);
            return self.counts.idle();
        }
        self.request(number, is_end, head.finish(is_end), tell)
    }

    fn request(
        &mut self,
        number: u32,
        is_end: bool,
        outcome: BlockOutcome,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        if let BlockOutcome::Malformed(why) = outcome {
            return Err(Fault::stream(number, Reason::PROTOCOL_ERROR, why));
        }
        let announced = if let BlockOutcome::Request(_, announced) = outcome { announced } else { None };
        let incoming = Incoming::new(self.limits.stream_window);
        let outgoing = Outgoing::new(self.peer.initial_window);
        let stream = self.streams.add(number, Stream::new(is_end, announced, incoming, outgoing));
        match outcome {
            BlockOutcome::Request(head, _) => tell(Event::Request { stream, head, is_end }),
            BlockOutcome::Connect => self.refuse(stream, StatusCode::METHOD_NOT_ALLOWED),
            BlockOutcome::TooLarge | BlockOutcome::Malformed(_) => {
                self.refuse(stream, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
            }
        }
        Ok(())
    }

    fn trailers(
        &mut self,
        id: StreamId,
        is_end: bool,
        trailers: Trailers,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        let number = id.number();
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.has_ended {
            return Err(Fault::stream(number, Reason::STREAM_CLOSED, "a head on a stream that has ended"));
        }
        if !is_end {
            return Err(Fault::stream(number, Reason::PROTOCOL_ERROR, "a second head"));
        }
        if let Some(why) = trailers.flaw {
            return Err(Fault::stream(number, Reason::PROTOCOL_ERROR, why));
        }
        self.data_of(id, &[], true, tell)
    }

    fn data(&mut self, head: frame::Head, payload: &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let number = head.stream;
        self.check_opened(number)?;
        // The padding of a DATA frame counts for flow control, too.
        if !self.incoming.take(payload.len()) {
            return Err(Fault::connection(Reason::FLOW_CONTROL_ERROR, "more than the connection's window"));
        }
        let data = head.unpadded(payload)?;
        let Some(id) = self.streams.find(number) else {
            self.release(payload.len());
            return match self.is_ignored(number) || self.reset.contains(&number) {
                true => self.counts.idle(),
                false => Err(Fault::stream(number, Reason::STREAM_CLOSED, "data on a stream that has ended")),
            };
        };
        let padding = payload.len() - data.len();
        self.release(padding);
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        let flaw = match stream.has_ended {
            true => Some((Reason::STREAM_CLOSED, "data behind the end of a stream")),
            false if !stream.incoming.take(payload.len()) => {
                Some((Reason::FLOW_CONTROL_ERROR, "more than the stream's window"))
            }
            false => None,
        };
        if let Some((reason, why)) = flaw {
            self.release(data.len());
            return Err(Fault::stream(number, reason, why));
        }
        let is_end = head.has(flag::END_STREAM);
        if data.is_empty() && !is_end {
            self.counts.idle()?;
        }
        self.release_of(id, padding);
        let told = self.data_of(id, data, is_end, tell);
        if told.is_err() {
            self.release(data.len());
        }
        told
    }

    /// Whether the stream is newer than the last one that the final GOAWAY frame accepts.
    fn is_ignored(&self, number: u32) -> bool {
        matches!(self.leaving, Leaving::Since(last) if number > last)
    }

    fn data_of(
        &mut self,
        id: StreamId,
        data: &[u8],
        is_end: bool,
        tell: &mut impl FnMut(Event<'_>),
    ) -> Result<(), Fault> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if !stream.count(data.len(), is_end) {
            let why = "the body is not as long as was announced";
            return Err(Fault::stream(id.number(), Reason::PROTOCOL_ERROR, why));
        }
        stream.has_ended = is_end;
        tell(Event::Data { stream: id, data, is_end });
        Ok(())
    }

    fn reset_by_client(&mut self, number: u32, payload: &[u8], tell: &mut impl FnMut(Event<'_>)) -> Result<(), Fault> {
        let reason = Reason(u32::from_be_bytes(frame::exactly(payload)?));
        self.check_opened(number)?;
        let Some(stream) = self.streams.find(number) else { return self.counts.idle() };
        let was_answered = self.streams.remove(stream).is_some_and(|stream| stream.is_answered);
        tell(Event::Reset { stream, reason });
        match was_answered {
            true => Ok(()),
            false => self.counts.took_back(self.limits.streams_max),
        }
    }

    /// Returns an error if a frame is on a stream that the client has never opened.
    fn check_opened(&self, number: u32) -> Result<(), Fault> {
        match number % 2 == 1 && (number <= self.last || self.is_ignored(number)) {
            true => Ok(()),
            false => Err(Fault::connection(Reason::PROTOCOL_ERROR, "a frame on a stream that was not opened")),
        }
    }

    fn settings(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fault> {
        self.counts.idle()?;
        if head.has(flag::ACK) {
            self.is_acknowledged = true;
            let [] = frame::exactly(payload)?;
            return Ok(());
        }
        let before = i64::from(self.peer.initial_window);
        self.peer.update(payload, |bytes| self.encoder.resize(bytes))?;
        self.is_open = true;
        let by = i64::from(self.peer.initial_window) - before;
        if by != 0 {
            self.change_windows(by)?;
        }
        self.control(kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    /// Applies a changed initial window size to all streams; their windows may become negative.
    fn change_windows(&mut self, by: i64) -> Result<(), Fault> {
        let mut changed = Ok(());
        let line = &mut self.line;
        self.streams.each(|id, stream| {
            changed = changed.and(stream.outgoing.change(by).map_err(|_| ()));
            if stream.may_send() && !std::mem::replace(&mut stream.in_line, true) {
                line.push_back(id);
            }
        });
        changed.map_err(|()| Fault::connection(Reason::FLOW_CONTROL_ERROR, "a window grows beyond 31 bits"))
    }

    fn pinged(&mut self, head: frame::Head, payload: &[u8]) -> Result<(), Fault> {
        self.counts.idle()?;
        let payload: [u8; 8] = frame::exactly(payload)?;
        match (head.has(flag::ACK), payload) {
            (false, _) => self.control(kind::PING, flag::ACK, 0, &payload),
            (true, KEEP_ALIVE) => self.is_ping_due = false,
            (true, FAREWELL) if self.leaving == Leaving::Announced => {
                self.leaving = Leaving::Since(self.last);
                self.go_away(self.last, Reason::NO_ERROR, "");
            }
            (true, _) => {}
        }
        Ok(())
    }

    fn window_update(&mut self, number: u32, payload: &[u8]) -> Result<(), Fault> {
        self.counts.idle()?;
        let by = u32::from_be_bytes(frame::exactly(payload)?) & NUMBER_MAX;
        if number == 0 {
            let why = match by {
                0 => (Reason::PROTOCOL_ERROR, "a window grows by nothing"),
                by if self.outgoing.change(by.into()).is_err() => {
                    (Reason::FLOW_CONTROL_ERROR, "a window grows beyond 31 bits")
                }
                _ => return Ok(()),
            };
            return Err(Fault::connection(why.0, why.1));
        }
        self.check_opened(number)?;
        if by == 0 {
            return Err(Fault::stream(number, Reason::PROTOCOL_ERROR, "a window grows by nothing"));
        }
        let Some(id) = self.streams.find(number) else { return Ok(()) };
        let Some(stream) = self.streams.get_mut(id) else { return Ok(()) };
        if stream.outgoing.change(by.into()).is_err() {
            return Err(Fault::stream(number, Reason::FLOW_CONTROL_ERROR, "a window grows beyond 31 bits"));
        }
        self.join_line(id);
        Ok(())
    }

    /// Widens the connection's window by the bytes of bodies that were read or are no longer needed.
    pub fn release(&mut self, bytes: usize) {
        if let Some(more) = self.incoming.give_back(bytes) {
            self.control(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }

    /// Widens the window of one stream by these bytes; the connection's window is separate.
    pub fn release_of(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if let Some(more) = stream.incoming.give_back(bytes).filter(|_| !stream.has_ended) {
            self.control(kind::WINDOW_UPDATE, 0, id.number(), &more.to_be_bytes());
        }
    }
}

/// Returns the head of a frame, or an error if the frame is larger than the maximum payload.
fn allowed(head: frame::Head) -> Result<frame::Head, Fault> {
    match head.length > PAYLOAD_BYTES_MAX {
        true => Err(Fault::connection(Reason::FRAME_SIZE_ERROR, "a frame that is too large")),
        false => Ok(head),
    }
}
