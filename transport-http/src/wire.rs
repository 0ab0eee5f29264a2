//! The stream below an HTTP/1.1 connection. It fails after a while if the client does not read the response.

use holdfast_tls::guests::ConnectionSlot;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The stream of one connection. HTTP shares it with the code that reads the rest of the input after the last response.
pub struct Wire<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    stream: T,
    /// The maximum time for which data may wait for the client to read them.
    unread: Duration,
    /// The timer that runs while data wait and the client reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The slot is kept while the stream is open, even after an upgrade to another protocol.
    _place: Option<Arc<ConnectionSlot>>,
}

impl<T> Wire<T> {
    pub fn new(stream: T, unread: Duration, place: Option<Arc<ConnectionSlot>>) -> Wire<T> {
        Wire(Arc::new(Mutex::new(Inner { stream, unread, stalled: None, _place: place })))
    }

    /// Sets the maximum time for which data may wait for the client to read them.
    pub fn allow_unread(&self, unread: Duration) {
        let mut inner = self.lock();
        (inner.unread, inner.stalled) = (unread, None);
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

impl<T> Inner<T> {
    /// The result of a write, or an error if writes have been blocked for too long.
    fn in_time<R>(&mut self, context: &mut Context<'_>, written: Poll<Result<R>>) -> Poll<Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.unread)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client did not read its answer in time")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.lock().stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut inner = self.lock();
        let written = Pin::new(&mut inner.stream).poll_write(context, bytes);
        inner.in_time(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let mut inner = self.lock();
        let written = Pin::new(&mut inner.stream).poll_write_vectored(context, pieces);
        inner.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.lock();
        let flushed = Pin::new(&mut inner.stream).poll_flush(context);
        inner.in_time(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut inner = self.lock();
        let ended = Pin::new(&mut inner.stream).poll_shutdown(context);
        inner.in_time(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn who_reads_nothing_is_let_go() {
        let (near, _far) = tokio::io::duplex(10);
        let mut wire = Wire::new(near, Duration::from_millis(5), None);
        let error = wire.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_may_be_given_more_time() {
        let (near, _far) = tokio::io::duplex(10);
        let mut wire = Wire::new(near, Duration::from_millis(1), None);
        let (begun, allowed) = (tokio::time::Instant::now(), Duration::from_millis(50));
        wire.allow_unread(allowed);
        wire.write_all(&[0; 100]).await.unwrap_err();
        assert!(begun.elapsed() >= allowed);
    }
}
