//! Copies bytes between two connections, in both directions.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy, sink, split};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The time limits of a relay.
#[derive(Clone, Copy)]
struct RelayLimits {
    /// How long the delivery of the last bytes may take after one side has ended.
    drain: Duration,
    /// The interval at which the relay checks whether bytes were transferred in either direction. The relay ends after
    /// an interval without a transfer.
    idle: Duration,
}

pub const DRAIN_MAX: Duration = Duration::from_secs(10);
const LIMITS: RelayLimits = RelayLimits { drain: DRAIN_MAX, idle: Duration::from_secs(4 * 3600) };

/// Copies in both directions until both sides have ended. The copying ends earlier when [`DRAIN_MAX`] has passed after
/// the end of the first side, or when no bytes were transferred for hours.
pub async fn relay(client: impl AsyncRead + AsyncWrite, server: impl AsyncRead + AsyncWrite) {
    relay_within(LIMITS, client, server).await;
}

/// A socket that is closed with unread bytes resets its connection, and the other side may lose bytes that are on their
/// way. So each side is read to its end, even when the other side no longer accepts the bytes.
async fn relay_within(limits: RelayLimits, client: impl AsyncRead + AsyncWrite, server: impl AsyncRead + AsyncWrite) {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    let (ending, moved) = (CancellationToken::new(), AtomicBool::new(true));
    let up = pass(Source { inner: from_client, moved: &moved }, to_server, &ending);
    let down = pass(Source { inner: from_server, moved: &moved }, to_client, &ending);
    tokio::select! {
        _ = async { tokio::join!(up, down) } => {}
        () = async { ending.cancelled().await; sleep(limits.drain).await } => {}
        () = idle(&moved, limits.idle) => {}
    }
}

async fn idle(moved: &AtomicBool, limit: Duration) {
    while moved.swap(false, Ordering::Relaxed) {
        sleep(limit).await;
    }
}

/// Copies in one direction until the source ends, and then cancels the token.
async fn pass(
    mut source: Source<'_, impl AsyncRead + Unpin>,
    mut target: impl AsyncWrite + Unpin,
    ending: &CancellationToken,
) {
    if copy(&mut source, &mut target).await.is_err() {
        // The target accepts no more bytes, so the rest of the source is read and discarded.
        _ = copy(&mut source, &mut sink()).await;
    }
    ending.cancel();
    _ = target.shutdown().await;
}

/// Reads an error as an end, so that `copy` writes all bytes that it has read before the error.
struct Source<'a, S> {
    inner: S,
    /// Set to true when bytes have arrived from the source.
    moved: &'a AtomicBool,
}

impl<S: AsyncRead + Unpin> AsyncRead for Source<'_, S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        output: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        _ = ready!(Pin::new(&mut self.inner).poll_read(context, output));
        self.moved.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    const INPUT_BYTES: usize = 200_000;
    const SHORT: RelayLimits = RelayLimits { drain: Duration::from_millis(20), idle: Duration::from_millis(20) };

    /// Relays between two sockets; `client` and `server` use the other ends.
    async fn between<C: Future, S: Future>(
        client: impl FnOnce(DuplexStream) -> C,
        server: impl FnOnce(DuplexStream) -> S,
    ) -> (C::Output, S::Output) {
        let ((client_far, client_near), (server_near, server_far)) = (duplex(INPUT_BYTES), duplex(1000));
        let relaying = tokio::spawn(relay(client_near, server_near));
        let (client, server) = tokio::join!(client(client_far), server(server_far));
        tokio::time::timeout(DRAIN_MAX * 6, relaying).await.expect("it ends").expect("no panic");
        (client, server)
    }

    /// Sends everything at once, and drops the socket without reading.
    async fn hasty(mut socket: DuplexStream) {
        socket.write_all(&[b'x'; INPUT_BYTES]).await.expect("sent");
    }

    #[tokio::test]
    async fn a_server_gets_all_that_a_client_sent_before_it_left() {
        // The server reads first, or first writes bytes that the client does not read, or does both at the same time.
        let reads = async |mut socket: DuplexStream| {
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.expect("read");
            all.len()
        };
        assert_eq!(between(hasty, reads).await.1, INPUT_BYTES);
        let writes = async |mut socket: DuplexStream| {
            socket.write_all(&[b'y'; 300_000]).await.expect("taken, and dropped");
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.expect("read");
            all.len()
        };
        assert_eq!(between(hasty, writes).await.1, INPUT_BYTES);
        let echoes = async |socket: DuplexStream| {
            let (mut from, mut to) = split(socket);
            copy(&mut from, &mut to).await.expect("echoed")
        };
        assert_eq!(between(hasty, echoes).await.1, INPUT_BYTES as u64);
    }

    #[tokio::test]
    async fn a_client_gets_all_that_a_server_sent_before_it_left() {
        let patient = async |mut socket: DuplexStream| {
            // Input that the server no longer reads is on its way in the other direction.
            _ = socket.write_all(&[b'x'; 5000]).await;
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.expect("read");
            all.len()
        };
        let leaves = async |mut socket: DuplexStream| socket.write_all(&[b'y'; INPUT_BYTES]).await.expect("sent");
        assert_eq!(between(patient, leaves).await.0, INPUT_BYTES);
    }

    #[tokio::test]
    async fn a_side_that_does_not_read_is_not_waited_for_when_the_other_has_ended() {
        let ((mut client, near), (server_near, _server)) = (duplex(1000), duplex(1000));
        client.write_all(&[b'x'; 500]).await.expect("sent");
        drop(client);
        relay_within(SHORT, near, server_near).await;
        // The relay does not notice the end of a client while the server accepts none of its bytes.
        let ((client, near), (server_near, _server)) = (duplex(INPUT_BYTES), duplex(1000));
        hasty(client).await;
        relay_within(SHORT, near, server_near).await;
    }
}
