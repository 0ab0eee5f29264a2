//! A socket whose peer may stop reading while it still sends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

/// After a failed write, drops all written bytes and cancels the token.
///
/// Writes fail after a client closes its connection while bytes are in transit to it. The last bytes of the client must
/// still be read. The WebSocket library answers a ping before it continues to read, and stops reading if that answer
/// fails. So a write to this socket never fails.
pub struct Deaf<S> {
    socket: S,
    is_deaf: CancellationToken,
}

impl<S> Deaf<S> {
    pub fn new(socket: S, is_deaf: CancellationToken) -> Deaf<S> {
        Deaf { socket, is_deaf }
    }

    /// The result of a write; `dropped` replaces the result of a failed write.
    fn forgive<T>(&self, written: io::Result<T>, dropped: T) -> Poll<io::Result<T>> {
        Poll::Ready(Ok(written.unwrap_or_else(|_| {
            self.is_deaf.cancel();
            dropped
        })))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Deaf<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, output)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Deaf<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_deaf.is_cancelled() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(&mut self.socket).poll_write(context, bytes));
        // A socket that accepts no bytes has ended too.
        let is_full = |count: &usize| *count == 0 && !bytes.is_empty();
        let written = written.and_then(|count| match is_full(&count) {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => Ok(count),
        });
        self.forgive(written, bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf.is_cancelled() {
            return Poll::Ready(Ok(()));
        }
        let flushed = ready!(Pin::new(&mut self.socket).poll_flush(context));
        self.forgive(flushed, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = ready!(Pin::new(&mut self.socket).poll_shutdown(context));
        self.forgive(ended, ())
    }
}
