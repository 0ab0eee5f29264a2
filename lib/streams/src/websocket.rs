//! WebSockets in two forms: with messages whose first byte is the channel, and with a single stream of bytes.

use crate::deaf::Deaf;
use crate::pipe::{ByteBudget, Feeder, Outbox, Outgoing, StreamReader, StreamWriter};
use crate::{ConnectionLimits, Socket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use std::collections::HashMap;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::sync::CancellationToken;

/// The longest message from the other side. Clients send files in far smaller messages.
pub const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// In version 5 of the protocol for remote commands, a message with this channel byte ends a channel.
const CLOSE_CHANNEL: u8 = 255;

/// A close message with the code for a normal end. Clients treat a connection that ends in any other way as failed.
fn normal_end() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
}

fn configuration() -> WebSocketConfig {
    let bounded = WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX));
    bounded.max_frame_size(Some(MESSAGE_BYTES_MAX)).max_write_buffer_size(MESSAGE_BYTES_MAX)
}

/// How a message encodes its channel and its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageForm {
    /// The channel as a byte, then the bytes.
    Binary,
    /// The channel as a digit, then the bytes in base64.
    Base64,
    /// Like [`MessageForm::Binary`]; the other side may end single channels.
    BinaryWithEnds,
}

impl MessageForm {
    /// The form of messages that a subprotocol uses.
    pub fn of(protocol: &str) -> MessageForm {
        match protocol {
            "v5.channel.k8s.io" => MessageForm::BinaryWithEnds,
            _ if protocol.contains("base64") => MessageForm::Base64,
            _ => MessageForm::Binary,
        }
    }

    fn message(self, channel: Option<u8>, bytes: &[u8]) -> Message {
        match self {
            MessageForm::Base64 => {
                let mut text = String::with_capacity(1 + bytes.len().div_ceil(3) * 4);
                if let Some(channel) = channel {
                    text.push(char::from(b'0'.saturating_add(channel)));
                }
                STANDARD.encode_string(bytes, &mut text);
                Message::Text(text.into())
            }
            MessageForm::Binary | MessageForm::BinaryWithEnds => {
                let mut message = BytesMut::with_capacity(1 + bytes.len());
                message.extend(channel);
                message.put_slice(bytes);
                Message::Binary(message.freeze())
            }
        }
    }

    /// Decodes a message to its channel and bytes.
    fn read(self, message: Bytes) -> Result<Option<(u8, Bytes)>, MalformedMessage> {
        let Some((&first, rest)) = message.split_first() else { return Ok(None) };
        match self {
            MessageForm::Base64 => {
                let bytes = STANDARD.decode(rest).map_err(|_| MalformedMessage)?;
                Ok(Some((first.wrapping_sub(b'0'), bytes.into())))
            }
            MessageForm::Binary | MessageForm::BinaryWithEnds => Ok(Some((first, message.slice(1..)))),
        }
    }
}

/// The error for a malformed message. It ends the connection.
#[derive(Debug)]
struct MalformedMessage;

/// A WebSocket with numbered channels.
pub struct Channels {
    form: MessageForm,
    outbox: Outbox<Message>,
    arrived: ByteBudget,
    closed: CancellationToken,
    feeders: HashMap<u8, Feeder>,
    known: Vec<u8>,
}

impl Channels {
    /// The reader of a channel; data arrives once [`Started::run`] was called.
    pub fn read(&mut self, channel: u8) -> StreamReader {
        let (feeder, reader) = Feeder::new(&self.arrived);
        self.feeders.insert(channel, feeder);
        self.known.push(channel);
        reader
    }

    /// The writer of a channel, whose messages are queued for sending.
    pub fn write(&mut self, channel: u8) -> StreamWriter<Message> {
        self.known.push(channel);
        let form = self.form;
        StreamWriter::new(self.outbox.clone(), None, move |bytes| form.message(Some(channel), bytes))
    }

