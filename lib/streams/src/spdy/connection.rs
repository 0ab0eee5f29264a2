//! A connection and its streams, for either side.
//!
//! One task reads frames and passes data to the readers of the streams, and concurrently writes the frames of the
//! streams in order. There are no windows: a slow reader of one stream stops all reading, and with it the sender. The
//! connection ends when the other side ends it, when this side has dropped all handles and everything is written, or
//! when nothing was transferred for [`ConnectionLimits::idle`].

use super::frame::{CANCEL, Decoder, Encoder, Frame, REFUSED};
use super::{Flaw, Headers};
use crate::pipe::{ByteBudget, Feeder, Outbox, Outgoing, StreamReader, StreamWriter, WeakOutbox};
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf as Half, WriteHalf as OtherHalf,
};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The number of bytes that are read or written at once.
const BUFFER_BYTES: usize = 16 << 10;
/// The maximum number of streams that the other side has opened and that are not accepted yet. Reading pauses while
/// there are more.
const ASKED_MAX: usize = 16;
/// The cost of a frame without data in the outbox, in bytes.
const FRAME_COST: usize = 64;

/// The limits on the memory and the waits of a connection.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// The maximum number of bytes of all streams that have arrived and are not read.
    pub arrived_bytes: u32,
    /// The maximum number of bytes of all streams that wait to be sent.
    pub outgoing_bytes: u32,
    /// The maximum number of streams that are open at once.
    pub streams: usize,
    /// How long the other side may take to reply to a stream that this side opens, or to open the agreed streams.
    pub reply: Duration,
    /// How often a client's pings are answered while there is no room for its data. Without these answers the client
    /// would close the connection.
    pub pong: Duration,
    /// The maximum time in which no byte is transferred in either direction. After that time the connection is closed.
    pub idle: Duration,
    /// The maximum time for the last input: data that a client sent before it stopped reading, or data for a server
    /// that is queued when no stream is left on this side. The duration of output is not limited.
    pub drain: Duration,
    /// How long the other side may take to end a finished connection.
    pub end: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            arrived_bytes: 256 << 10,
            outgoing_bytes: 64 << 10,
            streams: 4096,
            reply: Duration::from_secs(30),
            pong: Duration::from_secs(5),
            idle: Duration::from_secs(4 * 3600),
            drain: Duration::from_secs(10),
            end: Duration::from_secs(5),
        }
    }
}

/// A handle of a connection, with which this side opens streams.
#[derive(Clone)]
pub struct Spdy {
    outbox: Outbox<Frame>,
    shared: Arc<ConnectionState>,
}

struct ConnectionState {
    table: Mutex<StreamTable>,
    arrived: ByteBudget,
    closed: CancellationToken,
    limits: ConnectionLimits,
    /// The time of the last transfer, in milliseconds since the start.
    moved: AtomicU64,
    start: Instant,
    /// Whether the other side's streams have odd numbers.
    peer_is_client: bool,
}

#[derive(Default)]
struct StreamTable {
    streams: HashMap<u32, StreamEntry>,
    next: u32,
    /// The last stream number that the other side has used.
    last: u32,
    gone_away: bool,
}

struct StreamEntry {
    feeder: Option<Feeder>,
    replied: Option<oneshot::Sender<()>>,
    sent_all: bool,
    over: Arc<AtomicBool>,
}

