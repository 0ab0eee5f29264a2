//! The bytes of a connection on their way in and out of TLS: small writes gathered into one, and deadlines.
//!
//! Each write to a TLS stream is a record and a call of the system. HTTP/2 writes every frame of its own, so its frames
//! are gathered here until the connection's task has nothing more to do and calls [`Wire::deliver`].

use bytes::{Buf, BytesMut};
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What is gathered at most before it goes out anyway.
const GATHERED_BYTES_MAX: usize = 64 << 10;
/// A write of this size is worth a record of its own, and is not copied.
const LARGE_WRITE_BYTES: usize = 8 << 10;
/// What an HTTP/2 client begins with: its preface, and the head of a SETTINGS frame.
const OPENING_BYTES: usize = 24 + 9;

/// Both ends of one connection's stream: HTTP has one, and the task of an HTTP/2 connection another to deliver with.
pub struct Wire<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    stream: T,
    /// Not written yet; `None` where every write goes out at once.
    gathered: Option<BytesMut>,
    /// How long the other side may take none of what waits for it.
    unread: Duration,
    /// Since it takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Until it has begun.
    opening: Option<Pin<Box<Sleep>>>,
    read_bytes: usize,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Wire<T> {
    /// Every write goes out at once.
    pub fn direct(stream: T, unread: Duration) -> Wire<T> {
        Wire::new(stream, None, unread, None)
    }

    /// Writes are gathered, and the other side has so long to begin with HTTP/2.
    pub fn gathering(stream: T, unread: Duration, opening: Duration) -> Wire<T> {
        let opening = Box::pin(tokio::time::sleep(opening));
        Wire::new(stream, Some(BytesMut::new()), unread, Some(opening))
    }

    fn new(stream: T, gathered: Option<BytesMut>, unread: Duration, opening: Option<Pin<Box<Sleep>>>) -> Wire<T> {
        Wire(Arc::new(Mutex::new(Inner { stream, gathered, unread, stalled: None, opening, read_bytes: 0 })))
    }

    /// Whether something is there for [`Wire::deliver`] to write.
    pub fn has_gathered(&self) -> bool {
        self.lock().gathered.as_ref().is_some_and(|gathered| !gathered.is_empty())
    }

    /// Writes out what was gathered.
    pub fn deliver(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.lock().flush(context)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T> Clone for Wire<T> {
    fn clone(&self) -> Wire<T> {
        Wire(self.0.clone())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Inner<T> {
    fn read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Some(opening) = &mut self.opening {
            self.read_bytes += buffer.filled().len() - before;
            if self.read_bytes >= OPENING_BYTES {
                self.opening = None;
            } else if read.is_pending() && opening.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client did not begin with HTTP/2")));
            }
        }
        read
    }

    fn write(&mut self, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if let Some(gathered) = &mut self.gathered {
            if bytes < LARGE_WRITE_BYTES && gathered.len() + bytes <= GATHERED_BYTES_MAX {
                pieces.iter().for_each(|piece| gathered.extend_from_slice(piece));
                return Poll::Ready(Ok(bytes));
            }
            ready!(self.empty(context))?;
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.in_time(context, written)
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        ready!(self.empty(context))?;
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, flushed)
    }

    /// Hands on what was gathered.
    fn empty(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        while let Some(gathered) = self.gathered.as_mut().filter(|gathered| !gathered.is_empty()) {
            let written = Pin::new(&mut self.stream).poll_write(context, gathered);
            let written = ready!(self.in_time(context, written))?;
            let Some(gathered) = self.gathered.as_mut().filter(|_| written > 0) else {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            };
            gathered.advance(written);
            if gathered.is_empty() {
                // Most connections are idle most of the time, and should hold nothing then.
                *gathered = BytesMut::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The outcome of a write, unless it has been waiting for too long.
    fn in_time<R>(&mut self, context: &mut Context<'_>, written: Poll<Result<R>>) -> Poll<Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.unread)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client did not read what it was sent")))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        self.lock().read(context, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.lock().write(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.lock().write(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }

    /// HTTP/2 flushes behind every frame; what is gathered waits for [`Wire::deliver`].
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.lock();
        if inner.gathered.is_some() { Poll::Ready(Ok(())) } else { inner.flush(context) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.lock();
        ready!(inner.empty(context))?;
        let ended = Pin::new(&mut inner.stream).poll_shutdown(context);
        inner.in_time(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(5);

    fn gathering(room: usize) -> (Wire<DuplexStream>, DuplexStream) {
        let (near, far) = tokio::io::duplex(room);
        (Wire::gathering(near, LONG, LONG), far)
    }

    #[tokio::test]
    async fn small_writes_go_out_together() {
        let (mut wire, mut far) = gathering(1 << 20);
        for text in ["one ", "two ", "three"] {
            wire.write_all(text.as_bytes()).await.unwrap();
            wire.flush().await.unwrap();
        }
        let mut buffer = [0; 64];
        let mut waiting = ReadBuf::new(&mut buffer);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut far).poll_read(&mut context, &mut waiting).is_pending());
        std::future::poll_fn(|context| wire.deliver(context)).await.unwrap();
        let read = far.read(&mut buffer).await.unwrap();
        assert_eq!(&buffer[..read], b"one two three");
    }

    #[tokio::test]
    async fn the_order_is_kept_around_large_writes() {
        let (mut wire, mut far) = gathering(100);
        let pieces: Vec<Vec<u8>> =
            [3, 9_000, 5, 100_000, 7_000, 60_000, 6_000].map(|size| vec![size as u8; size]).into();
        let expected = pieces.concat();
        let reader = tokio::spawn(async move {
            let mut read = Vec::new();
            far.read_to_end(&mut read).await.unwrap();
            read
        });
        for piece in &pieces {
            wire.write_all(piece).await.unwrap();
        }
        wire.shutdown().await.unwrap();
        drop(wire);
        assert!(reader.await.unwrap() == expected);
    }

    #[tokio::test]
    async fn who_reads_nothing_is_let_go() {
        let (near, _far) = tokio::io::duplex(10);
        let mut wire = Wire::direct(near, SHORT);
        let error = wire.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_does_not_begin_is_let_go() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut wire = Wire::gathering(near, LONG, SHORT);
        far.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
        let error = wire.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
