//! SPDY/3.1, as Kubernetes speaks it: streams within one connection, without windows, so that whoever reads slowly slows
//! the whole connection.

mod connection;
mod frame;
mod headers;

pub use connection::{Asked, Incoming, Limits, ReadHalf, Spdy, Stream, WriteHalf};
pub use frame::{Decoder, Encoder, Flaw, Frame, PIECE_BYTES_MAX};
pub use headers::{HEADER_BYTES_MAX, HEADERS_MAX, Headers};

#[cfg(test)]
mod tests;