impl ConnectionState {
    fn table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self) {
        self.moved.store(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl StreamTable {
    fn remove(&mut self, id: u32) -> Option<StreamEntry> {
        let entry = self.streams.remove(&id)?;
        entry.over.store(true, Ordering::Relaxed);
        Some(entry)
    }
}

/// The streams that the other side opens. The connection stays open while this value exists.
pub struct Incoming {
    asked: Receiver<OpenedStream>,
    _open: Outbox<Frame>,
}

impl Incoming {
    /// The next stream; `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<OpenedStream> {
        self.asked.recv().await
    }
}

/// A stream that the other side has opened. The stream is refused if this value is dropped.
pub struct OpenedStream {
    headers: Headers,
    id: u32,
    /// `None` once the stream is accepted.
    stream: Option<SpdyStream>,
}

impl OpenedStream {
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub async fn accept(mut self) -> io::Result<SpdyStream> {
        let stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        let reply = Frame::SynReply { id: self.id, fin: false, headers: Headers::new() };
        stream.write.outbox.send(reply, FRAME_COST).await?;
        Ok(stream)
    }
}

impl Drop for OpenedStream {
    fn drop(&mut self) {
        // A refused stream is reset without an end.
        if let Some(stream) = &mut self.stream {
            stream.write.writer.abandon();
        }
    }
}

impl Spdy {
    /// Starts a connection on the side that has requested the connection.
    pub fn client<S: AsyncRead + AsyncWrite + Send + 'static>(socket: S, limits: ConnectionLimits) -> (Spdy, Incoming) {
        Spdy::new(socket, limits, false)
    }

    /// Starts a connection on the side that has accepted the connection.
    pub fn server<S: AsyncRead + AsyncWrite + Send + 'static>(socket: S, limits: ConnectionLimits) -> (Spdy, Incoming) {
        Spdy::new(socket, limits, true)
    }

    fn new<S: AsyncRead + AsyncWrite + Send + 'static>(
        socket: S,
        limits: ConnectionLimits,
        peer_is_client: bool,
    ) -> (Spdy, Incoming) {
        let (outbox, outgoing) = Outbox::new(&ByteBudget::new(limits.outgoing_bytes));
        let (asked, incoming) = channel(ASKED_MAX);
        let shared = Arc::new(ConnectionState {
            table: Mutex::new(StreamTable { next: if peer_is_client { 2 } else { 1 }, ..StreamTable::default() }),
            arrived: ByteBudget::new(limits.arrived_bytes),
            closed: CancellationToken::new(),
            limits,
            moved: AtomicU64::new(0),
            start: Instant::now(),
            peer_is_client,
        });
        let (read, write) = tokio::io::split(socket);
        let reading = Reading { socket: read, shared: shared.clone(), outbox: outbox.weak(), asked };
        let writing = FrameWriter { socket: write, shared: shared.clone(), outgoing, encoder: Encoder::new() };
        tokio::spawn(run(reading, writing, outbox.room().clone(), outbox.unused(), shared.clone()));
        (Spdy { outbox: outbox.clone(), shared }, Incoming { asked: incoming, _open: outbox })
    }

    /// Opens a stream, and waits for the other side's reply.
    pub async fn open(&self, headers: Headers) -> io::Result<SpdyStream> {
        let (replied, reply) = oneshot::channel();
        let room = self.outbox.reserve(FRAME_COST).await?;
        let stream = {
            let mut table = self.shared.table();
            if self.shared.closed.is_cancelled() || table.gone_away || table.next > 0x7fff_fffd {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection is closing"));
            }
            if table.streams.len() >= self.shared.limits.streams {
                return Err(io::Error::other("too many streams are open on the connection"));
            }
            let id = table.next;
            table.next += 2;
            let stream = stream(&self.shared, &mut table, &self.outbox, id, headers.clone(), Some(replied));
            // The frame is sent under the lock, because stream numbers must be sent in order.
            self.outbox.send_with(Frame::SynStream { id, fin: false, headers }, room);
            stream
        };
        match timeout(self.shared.limits.reply, reply).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "the stream was reset")),
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "timed out waiting for the stream to be accepted")),
        }
    }

    /// Sends a ping, so that middleboxes keep the connection. The answer is not awaited.
    pub fn ping(&self) {
        self.outbox.try_send(Frame::Ping(if self.shared.peer_is_client { 2 } else { 1 }), FRAME_COST);
    }

    /// A token that is cancelled when the connection has ended.
    pub fn closed(&self) -> CancellationToken {
        self.shared.closed.clone()
    }
}

fn stream(
    shared: &Arc<ConnectionState>,
    table: &mut StreamTable,
    outbox: &Outbox<Frame>,
    id: u32,
    headers: Headers,
    replied: Option<oneshot::Sender<()>>,
) -> SpdyStream {
    let (feeder, reader) = Feeder::new(&shared.arrived);
    let over = Arc::new(AtomicBool::new(false));
    table.streams.insert(id, StreamEntry { feeder: Some(feeder), replied, sent_all: false, over: over.clone() });
    let guard = Arc::new(Guard { id, outbox: outbox.clone(), over });
    let end = Frame::Data { id, fin: true, bytes: Bytes::new() };
    let wrap = move |bytes: &[u8]| Frame::Data { id, fin: false, bytes: Bytes::copy_from_slice(bytes) };
    let write = WriteHalf {
        writer: StreamWriter::new(outbox.clone(), Some(end), wrap),
        outbox: outbox.clone(),
        guard: guard.clone(),
    };
    SpdyStream { headers, read: ReadHalf { reader, _guard: guard }, write }
}

/// Resets the stream if all its handles are dropped before it has ended.
struct Guard {
    id: u32,
    outbox: Outbox<Frame>,
    over: Arc<AtomicBool>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.over.load(Ordering::Relaxed) {
            self.outbox.send_now(Frame::Reset { id: self.id, status: CANCEL });
        }
    }
}

