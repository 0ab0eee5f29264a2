//! A connection that is slowed down to a number of bytes a second, each way.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How much of its rate a connection may use at once.
const BURST: Duration = Duration::from_millis(100);

pub struct Paced<S> {
    inner: S,
    reading: Option<Pace>,
    writing: Option<Pace>,
}

impl<S> Paced<S> {
    pub fn new(inner: S, bytes_a_second: Option<u64>) -> Paced<S> {
        Paced { inner, reading: bytes_a_second.map(Pace::new), writing: bytes_a_second.map(Pace::new) }
    }
}

/// One direction.
struct Pace {
    bytes_a_second: u64,
    /// When all that has passed would have passed at this pace.
    due: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Pace {
    fn new(bytes_a_second: u64) -> Pace {
        let now = Instant::now();
        Pace { bytes_a_second: bytes_a_second.max(1), due: now, sleep: Box::pin(sleep_until(now)) }
    }

    /// How many bytes may pass; waits until some may.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let now = Instant::now();
        if self.due > now + BURST {
            self.sleep.as_mut().reset(self.due - BURST);
            ready!(self.sleep.as_mut().poll(context));
        }
        let most = u128::from(self.bytes_a_second) * BURST.as_millis() / 1000;
        Poll::Ready(usize::try_from(most).unwrap_or(usize::MAX).max(1))
    }

    fn passed(&mut self, bytes: usize) {
        let nanos = u128::try_from(bytes).unwrap_or(0) * 1_000_000_000 / u128::from(self.bytes_a_second);
        self.due = self.due.max(Instant::now()) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, output: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let paced = self.get_mut();
        let Some(pace) = &mut paced.reading else { return Pin::new(&mut paced.inner).poll_read(context, output) };
        let most = ready!(pace.poll(context));
        let mut piece = output.take(most);
        ready!(Pin::new(&mut paced.inner).poll_read(context, &mut piece))?;
        let (read, initialized) = (piece.filled().len(), piece.initialized().len());
        pace.passed(read);
        debug_assert!(initialized >= read);
        // What was read into the piece stands behind what was there.
        output.initialize_unfilled_to(read);
        output.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let paced = self.get_mut();
        let Some(pace) = &mut paced.writing else { return Pin::new(&mut paced.inner).poll_write(context, bytes) };
        let most = ready!(pace.poll(context)).min(bytes.len());
        let written = ready!(Pin::new(&mut paced.inner).poll_write(context, &bytes[..most]))?;
        pace.passed(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn each_way_has_its_pace() {
        let (near, mut far) = duplex(1 << 20);
        let mut paced = Paced::new(near, Some(10_000));
        let began = Instant::now();
        far.write_all(&[7; 3000]).await.expect("written");
        let mut all = vec![0; 3000];
        paced.read_exact(&mut all).await.expect("read");
        assert_eq!(all, vec![7; 3000]);
        let read = began.elapsed();
        assert!(read >= Duration::from_millis(100), "it came at once");
        paced.write_all(&[8; 3000]).await.expect("written");
        far.read_exact(&mut all).await.expect("read");
        assert_eq!(all, vec![8; 3000]);
        assert!(began.elapsed() >= read + Duration::from_millis(100), "it went at once");
    }
}
