//! Bounded queues between a connection and the readers and writers of its streams, one for pieces that have arrived and
//! one for pieces to be sent.

use bytes::{Buf, Bytes};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, DropGuard, PollSemaphore};

/// The maximum number of bytes that are written at once.
pub const WRITE_BYTES_MAX: usize = 16 << 10;
/// The cost of a piece in a [`ByteBudget`] in addition to its bytes: pieces of one byte need memory as well.
const PIECE_COST: usize = 64;

/// A byte limit shared by all pieces of one connection.
#[derive(Clone)]
pub struct ByteBudget {
    semaphore: Arc<Semaphore>,
    bytes: u32,
}

impl ByteBudget {
    pub fn new(bytes: u32) -> ByteBudget {
        ByteBudget { semaphore: Arc::new(Semaphore::new(bytes.try_into().unwrap_or(Semaphore::MAX_PERMITS))), bytes }
    }

    fn cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.saturating_add(PIECE_COST)).unwrap_or(u32::MAX).min(self.bytes)
    }

    /// Waits until there is room; `None` once the budget is closed.
    pub async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.semaphore.clone().acquire_many_owned(self.cost(bytes)).await.ok()
    }

    pub fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.semaphore.clone().try_acquire_many_owned(self.cost(bytes)).ok()
    }

    /// Wakes all waiting callers, because there will be no more room.
    pub fn close(&self) {
        self.semaphore.close();
    }
}

enum Arrived {
    Piece(Bytes, OwnedSemaphorePermit),
    End,
}

/// Passes arriving data to a [`StreamReader`]. If it is dropped without [`Feeder::end`], the reader fails.
#[derive(Clone)]
pub struct Feeder {
    queue: UnboundedSender<Arrived>,
    room: ByteBudget,
}

impl Feeder {
    pub fn new(room: &ByteBudget) -> (Feeder, StreamReader) {
        let (queue, arrived) = unbounded_channel();
        let reader = StreamReader { arrived, piece: None, ended: false };
        (Feeder { queue, room: room.clone() }, reader)
    }

    /// Waits for room. If the reader was dropped, the data is dropped too.
    pub async fn feed(&self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        tokio::select! {
            // This branch is first, because data for a dropped reader must not use room.
            biased;
            () = self.queue.closed() => {}
            room = self.room.take(bytes.len()) => {
                if let Some(room) = room {
                    _ = self.queue.send(Arrived::Piece(bytes, room));
                }
            }
        }
    }

    pub fn end(self) {
        _ = self.queue.send(Arrived::End);
    }
}

/// Reads the data that arrives for one stream.
pub struct StreamReader {
    arrived: UnboundedReceiver<Arrived>,
    piece: Option<(Bytes, OwnedSemaphorePermit)>,
    ended: bool,
}