/// One stream. A shutdown of its writer sends a half-close. If the stream is dropped before both sides have ended it,
/// it is reset.
pub struct SpdyStream {
    pub headers: Headers,
    read: ReadHalf,
    write: WriteHalf,
}

impl SpdyStream {
    pub fn id(&self) -> u32 {
        self.write.guard.id
    }

    pub fn split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }
}

/// Reads a stream. After it is dropped, arriving data is dropped as well.
pub struct ReadHalf {
    reader: StreamReader,
    _guard: Arc<Guard>,
}

/// Writes to a stream. This side of the stream is closed when this value is dropped.
pub struct WriteHalf {
    // Fields are dropped in order: the end of the stream is sent before the guard's reset.
    writer: StreamWriter<Frame>,
    outbox: Outbox<Frame>,
    guard: Arc<Guard>,
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, output)
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.guard.over.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.writer).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.writer).poll_shutdown(context)
    }
}

impl AsyncRead for SpdyStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, output)
    }
}

impl AsyncWrite for SpdyStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}

async fn run<S: AsyncRead + AsyncWrite + Send + 'static>(
    mut reading: Reading<S>,
    mut writing: FrameWriter<S>,
    outgoing: ByteBudget,
    unused: CancellationToken,
    shared: Arc<ConnectionState>,
) {
    let late = || Fault::Io(io::ErrorKind::TimedOut.into());
    let (ended, is_finished) = {
        let mut read = pin!(reading.run());
        tokio::select! {
            read = &mut read => (read, false),
            written = writing.run() => match written {
                Ok(()) => (Ok(()), true),
                // The other side has stopped reading. The data that the other side sent before is still delivered.
                Err(error) => {
                    shared.closed.cancel();
                    outgoing.close();
                    let limits = &shared.limits;
                    let limit = if shared.peer_is_client { limits.drain } else { limits.idle };
                    let read = timeout(limit, read).await;
                    (read.unwrap_or(Err(error.into())), false)
                }
            },
            () = idle(&shared) => (Err(late()), false),
            () = async { unused.cancelled().await; sleep(shared.limits.drain).await }, if !shared.peer_is_client => {
                (Err(late()), false)
            }
        }
    };
    let is_clean = ended.is_ok();
    if let Err(fault) = ended {
        tracing::debug!(%fault, "a SPDY connection ends");
    }
    if is_finished && is_clean {
        // Closing a socket with unread data may discard sent data, so wait until the other side closes.
        _ = timeout(shared.limits.end, writing.end(&mut reading.socket)).await;
    }
    shared.closed.cancel();
    outgoing.close();
    let streams = std::mem::take(&mut shared.table().streams);
    for (_, entry) in streams {
        entry.over.store(true, Ordering::Relaxed);
        // Kubernetes' servers end streams when they end the connection.
        if let (Some(feeder), true) = (entry.feeder, is_clean) {
            feeder.end();
        }
    }
}

