//! A connection whose speed is limited to a number of bytes a second in each direction.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How far a connection may exceed its rate at once: by as many bytes as may pass in this time.
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

/// The speed limit of one direction of a connection.
struct Pace {
    bytes_a_second: u64,
    /// The time at which all bytes that have passed would have passed at exactly the permitted rate.
    due: Instant,
    sleep: Pin<Box<Sleep>>,
}

impl Pace {
    fn new(bytes_a_second: u64) -> Pace {
        let now = Instant::now();
        Pace { bytes_a_second: bytes_a_second.max(1), due: now, sleep: Box::pin(sleep_until(now)) }
    }

    /// Waits until bytes may pass, and returns how many bytes may pass at once.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        if let Some(until) = self.waits(Instant::now()) {
            self.sleep.as_mut().reset(until);
            ready!(self.sleep.as_mut().poll(context));
        }
        let most = u128::from(self.bytes_a_second) * BURST.as_millis() / 1000;
        Poll::Ready(usize::try_from(most).unwrap_or(usize::MAX).max(1))
    }

    /// The time until which nothing may pass; `None` if bytes may pass now.
    fn waits(&self, now: Instant) -> Option<Instant> {
        (self.due > now + BURST).then(|| self.due - BURST)
    }

    fn passed(&mut self, bytes: usize, now: Instant) {
        let nanos = u128::try_from(bytes).unwrap_or(0) * 1_000_000_000 / u128::from(self.bytes_a_second);
        self.due = self.due.max(now) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, output: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let paced = self.get_mut();
        let Some(pace) = &mut paced.reading else { return Pin::new(&mut paced.inner).poll_read(context, output) };
        let most = ready!(pace.poll(context));
        let room = most.min(output.remaining());
        let mut piece = ReadBuf::new(output.initialize_unfilled_to(room));
        ready!(Pin::new(&mut paced.inner).poll_read(context, &mut piece))?;
        let read = piece.filled().len();
        pace.passed(read, Instant::now());
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
        pace.passed(written, Instant::now());
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
    use bytes::BytesMut;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn what_has_passed_is_waited_for() {
        let mut pace = Pace::new(1000);
        let start = pace.due;
        assert_eq!(pace.waits(start), None);
        pace.passed(100, start);
        assert_eq!(pace.waits(start), None, "a tenth of a second's bytes may pass at once");
        pace.passed(900, start);
        assert_eq!(pace.waits(start), Some(start + Duration::from_millis(900)));
        assert_eq!(pace.waits(start + Duration::from_millis(900)), None);
        // After a minute without bytes, no more bytes than the burst may exceed the rate.
        let later = start + Duration::from_secs(60);
        pace.passed(500, later);
        assert_eq!(pace.waits(later), Some(later + Duration::from_millis(400)));
    }

    #[tokio::test]
    async fn every_byte_passes_both_ways() {
        let sent: Vec<u8> = (0..3000u32).map(|byte| byte as u8).collect();
        let (near, mut far) = duplex(1 << 20);
        let mut paced = Paced::new(near, Some(10_000));
        far.write_all(&sent).await.expect("written");
        // `read_buf` reads into uninitialized memory, which the connection must support.
        let mut all = BytesMut::new();
        while all.len() < sent.len() {
            assert!(paced.read_buf(&mut all).await.expect("read") > 0);
        }
        assert_eq!(all, sent);
        paced.write_all(&sent).await.expect("written");
        let mut all = vec![0; sent.len()];
        far.read_exact(&mut all).await.expect("read");
        assert_eq!(all, sent);
    }
}
