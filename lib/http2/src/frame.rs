//! Frames on the wire (RFC 9113, sections 4 and 6).

use crate::fault::Fault;
use crate::reason::Reason;

/// The bytes with which a client begins a connection.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The number of bytes of a frame's head.
pub const HEAD_BYTES: usize = 9;
/// The largest payload that we accept. Every peer accepts payloads up to this size, too.
pub const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The highest stream number and the largest window: both are numbers of 31 bits.
pub const NUMBER_MAX: u32 = u32::MAX >> 1;

/// The numbers of the frame types.
pub mod kind {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags. The same bit has different meanings in different frames.
pub mod flag {
    pub const END_STREAM: u8 = 0x1;
    pub const ACK: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The head of a frame: the nine bytes before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The length of the payload.
    pub length: usize,
    pub kind: u8,
    pub flags: u8,
    /// The stream's number; 0 is the connection.
    pub stream: u32,
}

impl Head {
    /// Parses a frame's head; `None` while the bytes of the head are incomplete.
    pub fn parse(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & NUMBER_MAX;
        Some(Head { length, kind, flags, stream })
    }

    pub fn bytes(self) -> [u8; HEAD_BYTES] {
        let [_, l0, l1, l2] = (self.length as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind, self.flags, s0, s1, s2, s3]
    }

    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Returns the payload without its padding.
    pub fn unpadded(self, payload: &[u8]) -> Result<&[u8], Fault> {
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let Some((padding, rest)) = payload.split_first() else {
            return Err(Fault::connection(Reason::FRAME_SIZE_ERROR, "the length of the padding is missing"));
        };
        match rest.len().checked_sub(usize::from(*padding)) {
            Some(length) => Ok(&rest[..length]),
            None => Err(Fault::connection(Reason::PROTOCOL_ERROR, "there is more padding than payload")),
        }
    }
}

/// The compressed part of a HEADERS frame.
pub fn fragment(head: Head, payload: &[u8]) -> Result<&[u8], Fault> {
    let payload = head.unpadded(payload)?;
    if !head.has(flag::PRIORITY) {
        return Ok(payload);
    }
    // Priorities are skipped: RFC 9113 has deprecated them.
    payload.get(5..).ok_or(Fault::connection(Reason::FRAME_SIZE_ERROR, "the priority is cut off"))
}

/// Returns a payload that must have exactly this number of bytes.
pub fn exactly<const N: usize>(payload: &[u8]) -> Result<[u8; N], Fault> {
    payload.try_into().map_err(|_| Fault::connection(Reason::FRAME_SIZE_ERROR, "a frame of the wrong size"))
}

/// Appends a whole frame.
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&Head { length: payload.len(), kind, flags, stream }.bytes());
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_are_written() {
        let head = Head { length: 0x01_02_03, kind: kind::HEADERS, flags: 0x25, stream: 0x7fff_fffe };
        let bytes = head.bytes();
        assert_eq!(bytes, [1, 2, 3, 1, 0x25, 0x7f, 0xff, 0xff, 0xfe]);
        assert_eq!(Head::parse(&bytes), Some(head));
        assert_eq!(Head::parse(&[0, 0, 0, 0, 0, 0x80, 0, 0, 1]).unwrap().stream, 1, "the first bit means nothing");
        assert_eq!(Head::parse(&bytes[..8]), None);
    }

    #[test]
    fn padding_is_taken_off() {
        /// A payload, its flags, and the payload without padding.
        type Case = (&'static [u8], u8, Result<&'static [u8], Reason>);
        let cases: [Case; 6] = [
            (b"abc", 0, Ok(b"abc")),
            (b"\x02ab\0\0", flag::PADDED, Ok(b"ab")),
            (b"\x00abc", flag::PADDED, Ok(b"abc")),
            (b"\x02ab", flag::PADDED, Ok(b"")),
            (b"\x03ab", flag::PADDED, Err(Reason::PROTOCOL_ERROR)),
            (b"", flag::PADDED, Err(Reason::FRAME_SIZE_ERROR)),
        ];
        for (payload, flags, expected) in cases {
            let head = Head { length: payload.len(), kind: kind::DATA, flags, stream: 1 };
            assert_eq!(head.unpadded(payload).map_err(|fault| fault.reason()), expected, "{payload:?}");
        }
        let head = Head { length: 8, kind: kind::HEADERS, flags: flag::PADDED | flag::PRIORITY, stream: 1 };
        assert_eq!(fragment(head, b"\x01\0\0\0\0\x10x\0").unwrap(), b"x");
        assert!(fragment(head, b"\x01\0\0\0\0").is_err());
    }
}
