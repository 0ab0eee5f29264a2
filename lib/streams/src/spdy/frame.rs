//! Encodes and decodes frames of SPDY/3.1, without I/O.

use super::headers::{Deflater, HEADER_BYTES_MAX, Headers, Inflater};
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest piece of a data frame; longer frames are passed on in pieces.
pub const PIECE_BYTES_MAX: usize = 16 << 10;
/// The longest frame other than data: its head and an incompressible block of headers.
const CONTROL_BYTES_MAX: usize = HEADER_BYTES_MAX + 1024;

const FIN: u8 = 1;
const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;

/// A violation of the frame format. The rest of the connection cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("a frame of a version other than SPDY/3")]
    Version,
    #[error("a frame of {0} bytes")]
    LongFrame(usize),
    #[error("a frame that is too short")]
    ShortFrame,
    #[error("a header block that cannot be decompressed")]
    Compression,
    #[error("a header block that makes no sense")]
    Headers,
    #[error("a header block that is too large")]
    LargeHeaders,
    #[error("a stream with the number {0}, which cannot be the next")]
    StreamId(u32),
}

/// A frame, or a piece of a data frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    SynStream {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    SynReply {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    Reset {
        id: u32,
        status: u32,
    },
    Ping(u32),
    GoAway {
        last: u32,
    },
    /// Later headers of a stream. Kubernetes does not use them.
    Headers {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    Data {
        id: u32,
        fin: bool,
        bytes: Bytes,
    },
}

/// Status codes of RST_STREAM frames.
pub const REFUSED: u32 = 3;
pub const CANCEL: u32 = 5;

/// Decodes frames from bytes in pieces of any size.
pub struct Decoder {
    inflater: Inflater,
    next: DecoderState,
}

#[derive(Clone, Copy)]
enum DecoderState {
    Head,
    Control {
        kind: u16,
        flags: u8,
        length: usize,
    },
    Data {
        id: u32,
        fin: bool,
        left: usize,
    },
    /// A frame whose remaining bytes are ignored.
    Skip {
        left: usize,
    },
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder { inflater: Inflater::new(), next: DecoderState::Head }
    }

    /// Takes the next frame from the input; `None` if it is not complete.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, Flaw> {
        loop {
            match self.next {
                DecoderState::Head => {
                    if input.len() < 8 {
                        return Ok(None);
                    }
                    self.next = head(input.get_u32(), input.get_u32())?;
                }
                DecoderState::Skip { left } => {
                    let skipped = left.min(input.len());
                    input.advance(skipped);
                    if skipped < left {
                        self.next = DecoderState::Skip { left: left - skipped };
                        return Ok(None);
                    }
                    self.next = DecoderState::Head;
                }
                DecoderState::Control { kind, flags, length } => {
                    if input.len() < length {
                        return Ok(None);
                    }
                    self.next = DecoderState::Head;
                    return self.control(kind, flags, input.split_to(length)).map(Some);
                }
                DecoderState::Data { fin: false, left: 0, .. } => self.next = DecoderState::Head,
                DecoderState::Data { left, .. } if left > 0 && input.is_empty() => return Ok(None),
                DecoderState::Data { id, fin, left } => {
                    let length = left.min(input.len()).min(PIECE_BYTES_MAX);
                    let left = left - length;
                    self.next = if left == 0 { DecoderState::Head } else { DecoderState::Data { id, fin, left } };
                    // The bytes are copied, so that a short piece does not keep the whole buffer in memory.
                    let bytes = Bytes::copy_from_slice(&input[..length]);
                    input.advance(length);
                    return Ok(Some(Frame::Data { id, fin: fin && left == 0, bytes }));
                }
            }
        }
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: BytesMut) -> Result<Frame, Flaw> {
        let mut number = || if payload.len() < 4 { Err(Flaw::ShortFrame) } else { Ok(payload.get_u32()) };
        let fin = flags & FIN != 0;
        let first = number()?;
        let id = first & 0x7fff_ffff;
        Ok(match kind {
            SYN_STREAM => {
                // The associated stream, the priority and the slot are not used.
                number()?;
                if payload.len() < 2 {
                    return Err(Flaw::ShortFrame);
                }
                payload.advance(2);
                Frame::SynStream { id, fin, headers: self.inflater.inflate(&payload)? }
            }
            SYN_REPLY => Frame::SynReply { id, fin, headers: self.inflater.inflate(&payload)? },
            HEADERS => Frame::Headers { id, fin, headers: self.inflater.inflate(&payload)? },
            RST_STREAM => Frame::Reset { id, status: number()? },
            PING => Frame::Ping(first),
            _ => Frame::GoAway { last: id },
        })
    }
}

