//! A connection over a pipe: how often it writes, and how it works with an independent client.

mod clients;
mod writes;

use super::*;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use std::io::Result as Written;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, BufReader, DuplexStream, ReadBuf};
use tokio::sync::watch;
use tokio::task::JoinHandle;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A stream that counts the writes to it.
struct Counted(DuplexStream, Arc<AtomicUsize>);

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, read: &mut ReadBuf<'_>) -> Poll<Written<()>> {
        Pin::new(&mut self.0).poll_read(context, read)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Written<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Written<usize>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.0).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Written<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Written<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// The state of a test server, and the counts of its events.
struct Served {
    events: watch::Sender<u32>,
    writes: Arc<AtomicUsize>,
    /// Requests whose responses were neither finished nor dropped.
    alive: Arc<AtomicUsize>,
    connection: JoinHandle<Result<(), Failure>>,
    stop: watch::Sender<bool>,
}

/// Counts one request as alive while this value exists.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, Ordering::SeqCst);
        Alive(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn shown(number: u32) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::copy_from_slice(&number.to_be_bytes())))
}

/// The path selects the answer: `/number` (the current number), `/watch` (the current and all later numbers), `/next`
/// (the next number, when it exists), `/echo` (the body as it arrives), `/bytes/COUNT/SIZE` (pieces of that number and
/// size, and trailers), `/never`, `/panic`, `/panic/later`, `/broken`, `/count` (the length of the body).
async fn answer(request: Request<Received>, events: watch::Receiver<u32>, alive: Alive) -> Answer {
    let follow = |mut events: watch::Receiver<u32>| async move {
        events.changed().await.ok()?;
        let number = *events.borrow_and_update();
        Some((shown(number), events))
    };
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let frames: BoxStream<'static, Result<Frame<Bytes>, Infallible>> = match parts.as_slice() {
        ["number"] => stream::iter([shown(0)]).boxed(),
        ["watch"] => stream::once(async move { shown(0) }).chain(stream::unfold(events, follow)).boxed(),
        ["next"] => {
            let mut events = events;
            let next = match events.changed().await {
                Ok(()) => *events.borrow_and_update(),
                Err(_) => 0,
            };
            stream::iter([shown(next)]).boxed()
        }
        ["echo"] => {
            let pieces = request.into_body().into_data_stream();
            pieces
                .take_while(|piece| std::future::ready(piece.is_ok()))
                .map(|piece| Ok(Frame::data(piece.unwrap())))
                .boxed()
        }
        ["count"] => {
            let length = request.into_body().collect().await.map(|body| body.to_bytes().len());
            stream::iter([shown(length.map_or(u32::MAX, |length| length as u32))]).boxed()
        }
        ["bytes", count, size] => {
            let (count, size): (usize, usize) = (count.parse().unwrap(), size.parse().unwrap());
            let pieces = stream::iter((0..count).map(move |number| Ok(Frame::data(vec![number as u8; size].into()))));
            let mut trailers = HeaderMap::new();
            trailers.insert("x-count", count.into());
            pieces.chain(stream::iter([Ok(Frame::trailers(trailers))])).boxed()
        }
        ["never"] => std::future::pending().await,
        ["panic"] => panic!("a fault of the service"),
        ["panic", "later"] => {
            stream::iter(0..2).map(|number| if number == 0 { shown(0) } else { panic!("later") }).boxed()
        }
        _ => stream::empty().boxed(),
    };
    let frames = frames.map(move |frame| {
        let _alive = &alive;
        frame
    });
    Response::new(BodyExt::boxed_unsync(StreamBody::new(frames)))
}

/// A server at one end of a pipe that holds `room` bytes.
fn serve(room: usize, is_quick: fn(&Request<()>) -> bool, bounds: Bounds) -> (DuplexStream, Served) {
    let (events, followed) = watch::channel(0);
    let (writes, alive) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (near, far) = tokio::io::duplex(room);
    let (stop, stopping) = watch::channel(false);
    let io = BufReader::new(Counted(near, writes.clone()));
    let count = alive.clone();
    let service = tower::service_fn(move |request: Request<Received>| {
        let (events, alive) = (followed.clone(), Alive::new(&count));
        async move { Ok::<_, Infallible>(answer(request, events, alive).await) }
    });
    let connection = tokio::spawn(Connection::new(io, service, is_quick, bounds, stopping));
    (far, Served { events, writes, alive, connection, stop })
}

/// Lets the other tasks run as far as they can without input.
async fn rest() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
