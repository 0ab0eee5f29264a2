//! The peer's settings and ours (RFC 9113, section 6.5).

use crate::fault::Fault;
use crate::flow::WINDOW_BYTES;
use crate::frame::{self, NUMBER_MAX, PAYLOAD_BYTES_MAX, kind};
use crate::limits::Limits;
use crate::reason::Reason;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;
const MAX_HEADER_LIST_SIZE: u16 = 6;

/// The initial size of the header table.
pub const TABLE_BYTES: usize = 4_096;

/// The client's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    pub initial_window: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { initial_window: WINDOW_BYTES }
    }
}

impl Settings {
    /// Applies the payload of a SETTINGS frame; `table` is called with each header table size in the payload.
    pub fn update(&mut self, payload: &[u8], mut table: impl FnMut(usize)) -> Result<(), Fault> {
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(Fault::connection(Reason::FRAME_SIZE_ERROR, "a setting is cut off"));
        };
        for [n0, n1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            match u16::from_be_bytes([*n0, *n1]) {
                HEADER_TABLE_SIZE => table(value as usize),
                ENABLE_PUSH if value > 1 => {
                    return Err(Fault::connection(Reason::PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1"));
                }
                INITIAL_WINDOW_SIZE if value > NUMBER_MAX => {
                    return Err(Fault::connection(Reason::FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large"));
                }
                INITIAL_WINDOW_SIZE => self.initial_window = value,
                // Our frames keep the size that every peer accepts, because larger frames would delay other streams of
                // the connection.
                MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..0x100_0000).contains(&value) => {
                    return Err(Fault::connection(Reason::PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of bounds"));
                }
                // Settings with other numbers are unknown, or have no meaning for a server, and are ignored.
                _ => {}
            }
        }
        Ok(())
    }
}

/// Appends a SETTINGS frame with our settings.
pub fn announce(out: &mut Vec<u8>, limits: &Limits) {
    let mut payload = Vec::with_capacity(18);
    for (name, value) in [
        (MAX_CONCURRENT_STREAMS, limits.streams_max),
        (INITIAL_WINDOW_SIZE, limits.stream_window),
        (MAX_HEADER_LIST_SIZE, u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX)),
    ] {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame::write(out, kind::SETTINGS, 0, 0, &payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        /// A payload, the resulting initial window, and the table sizes in the payload.
        type Case = (&'static [u8], Result<(u32, &'static [usize]), Reason>);
        let cases: [Case; 11] = [
            (b"", Ok((65_535, &[]))),
            (b"\0\x01\0\0\0\0\0\x01\0\0\x20\0", Ok((65_535, &[0, 8192]))),
            (b"\0\x02\0\0\0\x01\0\x02\0\0\0\0", Ok((65_535, &[]))),
            (b"\0\x02\0\0\0\x02", Err(Reason::PROTOCOL_ERROR)),
            (b"\0\x04\x7f\xff\xff\xff", Ok((0x7fff_ffff, &[]))),
            (b"\0\x04\x80\0\0\0", Err(Reason::FLOW_CONTROL_ERROR)),
            (b"\0\x05\0\0\x3f\xff", Err(Reason::PROTOCOL_ERROR)),
            (b"\0\x05\x01\0\0\0", Err(Reason::PROTOCOL_ERROR)),
            (b"\0\x05\0\xff\xff\xff", Ok((65_535, &[]))),
            (b"\0\x99\xff\xff\xff\xff", Ok((65_535, &[]))),
            (b"\0\x04\0\0\0", Err(Reason::FRAME_SIZE_ERROR)),
        ];
        for (payload, expected) in cases {
            let (mut settings, mut sizes) = (Settings::default(), Vec::new());
            let read = settings.update(payload, |size| sizes.push(size));
            let read = read.map(|()| (settings.initial_window, &sizes[..])).map_err(|fault| fault.reason());
            assert_eq!(read, expected, "{payload:?}");
        }
    }
}
