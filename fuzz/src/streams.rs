//! The input of a SPDY connection: frames as bytes, and mostly well-formed frames with compressed headers.

// Each target is compiled with the whole file, and uses one function.
#![allow(dead_code)]

use bytes::BytesMut;
use holdfast_streams::spdy::{Decoder, Encoder, Flaw, Frame, Headers, PIECE_BYTES_MAX};

/// A target and the name of its folder of seeds.
type Named = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Named; 2] = [("spdy", spdy), ("spdy_frames", spdy_frames)];

/// The most input that the decoder may hold before it returns a frame.
const HELD_BYTES_MAX: usize = (64 << 10) + 1024;

/// Any bytes: the result must not depend on the pieces in which they arrive, and buffered input is bounded.
pub fn spdy(bytes: &[u8]) {
    let whole = read(bytes, bytes.len());
    for piece in [1, 2 + bytes.len() % 50] {
        assert_eq!(read(bytes, piece), whole, "in pieces of {piece}");
    }
}

/// Frames: one byte each for kind, stream and length, then data or header names.
pub fn spdy_frames(bytes: &[u8]) {
    let (mut encoder, mut wire) = (Encoder::new(), BytesMut::new());
    let (mut rest, mut headers_sent) = (bytes, Vec::new());
    while let [kind, stream, length, after @ ..] = rest {
        let (payload, after) = after.split_at(after.len().min(usize::from(*length)));
        let text: String = payload.iter().map(|byte| char::from(byte % 26 + b'a')).collect();
        let headers = Headers::new().with("streamType", text.as_str()).with(&text, "");
        let (id, fin) = (u32::from(*stream), kind & 8 != 0);
        let frame = match kind % 8 {
            0 => Frame::SynStream { id, fin, headers },
            1 => Frame::SynReply { id, fin, headers },
            2 => Frame::Headers { id, fin, headers },
            3 => Frame::Reset { id, status: u32::from(*length) },
            4 => Frame::Ping(id),
            5 => Frame::GoAway { last: id },
            _ => Frame::Data { id, fin, bytes: payload.to_vec().into() },
        };
        if let Frame::SynStream { headers, .. } | Frame::SynReply { headers, .. } | Frame::Headers { headers, .. } =
            &frame
        {
            headers_sent.push(headers.clone());
        }
        encoder.encode(&frame, &mut wire);
        rest = after;
    }
    let (mut decoder, mut input, mut headers_read) = (Decoder::new(), wire.clone(), Vec::new());
    while let Some(frame) = decoder.decode(&mut input).expect("what was written is read") {
        if let Frame::SynStream { headers, .. } | Frame::SynReply { headers, .. } | Frame::Headers { headers, .. } =
            frame
        {
            headers_read.push(headers);
        }
    }
    assert_eq!(headers_read, headers_sent);
    spdy(&wire);
}

/// The frames, with adjacent data joined, and how decoding ended.
fn read(bytes: &[u8], piece: usize) -> (Vec<String>, Option<Flaw>) {
    let (mut decoder, mut input) = (Decoder::new(), BytesMut::new());
    let (mut frames, mut data): (Vec<String>, Vec<u8>) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut input) {
                Ok(None) => break,
                Ok(Some(Frame::Data { id, fin, bytes })) => {
                    assert!(bytes.len() <= PIECE_BYTES_MAX);
                    data.extend_from_slice(&bytes);
                    if fin {
                        frames.push(format!("data {id} to {}", data.len()));
                    }
                }
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Err(flaw) => return (frames, Some(flaw)),
            }
        }
        assert!(input.len() <= HELD_BYTES_MAX, "{} bytes are held", input.len());
    }
    frames.push(format!("{} bytes", data.len()));
    (frames, None)
}
