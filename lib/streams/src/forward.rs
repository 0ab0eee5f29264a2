//! Port forwarding: connections to ports of a pod, over SPDY (also tunnelled in a WebSocket) or as channels of a
//! WebSocket.

use crate::pipe::{StreamReader, StreamWriter};
use crate::spdy::{Headers, Incoming, Spdy, SpdyStream};
use crate::upgrade::{Agreed, TUNNEL, UpgradeProtocol};
use crate::websocket::{MessageForm, Open, Tunnel, channels};
use crate::{ConnectionLimits, Output, Socket};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

/// How long a client may take to open both streams of a connection.
const PAIR_TIME: Duration = Duration::from_secs(30);
/// The maximum number of connections with only one open stream. Further connections are refused.
const PAIRS_MAX: usize = 256;
/// The maximum number of ports of one WebSocket: each has two channels, which are numbered by one byte.
pub const PORTS_MAX: usize = 127;

/// The connections to ports that a client requests, one after another.
pub struct Forwards {
    kind: ForwardProtocol,
    closed: CancellationToken,
}

enum ForwardProtocol {
    Spdy {
        _spdy: Spdy,
        incoming: Incoming,
        pairs: HashMap<String, Half>,
    },
    /// The connections of a WebSocket, which are all known at once, in the order of the ports.
    WebSocket {
        forwards: std::vec::IntoIter<Forward>,
    },
}

/// The first stream that the client has opened for a connection, while the connection's second stream is missing.
struct Half {
    is_error: bool,
    stream: SpdyStream,
    port: u16,
    until: Instant,
}

/// One connection to a port.
pub struct Forward {
    pub port: u16,
    /// The data in both directions: tokio's `AsyncRead` and `AsyncWrite`, with half-closes over SPDY.
    pub data: Data,
    error: Output,
    /// Channels of a WebSocket cannot be closed one at a time, so the WebSocket is closed when the last of its
    /// connections ends.
    _open: Option<Arc<Open>>,
}

impl Forward {
    /// Sends the client an error about the connection, and ends it.
    pub async fn fail(mut self, why: &str) {
        _ = self.error.write_all(why.as_bytes()).await;
        _ = self.error.shutdown().await;
    }
}

/// The data of one connection.
pub struct Data(Wires);

enum Wires {
    Stream(SpdyStream),
    Channel(StreamReader, StreamWriter<Message>),
}

impl AsyncRead for Data {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Wires::Stream(stream) => Pin::new(stream).poll_read(context, output),
            Wires::Channel(reader, _) => Pin::new(reader).poll_read(context, output),
        }
    }
}