async fn idle(shared: &ConnectionState) {
    loop {
        let moved = shared.moved.load(Ordering::Relaxed);
        let until = shared.start + Duration::from_millis(moved) + shared.limits.idle;
        if until <= Instant::now() {
            return;
        }
        sleep_until(until).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Flaw(#[from] Flaw),
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Reading<S> {
    socket: Half<S>,
    shared: Arc<ConnectionState>,
    outbox: WeakOutbox<Frame>,
    asked: Sender<OpenedStream>,
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> Reading<S> {
    /// Reads until the other side ends the connection, or violates the protocol.
    async fn run(&mut self) -> Result<(), Fault> {
        let (mut decoder, mut input) = (Decoder::new(), BytesMut::new());
        loop {
            while let Some(frame) = decoder.decode(&mut input)? {
                self.take(frame).await?;
            }
            if input.is_empty() {
                // Frees a buffer that has grown for headers.
                input = BytesMut::with_capacity(BUFFER_BYTES);
            }
            input.reserve(BUFFER_BYTES / 2);
            if self.socket.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            self.shared.moves();
        }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Fault> {
        match frame {
            Frame::Data { id, fin, bytes } => {
                let feeder = self.shared.table().streams.get(&id).and_then(|entry| entry.feeder.clone());
                if let Some(feeder) = feeder {
                    feeder.feed(bytes).await;
                }
                self.ended(id, fin);
            }
            Frame::SynStream { id, fin, headers } => self.asked(id, fin, headers).await?,
            Frame::SynReply { id, fin, .. } => {
                let replied = self.shared.table().streams.get_mut(&id).and_then(|entry| entry.replied.take());
                if let Some(replied) = replied {
                    _ = replied.send(());
                }
                self.ended(id, fin);
            }
            Frame::Headers { id, fin, .. } => self.ended(id, fin),
            Frame::Reset { id, .. } => _ = self.shared.table().remove(id),
            Frame::Ping(id) => {
                // Pings of the other side are answered; a ping with one of this side's numbers is an answer to an
                // earlier ping.
                if (id % 2 == 1) == self.shared.peer_is_client
                    && let Some(outbox) = self.outbox.open()
                {
                    // Sending fails when the other side no longer reads. Its remaining data is still read.
                    _ = outbox.send(Frame::Ping(id), FRAME_COST).await;
                }
            }
            Frame::GoAway { .. } => self.shared.table().gone_away = true,
        }
        Ok(())
    }

    async fn asked(&mut self, id: u32, fin: bool, headers: Headers) -> Result<(), Fault> {
        let Some(outbox) = self.outbox.open() else { return Ok(()) };
        let asked = {
            let mut table = self.shared.table();
            if (id % 2 == 1) != self.shared.peer_is_client || id <= table.last {
                return Err(Flaw::StreamId(id).into());
            }
            table.last = id;
            let is_full = table.streams.len() >= self.shared.limits.streams || self.asked.is_closed();
            (!is_full).then(|| {
                let stream = stream(&self.shared, &mut table, &outbox, id, headers.clone(), None);
                OpenedStream { headers, id, stream: Some(stream) }
            })
        };
        match asked {
            Some(asked) => {
                self.ended(id, fin);
                _ = self.asked.send(asked).await;
            }
            None => _ = outbox.send(Frame::Reset { id, status: REFUSED }, FRAME_COST).await,
        }
        Ok(())
    }

    fn ended(&self, id: u32, fin: bool) {
        if !fin {
            return;
        }
        let mut table = self.shared.table();
        let Some(entry) = table.streams.get_mut(&id) else { return };
        let feeder = entry.feeder.take();
        if entry.sent_all {
            table.remove(id);
        }
        if let Some(feeder) = feeder {
            feeder.end();
        }
    }
}

struct FrameWriter<S> {
    socket: OtherHalf<S>,
    shared: Arc<ConnectionState>,
    outgoing: UnboundedReceiver<Outgoing<Frame>>,
    encoder: Encoder,
}

impl<S: AsyncRead + AsyncWrite + Send + 'static> FrameWriter<S> {
    /// Writes queued frames until all outboxes are dropped.
    async fn run(&mut self) -> io::Result<()> {
        let mut output = BytesMut::new();
        let mut rooms = Vec::new();
        while let Some(first) = self.outgoing.recv().await {
            let mut next = Some(first);
            while let Some(outgoing) = next {
                let (frame, room) = outgoing.open();
                rooms.extend(room);
                if self.is_due(&frame) {
                    self.encoder.encode(&frame, &mut output);
                }
                next = (output.len() < BUFFER_BYTES).then(|| self.outgoing.try_recv().ok()).flatten();
            }
            self.socket.write_all(&output).await?;
            self.socket.flush().await?;
            self.shared.moves();
            rooms.clear();
            output.clear();
        }
        Ok(())
    }

    /// Records the streams that a frame ends. Returns false for a frame of an ended stream, which is not sent.
    fn is_due(&self, frame: &Frame) -> bool {
        let mut table = self.shared.table();
        match frame {
            Frame::Data { id, fin, .. } => {
                let Some(entry) = table.streams.get_mut(id).filter(|entry| !entry.sent_all) else { return false };
                entry.sent_all = *fin;
                if *fin && entry.feeder.is_none() {
                    table.remove(*id);
                }
                true
            }
            Frame::SynReply { id, .. } => table.streams.contains_key(id),
            Frame::Reset { id, status } => *status == REFUSED || table.remove(*id).is_some(),
            _ => true,
        }
    }

    /// Sends a GOAWAY frame, and waits until the other side has read everything.
    async fn end(&mut self, reading: &mut Half<S>) {
        let last = self.shared.table().last;
        let mut output = BytesMut::new();
        self.encoder.encode(&Frame::GoAway { last }, &mut output);
        if self.socket.write_all(&output).await.is_ok() && self.socket.shutdown().await.is_ok() {
            let mut rest = [0; 4096];
            while reading.read(&mut rest).await.is_ok_and(|length| length > 0) {}
        }
    }
}