    /// Sends an empty message on a channel. Clients wait for this message to know that the connection is open.
    pub fn greet(&self, channel: u8) {
        self.outbox.send_now(self.form.message(Some(channel), &[]));
    }

    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

/// A WebSocket from which nothing has been read yet.
pub struct Started<S> {
    socket: WebSocketStream<Deaf<S>>,
    /// This token is cancelled when the other side no longer reads.
    deaf: CancellationToken,
    outgoing: UnboundedReceiver<Outgoing<Message>>,
    room: ByteBudget,
    limits: ConnectionLimits,
}

/// The server's side of an upgraded connection. Register the channels first, then call [`Started::run`].
pub async fn channels<S: Socket>(socket: S, form: MessageForm, limits: ConnectionLimits) -> (Channels, Started<S>) {
    let deaf = CancellationToken::new();
    let socket = Deaf::new(socket, deaf.clone());
    let socket = WebSocketStream::from_raw_socket(socket, Role::Server, Some(configuration())).await;
    let room = ByteBudget::new(limits.outgoing_bytes);
    let (outbox, outgoing) = Outbox::new(&room);
    let channels = Channels {
        form,
        outbox,
        arrived: ByteBudget::new(limits.arrived_bytes),
        closed: CancellationToken::new(),
        feeders: HashMap::new(),
        known: Vec::new(),
    };
    (channels, Started { socket, deaf, outgoing, room, limits })
}

impl<S: Socket> Started<S> {
    /// Starts reading and writing. The connection ends when the other side ends it, or when the returned handle and all
    /// writers are dropped and everything is written.
    pub fn run(self, channels: Channels) -> Open {
        let Channels { form, outbox, closed, feeders, known, .. } = channels;
        let Started { socket, deaf, outgoing, room, limits } = self;
        let (sink, stream) = socket.split();
        let moved = tokio::sync::watch::Sender::new(());
        let reading = Reading { stream, form, feeders, known, pong: Pong { period: limits.pong, payload: None } };
        let weak = outbox.weak();
        let own = closed.clone();
        tokio::spawn(async move {
            let (mut reading, mut writing) = (reading, SocketWriter { sink, outgoing });
            let end = {
                let mut read = pin!(reading.run(&weak, &moved));
                tokio::select! {
                    read = &mut read => read.unwrap_or(ConnectionEnd::Broken),
                    written = writing.run(&moved) => written.map_or(ConnectionEnd::Broken, |()| ConnectionEnd::Ours),
                    () = idle(moved.subscribe(), limits.idle) => ConnectionEnd::Broken,
                    // Data that the other side sent before it stopped reading is still delivered to the readers.
                    () = deaf.cancelled() => {
                        own.cancel();
                        room.close();
                        _ = timeout(limits.drain, read).await;
                        ConnectionEnd::Broken
                    }
                }
            };
            own.cancel();
            room.close();
            let Reading { stream, feeders, .. } = &mut reading;
            feeders.drain().for_each(|(_, feeder)| feeder.end());
            let goodbye = async {
                match end {
                    ConnectionEnd::Ours => {
                        writing.sink.send(normal_end()).await?;
                        // Reads until the close message of the other side, which proves that it has received
                        // everything. Only then the socket closes.
                        while let Some(Ok(_)) = stream.next().await {}
                    }
                    // Sends the queued answer to the close message.
                    ConnectionEnd::Theirs => writing.sink.flush().await?,
                    ConnectionEnd::Broken => {}
                }
                Ok::<_, Error>(())
            };
            _ = timeout(limits.end, goodbye).await;
        });
        Open { _outbox: outbox, closed }
    }
}

/// Keeps the connection open while this value exists.
pub struct Open {
    _outbox: Outbox<Message>,
    closed: CancellationToken,
}

impl Open {
    pub fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }
}

async fn idle(mut moved: tokio::sync::watch::Receiver<()>, limit: Duration) {
    while let Ok(Ok(())) = timeout(limit, moved.changed()).await {}
}

type Moved = tokio::sync::watch::Sender<()>;

/// How a connection has ended.
enum ConnectionEnd {
    /// This side has written everything that it had to send.
    Ours,
    /// The other side has sent a close message.
    Theirs,
    Broken,
}

struct Pong {
    period: Duration,
    /// The payload of the other side's last ping.
    payload: Option<Bytes>,
}

struct Reading<S> {
    stream: SplitStream<WebSocketStream<Deaf<S>>>,
    form: MessageForm,
    feeders: HashMap<u8, Feeder>,
    known: Vec<u8>,
    pong: Pong,
}

