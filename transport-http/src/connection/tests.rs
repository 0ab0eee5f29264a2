//! How often a connection writes, on a stream that counts.

use super::*;
use crate::wire::Wire;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::convert::Infallible;
use std::io::Result as Written;
use tokio::io::{DuplexStream, ReadBuf};
use tokio::sync::watch;

const STREAMS: usize = 40;

/// Counts what goes out.
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Written<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Written<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A connection to a server that sends every number of `events` to whoever asks.
struct Fixture {
    client: SendRequest<Empty<Bytes>>,
    events: watch::Sender<u32>,
    writes: Arc<AtomicUsize>,
}

type Answer = Response<Told<BoxBody<Bytes, Infallible>>>;

/// The number of now, and those that follow; where `watch` is asked for.
fn answer(request: &Request<Incoming>, events: watch::Receiver<u32>) -> Answer {
    let shown = |number: u32| Ok(Frame::data(Bytes::copy_from_slice(&number.to_be_bytes())));
    let follow = move |mut events: watch::Receiver<u32>| async move {
        events.changed().await.ok()?;
        let number = *events.borrow_and_update();
        Some((shown(number), events))
    };
    let body = match request.uri().path() {
        "/watch" => {
            BoxBody::new(StreamBody::new(stream::once(async move { shown(0) }).chain(stream::unfold(events, follow))))
        }
        _ => BoxBody::new(StreamBody::new(stream::iter([shown(0)]))),
    };
    Response::new(Told::new(body, true))
}

impl Fixture {
    async fn start() -> Fixture {
        let (events, followed) = watch::channel(0);
        let writes = Arc::new(AtomicUsize::new(0));
        let (near, far) = tokio::io::duplex(1 << 20);
        let bounds = Bounds::default();
        let streams = Streams::new(&bounds);
        let wire = Wire::gathering(Counted(near, writes.clone()), bounds.unread, bounds.head);
        let service = service_fn(move |request| {
            let answer = answer(&request, followed.clone());
            async move { Ok::<_, Infallible>(answer) }
        });
        let mut builder = http2::Builder::new(streams.clone());
        builder.timer(TokioTimer::new());
        let http = builder.serve_connection(TokioIo::new(wire.clone()), service);
        tokio::spawn(Connection::new(http, wire, streams, &bounds));
        let io = TokioIo::new(far);
        let (client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut fixture = Fixture { client, events, writes };
        fixture.ask("/").await;
        fixture
    }

    /// Asks so many times at once, and has the first number of every answer.
    async fn ask(&mut self, path: &str) -> Vec<Incoming> {
        let request = || Request::get(format!("https://a{path}")).body(Empty::new()).unwrap();
        let asked: Vec<_> = (0..STREAMS).map(|_| self.client.send_request(request())).collect();
        let mut bodies: Vec<_> = join_all(asked).await.into_iter().map(|answer| answer.unwrap().into_body()).collect();
        assert_eq!(numbers(&mut bodies).await, [0; STREAMS]);
        self.rest().await;
        bodies
    }

    /// Lets everything happen that needs nothing from outside.
    async fn rest(&self) {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn writes(&self) -> usize {
        self.writes.swap(0, Ordering::Relaxed)
    }
}

/// The next number of each answer.
async fn numbers(bodies: &mut [Incoming]) -> Vec<u32> {
    let next = bodies.iter_mut().map(|body| {
        body.frame().map(|frame| {
            let bytes = frame.unwrap().unwrap().into_data().unwrap();
            u32::from_be_bytes(bytes[..].try_into().unwrap())
        })
    });
    join_all(next).await
}

#[tokio::test]
async fn an_event_for_many_watches_goes_out_in_one_write() {
    let mut fixture = Fixture::start().await;
    let mut bodies = fixture.ask("/watch").await;
    for number in 1..4 {
        fixture.rest().await;
        fixture.writes();
        fixture.events.send_replace(number);
        assert_eq!(numbers(&mut bodies).await, [number; STREAMS]);
        assert_eq!(fixture.writes(), 1);
    }
}

/// One worker runs what was woken last before what waits longer, as each of many does.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn answers_that_are_ready_together_go_out_in_one_write() {
    let task = tokio::spawn(async {
        let mut fixture = Fixture::start().await;
        fixture.writes();
        fixture.ask("/").await;
        fixture.writes()
    });
    assert_eq!(task.await.unwrap(), 1);
}