fn head(first: u32, second: u32) -> Result<DecoderState, Flaw> {
    let [flags, length @ ..] = second.to_be_bytes();
    let length = usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]);
    if first & 0x8000_0000 == 0 {
        return Ok(DecoderState::Data { id: first, fin: flags & FIN != 0, left: length });
    }
    let [version, kind] = [first >> 16 & 0x7fff, first & 0xffff];
    if version != 3 {
        return Err(Flaw::Version);
    }
    match u16::try_from(kind).unwrap_or_default() {
        kind @ (SYN_STREAM | SYN_REPLY | RST_STREAM | PING | GOAWAY | HEADERS) => {
            if length > CONTROL_BYTES_MAX {
                return Err(Flaw::LongFrame(length));
            }
            Ok(DecoderState::Control { kind, flags, length })
        }
        // SETTINGS and WINDOW_UPDATE frames, which Kubernetes does not need.
        _ => Ok(DecoderState::Skip { left: length }),
    }
}

/// Encodes frames.
pub struct Encoder(Deflater);

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder(Deflater::new())
    }

    /// Appends a frame. Data must be shorter than 16 MiB.
    pub fn encode(&mut self, frame: &Frame, output: &mut BytesMut) {
        match frame {
            Frame::Data { id, fin, bytes } => {
                output.reserve(8 + bytes.len());
                output.put_u32(id & 0x7fff_ffff);
                output.put_u32(u32::from(flag(*fin)) << 24 | length(bytes.len()));
                output.put_slice(bytes);
            }
            Frame::SynStream { id, fin, headers } => {
                self.headers(SYN_STREAM, *fin, *id, &[0, 0, 0, 0, 0, 0], headers, output);
            }
            Frame::SynReply { id, fin, headers } => self.headers(SYN_REPLY, *fin, *id, &[], headers, output),
            Frame::Headers { id, fin, headers } => self.headers(HEADERS, *fin, *id, &[], headers, output),
            Frame::Reset { id, status } => numbers(RST_STREAM, &[*id, *status], output),
            Frame::Ping(id) => numbers(PING, &[*id], output),
            Frame::GoAway { last } => numbers(GOAWAY, &[*last, 0], output),
        }
    }

    fn headers(&mut self, kind: u16, fin: bool, id: u32, more: &[u8], headers: &Headers, output: &mut BytesMut) {
        let start = output.len();
        control(kind, fin, 0, output);
        output.put_u32(id);
        output.put_slice(more);
        self.0.deflate(headers, output);
        let length = length(output.len() - start - 8).to_be_bytes();
        output[start + 5..start + 8].copy_from_slice(&length[1..]);
    }
}

fn numbers(kind: u16, numbers: &[u32], output: &mut BytesMut) {
    control(kind, false, 4 * numbers.len(), output);
    numbers.iter().for_each(|number| output.put_u32(*number));
}

fn control(kind: u16, fin: bool, bytes: usize, output: &mut BytesMut) {
    output.put_u16(0x8003);
    output.put_u16(kind);
    output.put_u32(u32::from(flag(fin)) << 24 | length(bytes));
}