impl AsyncRead for StreamReader {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, output: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let reader = self.get_mut();
        while !reader.ended && output.remaining() > 0 {
            if let Some((bytes, _)) = &mut reader.piece {
                let length = bytes.len().min(output.remaining());
                output.put_slice(&bytes[..length]);
                bytes.advance(length);
                if bytes.is_empty() {
                    reader.piece = None;
                }
                break;
            }
            match ready!(reader.arrived.poll_recv(context)) {
                Some(Arrived::Piece(bytes, room)) => reader.piece = Some((bytes, room)),
                Some(Arrived::End) => reader.ended = true,
                None => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// An item to be sent, and the room that it occupies until it is written.
pub struct Outgoing<T> {
    pub what: T,
    room: Option<OwnedSemaphorePermit>,
}

impl<T> Outgoing<T> {
    /// The item, and the room to release when it is written.
    pub fn open(self) -> (T, Option<OwnedSemaphorePermit>) {
        (self.what, self.room)
    }
}

/// The queue of a connection's outgoing items. The connection stays open while an outbox exists.
pub struct Outbox<T> {
    queue: UnboundedSender<Outgoing<T>>,
    room: ByteBudget,
    unused: CancellationToken,
    /// Cancels the token when the last outbox is dropped.
    users: Arc<DropGuard>,
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Outbox<T> {
        let (queue, room) = (self.queue.clone(), self.room.clone());
        Outbox { queue, room, unused: self.unused.clone(), users: self.users.clone() }
    }
}

impl<T> Outbox<T> {
    pub fn new(room: &ByteBudget) -> (Outbox<T>, UnboundedReceiver<Outgoing<T>>) {
        let (queue, outgoing) = unbounded_channel();
        let unused = CancellationToken::new();
        let users = Arc::new(unused.clone().drop_guard());
        (Outbox { queue, room: room.clone(), unused, users }, outgoing)
    }

    /// Waits for room, then sends the item.
    pub async fn send(&self, what: T, bytes: usize) -> io::Result<()> {
        let room = self.reserve(bytes).await?;
        self.push(what, Some(room))
    }

    /// Waits for room, to send later with [`Outbox::send_with`].
    pub async fn reserve(&self, bytes: usize) -> io::Result<OwnedSemaphorePermit> {
        self.room.take(bytes).await.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    pub fn send_with(&self, what: T, room: OwnedSemaphorePermit) {
        _ = self.push(what, Some(room));
    }

    pub fn room(&self) -> &ByteBudget {
        &self.room
    }

    /// A token that is cancelled when no outbox of the connection is left. After that, no data is queued any more.
    pub fn unused(&self) -> CancellationToken {
        self.unused.clone()
    }

    /// Sends the item if there is room now; otherwise drops it.
    pub fn try_send(&self, what: T, bytes: usize) {
        if let Some(room) = self.room.try_take(bytes) {
            _ = self.push(what, Some(room));
        }
    }

    /// Sends without waiting for room: for items that are sent once per stream.
    pub fn send_now(&self, what: T) {
        _ = self.push(what, None);
    }

    fn push(&self, what: T, room: Option<OwnedSemaphorePermit>) -> io::Result<()> {
        self.queue.send(Outgoing { what, room }).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// An outbox that does not keep the connection open.
    pub fn weak(&self) -> WeakOutbox<T> {
        let users = Arc::downgrade(&self.users);
        WeakOutbox { queue: self.queue.downgrade(), room: self.room.clone(), unused: self.unused.clone(), users }
    }
}

pub struct WeakOutbox<T> {
    queue: WeakUnboundedSender<Outgoing<T>>,
    room: ByteBudget,
    unused: CancellationToken,
    users: Weak<DropGuard>,
}

impl<T> WeakOutbox<T> {
    pub fn open(&self) -> Option<Outbox<T>> {
        let (queue, users) = (self.queue.upgrade()?, self.users.upgrade()?);
        Some(Outbox { queue, room: self.room.clone(), unused: self.unused.clone(), users })
    }
}

/// Converts bytes to an item that the connection sends.
type Wrap<T> = Box<dyn Fn(&[u8]) -> T + Send + Sync>;

/// Writes to one stream. Written data is queued, and the connection sends it.
pub struct StreamWriter<T> {
    outbox: Outbox<T>,
    room: PollSemaphore,
    wrap: Wrap<T>,
    /// The item that ends the stream.
    end: Option<T>,
}

impl<T: Unpin> StreamWriter<T> {
    pub fn new(
        outbox: Outbox<T>,
        end: Option<T>,
        wrap: impl Fn(&[u8]) -> T + Send + Sync + 'static,
    ) -> StreamWriter<T> {
        let room = PollSemaphore::new(outbox.room.semaphore.clone());
        StreamWriter { outbox, room, wrap: Box::new(wrap), end }
    }

    /// Drops the writer without ending the stream.
    pub fn abandon(&mut self) {
        self.end = None;
    }
}

impl<T: Unpin> AsyncWrite for StreamWriter<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let writer = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let length = bytes.len().min(WRITE_BYTES_MAX);
        let cost = writer.outbox.room.cost(length);
        let room = ready!(writer.room.poll_acquire_many(context, cost)).ok_or(io::ErrorKind::BrokenPipe)?;
        writer.outbox.push((writer.wrap)(&bytes[..length]), Some(room))?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let writer = self.get_mut();
        if let Some(end) = writer.end.take() {
            writer.outbox.send_now(end);
        }
        Poll::Ready(Ok(()))
    }
}

/// Dropping a writer ends the stream.
impl<T> Drop for StreamWriter<T> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            self.outbox.send_now(end);
        }
    }
}