impl<S: Socket> Reading<S> {
    async fn run(
        &mut self,
        outbox: &crate::pipe::WeakOutbox<Message>,
        moved: &Moved,
    ) -> Result<ConnectionEnd, MalformedMessage> {
        while let Some(Ok(message)) = self.stream.next().await {
            _ = moved.send(());
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => Bytes::from(text),
                Message::Ping(payload) => {
                    self.pong.payload = Some(payload);
                    continue;
                }
                Message::Close(_) => return Ok(ConnectionEnd::Theirs),
                Message::Pong(_) | Message::Frame(_) => continue,
            };
            let Some((channel, bytes)) = self.form.read(bytes)? else { continue };
            if self.form == MessageForm::BinaryWithEnds && channel == CLOSE_CHANNEL {
                let [ended] = bytes[..] else { return Err(MalformedMessage) };
                if !self.known.contains(&ended) {
                    return Err(MalformedMessage);
                }
                if let Some(feeder) = self.feeders.remove(&ended) {
                    feeder.end();
                }
                continue;
            }
            let Some(feeder) = self.feeders.get(&channel) else { continue };
            // No pings are read while the reader has no room. So the last ping is answered repeatedly: clients close a
            // connection whose pings get no answer.
            let mut feeding = pin!(feeder.feed(bytes));
            loop {
                tokio::select! {
                    () = &mut feeding => break,
                    () = sleep(self.pong.period), if self.pong.payload.is_some() => {
                        if let (Some(payload), Some(outbox)) = (&self.pong.payload, outbox.open()) {
                            outbox.try_send(Message::Pong(payload.clone()), payload.len());
                        }
                    }
                }
            }
        }
        Ok(ConnectionEnd::Broken)
    }
}

struct SocketWriter<S> {
    sink: SplitSink<WebSocketStream<Deaf<S>>, Message>,
    outgoing: UnboundedReceiver<Outgoing<Message>>,
}

impl<S: Socket> SocketWriter<S> {
    async fn run(&mut self, moved: &Moved) -> Result<(), Error> {
        while let Some(first) = self.outgoing.recv().await {
            let (mut next, mut rooms) = (Some(first), Vec::new());
            while let Some(outgoing) = next {
                let (message, room) = outgoing.open();
                self.sink.feed(message).await?;
                rooms.extend(room);
                next = (rooms.len() < 8).then(|| self.outgoing.try_recv().ok()).flatten();
            }
            self.sink.flush().await?;
            _ = moved.send(());
        }
        Ok(())
    }
}

/// Sends one stream of bytes as a WebSocket without channels, as for logs, until the stream ends or the other side
/// disconnects.
pub async fn send_all<S: Socket>(
    socket: S,
    form: MessageForm,
    mut source: impl AsyncRead + Unpin,
    limits: ConnectionLimits,
) {
    let (channels, started) = channels(socket, form, limits).await;
    let mut writer = StreamWriter::new(channels.outbox.clone(), None, move |bytes| form.message(None, bytes));
    let open = started.run(channels);
    tokio::select! {
        () = open.closed.cancelled() => {}
        _ = tokio::io::copy(&mut source, &mut writer) => {}
    }
}

/// A stream of bytes in the binary messages of a WebSocket. The boundaries of the messages have no meaning.
pub struct Tunnel<S> {
    socket: WebSocketStream<Deaf<S>>,
    arrived: Bytes,
    ended: bool,
    /// Whether this side has sent its close message.
    closing: bool,
}

impl<S: Socket> Tunnel<S> {
    /// The server's side of an upgraded connection.
    pub async fn server(socket: S) -> Tunnel<S> {
        Tunnel::new(socket, Role::Server).await
    }

    /// The client's side of an upgraded connection.
    pub async fn client(socket: S) -> Tunnel<S> {
        Tunnel::new(socket, Role::Client).await
    }

    async fn new(socket: S, role: Role) -> Tunnel<S> {
        // Data that the other side no longer reads is dropped. The connection ends when the other side stops sending.
        let socket = Deaf::new(socket, CancellationToken::new());
        let socket = WebSocketStream::from_raw_socket(socket, role, Some(configuration())).await;
        Tunnel { socket, arrived: Bytes::new(), ended: false, closing: false }
    }
}

fn broken(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl<S: Socket> AsyncRead for Tunnel<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.arrived.is_empty() && !self.ended {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.arrived = bytes,
                Some(Ok(Message::Text(_))) => {
                    let why = "a text message in a tunnel, which carries bytes";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
                }
                Some(Ok(Message::Close(_))) | None => self.ended = true,
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(broken(error))),
            }
        }
        let length = self.arrived.len().min(output.remaining());
        output.put_slice(&self.arrived[..length]);
        self.arrived.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: Socket> AsyncWrite for Tunnel<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let length = bytes.len().min(crate::pipe::WRITE_BYTES_MAX);
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
        let message = Message::Binary(Bytes::copy_from_slice(&bytes[..length]));
        Pin::new(&mut self.socket).start_send(message).map_err(broken)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context).map_err(broken)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing && !self.ended {
            ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(broken)?;
            Pin::new(&mut self.socket).start_send(normal_end()).map_err(broken)?;
        }
        self.closing = true;
        match ready!(Pin::new(&mut self.socket).poll_flush(context)) {
            Err(Error::ConnectionClosed | Error::AlreadyClosed) | Ok(()) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(broken(error))),
        }
    }
}