fn flag(fin: bool) -> u8 {
    if fin { FIN } else { 0 }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX) & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers() -> impl Strategy<Value = Headers> {
        proptest::collection::btree_map("[a-z-]{1,12}", "[ -~]{0,40}", 0..6)
            .prop_map(|pairs| pairs.into_iter().fold(Headers::new(), |all, (name, value)| all.with(&name, value)))
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let id = 1..0x7fff_ffffu32;
        let bytes = proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        prop_oneof![
            (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::SynStream { id, fin, headers }),
            (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::SynReply { id, fin, headers }),
            (id.clone(), any::<bool>(), headers()).prop_map(|(id, fin, headers)| Frame::Headers { id, fin, headers }),
            (id.clone(), any::<u32>()).prop_map(|(id, status)| Frame::Reset { id, status }),
            any::<u32>().prop_map(Frame::Ping),
            id.clone().prop_map(|last| Frame::GoAway { last }),
            (id, any::<bool>(), bytes).prop_map(|(id, fin, bytes)| Frame::Data { id, fin, bytes }),
        ]
    }

    /// The frames as a reader sees them, with adjacent pieces of one stream's data joined.
    fn joined(frames: Vec<Frame>) -> Vec<Frame> {
        let mut all: Vec<Frame> = Vec::new();
        for frame in frames {
            match (all.last_mut(), frame) {
                (_, Frame::Data { fin: false, bytes, .. }) if bytes.is_empty() => {}
                (Some(Frame::Data { id, fin: end @ false, bytes }), Frame::Data { id: own, fin, bytes: more })
                    if *id == own =>
                {
                    *bytes = [&bytes[..], &more[..]].concat().into();
                    *end = fin;
                }
                (_, frame) => all.push(frame),
            }
        }
        all
    }

    proptest! {
        #[test]
        fn frames_come_back_however_their_bytes_are_cut(
            frames in proptest::collection::vec(frame(), 0..12),
            cuts in proptest::collection::vec(1usize..60, 1..40),
        ) {
            let (mut encoder, mut wire) = (Encoder::new(), BytesMut::new());
            frames.iter().for_each(|frame| encoder.encode(frame, &mut wire));
            let (mut decoder, mut input, mut found) = (Decoder::new(), BytesMut::new(), Vec::new());
            let mut cuts = cuts.iter().cycle();
            while !wire.is_empty() {
                let cut = cuts.next().copied().unwrap_or(1).min(wire.len());
                input.extend_from_slice(&wire.split_to(cut));
                while let Some(frame) = decoder.decode(&mut input)? {
                    found.push(frame);
                }
            }
            prop_assert!(input.is_empty());
            prop_assert_eq!(joined(found), joined(frames));
        }

        #[test]
        fn any_bytes_are_frames_or_a_flaw(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let (mut decoder, mut input) = (Decoder::new(), BytesMut::from(&bytes[..]));
            let mut frames = 0;
            while let Ok(Some(_)) = decoder.decode(&mut input) {
                frames += 1;
            }
            prop_assert!(frames <= bytes.len() / 8, "each frame takes bytes");
        }
    }

    fn flaw(bytes: &[u8]) -> Result<Option<Frame>, Flaw> {
        Decoder::new().decode(&mut BytesMut::from(bytes))
    }

    #[test]
    fn what_breaks_the_rules_is_told() {
        assert_eq!(flaw(&[0x80, 2, 0, 1, 0, 0, 0, 0]), Err(Flaw::Version));
        assert_eq!(flaw(&[0x80, 3, 0, 1, 0, 0x10, 0, 0]), Err(Flaw::LongFrame(1 << 20)));
        assert_eq!(flaw(&[0x80, 3, 0, 6, 0, 0, 0, 2, 0, 0]), Err(Flaw::ShortFrame));
        assert_eq!(flaw(&[0x80, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0]), Err(Flaw::ShortFrame));
    }

    #[test]
    fn windows_and_settings_are_passed_over() {
        let mut input = BytesMut::from(&[0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0][..]);
        input.extend_from_slice(&[0x80, 3, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0]);
        Encoder::new().encode(&Frame::Ping(7), &mut input);
        assert_eq!(Decoder::new().decode(&mut input), Ok(Some(Frame::Ping(7))));
    }

    #[test]
    fn a_long_data_frame_comes_in_pieces() {
        let bytes = Bytes::from(vec![7; 3 * PIECE_BYTES_MAX + 5]);
        let mut wire = BytesMut::new();
        Encoder::new().encode(&Frame::Data { id: 3, fin: true, bytes: bytes.clone() }, &mut wire);
        let mut decoder = Decoder::new();
        let mut lengths = Vec::new();
        while let Ok(Some(Frame::Data { id: 3, fin, bytes })) = decoder.decode(&mut wire) {
            lengths.push((bytes.len(), fin));
        }
        let piece = (PIECE_BYTES_MAX, false);
        assert_eq!(lengths, [piece, piece, piece, (5, true)]);
    }
}
