//! The server's side of HTTP/2 (RFC 9113) as a state machine.
//!
//! [`Connection`] takes the bytes that a client sent and returns their events; it takes responses and data, and
//! produces the bytes to send. It does no I/O and uses no clock, thread or task: its driver brings these. Whatever a
//! client sends, the machine does work in proportion to it, holds a bounded amount of memory, and never panics.
//!
//! Start at `connection.rs`; `frame.rs` has the layout of frames, and `hpack/` the compression of headers (RFC 7541).

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

pub use connection::{Answer, Connection, Event};
pub use limits::Limits;
pub use reason::Reason;
pub use stream::StreamId;
