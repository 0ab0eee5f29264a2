//! SPDY/3.1 as Kubernetes uses it: streams in one connection, without windows. So one slow reader slows the whole
//! connection.

mod connection;
mod frame;
mod headers;

pub use connection::{ConnectionLimits, Incoming, OpenedStream, ReadHalf, Spdy, SpdyStream, WriteHalf};
pub use frame::{Decoder, Encoder, Flaw, Frame, PIECE_BYTES_MAX};
pub use headers::{HEADER_BYTES_MAX, HEADERS_MAX, Headers};

#[cfg(test)]
mod tests;
