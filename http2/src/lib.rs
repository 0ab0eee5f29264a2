//! The server's side of HTTP/2 (RFC 9113) as a state machine.
//!
//! [`Connection`] takes the bytes that a client sent and tells what they mean; it takes answers and data, and has the
//! bytes that are to go out. It does no I/O and knows no clock, thread or task: a driver brings all of these. Whatever
//! a client sends, the machine does work in proportion to it, holds a bounded amount of memory, and never panics.
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
