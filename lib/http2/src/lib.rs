//! The server's side of HTTP/2 (RFC 9113) as a state machine.
//!
//! [`Connection`] receives the bytes that a client sent and returns their events; it receives responses and data, and
//! produces the bytes to send. A connection does no I/O and has no clock, thread or task: the driver does the I/O, and
//! calls the connection. For any input of a client, the machine does work in proportion to the bytes, uses a bounded
//! amount of memory, and never panics.
//!
//! Start at `connection/mod.rs`; `frame.rs` has the layout of frames, and `hpack/` the compression of headers (RFC
//! 7541).

mod connection;
mod fault;
mod flow;
pub mod frame;
mod head;
pub mod hpack;
mod limits;
mod output;
mod reason;
mod settings;
mod stream;

pub use connection::{Connection, Event, ResponseHead};
pub use limits::Limits;
pub use reason::Reason;
pub use stream::StreamId;