impl AsyncWrite for Data {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Wires::Stream(stream) => Pin::new(stream).poll_write(context, bytes),
            Wires::Channel(_, writer) => Pin::new(writer).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Written data is queued for sending, so there is nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Wires::Stream(stream) => Pin::new(stream).poll_shutdown(context),
            Wires::Channel(_, writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}

impl Forwards {
    /// Accepts an upgraded connection. `ports` are the ports in the request; only a WebSocket with channels needs them.
    pub async fn accept<S: Socket>(
        socket: S,
        agreed: &Agreed,
        ports: &[u16],
        limits: ConnectionLimits,
    ) -> io::Result<Forwards> {
        match agreed.wire {
            UpgradeProtocol::Spdy => Ok(Forwards::over_spdy(socket, limits)),
            UpgradeProtocol::WebSocket if agreed.protocol.starts_with(TUNNEL) => {
                Ok(Forwards::over_spdy(Tunnel::server(socket).await, limits))
            }
            UpgradeProtocol::WebSocket => {
                if ports.is_empty() || ports.len() > PORTS_MAX {
                    let why = format!("between 1 and {PORTS_MAX} ports can be forwarded, not {}", ports.len());
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                let (mut channels, started) = channels(socket, MessageForm::of(&agreed.protocol), limits).await;
                let mut streams = Vec::new();
                for (port, channel) in ports.iter().zip((0..).step_by(2)) {
                    let mut data = channels.write(channel);
                    let mut error = channels.write(channel + 1);
                    // Clients wait for these messages to know that the channels are open.
                    data.write_all(&port.to_le_bytes()).await?;
                    error.write_all(&port.to_le_bytes()).await?;
                    streams.push((*port, Data(Wires::Channel(channels.read(channel), data)), error));
                }
                let closed = channels.closed();
                let open = Arc::new(started.run(channels));
                let forward = |(port, data, error): (_, _, StreamWriter<Message>)| Forward {
                    port,
                    data,
                    error: Box::new(error),
                    _open: Some(open.clone()),
                };
                let forwards: Vec<Forward> = streams.into_iter().map(forward).collect();
                Ok(Forwards { kind: ForwardProtocol::WebSocket { forwards: forwards.into_iter() }, closed })
            }
        }
    }

    fn over_spdy<S: Socket>(socket: S, limits: ConnectionLimits) -> Forwards {
        let (spdy, incoming) = Spdy::server(socket, limits);
        let closed = spdy.closed();
        Forwards { kind: ForwardProtocol::Spdy { _spdy: spdy, incoming, pairs: HashMap::new() }, closed }
    }

    /// A token that is cancelled when the client has disconnected.
    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    /// The next connection that the client requests; `None` when it has disconnected.
    pub async fn next(&mut self) -> Option<Forward> {
        match &mut self.kind {
            ForwardProtocol::WebSocket { forwards } => match forwards.next() {
                Some(forward) => Some(forward),
                None => {
                    self.closed.cancelled().await;
                    None
                }
            },
            ForwardProtocol::Spdy { incoming, pairs, .. } => loop {
                let first = pairs.values().map(|half| half.until).min();
                let asked = tokio::select! {
                    asked = incoming.next() => asked?,
                    () = sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => {
                        // Drop streams whose partner did not arrive in time, which resets them.
                        pairs.retain(|_, half| half.until > Instant::now());
                        continue;
                    }
                };
                let Some((key, is_error, port)) = understood(asked.headers(), asked.id()) else { continue };
                if pairs.len() >= PAIRS_MAX && !pairs.contains_key(&key) {
                    continue;
                }
                let Ok(stream) = asked.accept().await else { continue };
                let half = Half { is_error, stream, port, until: Instant::now() + PAIR_TIME };
                let Some(first) = pairs.remove(&key) else {
                    pairs.insert(key, half);
                    continue;
                };
                if first.is_error == half.is_error || first.port != half.port {
                    // The two streams do not match: both are reset.
                    continue;
                }
                let (error, data) = if first.is_error { (first, half) } else { (half, first) };
                // The error stream is used in one direction only, and the client has closed its side.
                let error = Box::new(error.stream.split().1);
                return Some(Forward { port, data: Data(Wires::Stream(data.stream)), error, _open: None });
            },
        }
    }
}

/// Reads the headers of a stream: the id of its connection, whether it is the error stream, and the port.
fn understood(headers: &Headers, id: u32) -> Option<(String, bool, u16)> {
    let is_error = match headers.get("streamtype")? {
        "error" => true,
        "data" => false,
        _ => return None,
    };
    let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    let key = match headers.get("requestid").filter(|id| !id.is_empty()) {
        Some(request) => request.to_owned(),
        // The oldest clients send no request id. They open the error stream first, and then the data stream.
        None if is_error => format!("stream {id}"),
        None => format!("stream {}", id.checked_sub(2)?),
    };
    Some((key, is_error, port))
}

/// Opens a connection to a port, as a client.
pub async fn connect(spdy: &Spdy, port: u16, request: &str) -> io::Result<(SpdyStream, SpdyStream)> {
    let headers =
        |kind: &str| Headers::new().with("streamtype", kind).with("port", port.to_string()).with("requestid", request);
    let mut error = spdy.open(headers("error")).await?;
    error.shutdown().await?;
    let data = spdy.open(headers("data")).await?;
    Ok((data, error))
}
