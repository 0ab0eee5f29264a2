//! The task of one HTTP/2 connection: requests run on their own, and answers that wait move in with it.
//!
//! What makes an answer may take long, so each request is a task. A watch mostly waits. When an event comes, all the
//! watches of one connection have it at the same time: they are polled one after the other within the connection's
//! task, and then everything that they wrote goes out at once. A task for each would write for each.

use crate::wire::Wire;
use bytes::{Buf, Bytes};
use futures_util::stream::{FuturesUnordered, Stream as _};
use futures_util::task::AtomicWaker;
use holdfast_engine::wakes;
use holdfast_tls::bounds::Bounds;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::rt::bounds::Http2ServerConnExec;
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep};

type Failure = Box<dyn std::error::Error + Send + Sync>;

thread_local! {
    /// What the body of an answer said when it was last asked, within the poll of its stream.
    static SAID: Cell<Option<Said>> = const { Cell::new(None) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// There is nothing to send yet.
    Waits,
    /// It gave something to send.
    Gave,
}

/// The body of an answer, which tells the stream that sends it whether there is something to send.
pub struct Told<B> {
    body: B,
    /// Whether it waits until what it gave has gone out. Otherwise the connection would keep the last piece of an answer
    /// for as long as nobody reads it, when its stream has long ended.
    waits: bool,
    given: Option<Arc<Given>>,
}

/// What is smaller than this is not waited for: the connection keeps as much for a stream anyway.
const SMALL_BYTES: usize = 2 << 10;

/// A piece of a body that is on its way out.
#[derive(Default)]
struct Given {
    gone: AtomicBool,
    body: AtomicWaker,
}

/// The same as bytes. Dropping it says that it has gone.
pub struct Piece<D> {
    data: D,
    given: Option<Arc<Given>>,
}

impl<B> Told<B> {
    pub fn new(body: B, waits: bool) -> Told<B> {
        Told { body, waits, given: None }
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(given) = &self.given {
            given.body.register(context.waker());
            if !given.gone.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            self.given = None;
        }
        Poll::Ready(())
    }

    fn give<D: Buf>(&mut self, data: D) -> Piece<D> {
        if self.waits && data.remaining() > SMALL_BYTES {
            self.given = Some(Arc::default());
        }
        Piece { data, given: self.given.clone() }
    }
}

impl<D> Drop for Piece<D> {
    fn drop(&mut self) {
        if let Some(given) = &self.given {
            given.gone.store(true, Ordering::SeqCst);
            given.body.wake();
        }
    }
}

impl<D: Buf> Buf for Piece<D> {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.data.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.data.copy_to_bytes(count)
    }
}

impl<B: Body + Unpin> Body for Told<B> {
    type Data = Piece<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        // Meanwhile the stream knows since when it has been sending.
        ready!(self.poll_gone(context));
        let frame = Pin::new(&mut self.body).poll_frame(context);
        SAID.set(Some(if frame.is_pending() { Said::Waits } else { Said::Gave }));
        frame.map_ok(|frame| frame.map_data(|data| self.give(data)))
    }

    fn is_end_stream(&self) -> bool {
        self.given.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// One request and its answer.
struct Stream {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// How long the client may leave the answer unread.
    unread_max: Duration,
    /// Since there was something to send and no room for it. The client grants no more.
    unread: Option<Pin<Box<Sleep>>>,
    said: Option<Said>,
    _open: Open,
}

/// Counts a stream among those of its connection while it is there.
struct Open(Arc<Arrivals>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream {
    fn waits(&self) -> bool {
        self.said == Some(Said::Waits)
    }
}

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        SAID.set(None);
        if self.future.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        if let Some(said) = SAID.take() {
            self.said = Some(said);
            self.unread = None;
        }
        // A body that gave something is not asked again before there is room.
        if self.said == Some(Said::Gave) {
            let unread_max = self.unread_max;
            let unread = self.unread.get_or_insert_with(|| Box::pin(tokio::time::sleep(unread_max)));
            if unread.as_mut().poll(context).is_ready() {
                tracing::debug!("an answer was not read");
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}

/// Starts the requests of one connection.
#[derive(Clone)]
pub struct Streams {
    arrivals: Arc<Arrivals>,
    unread_max: Duration,
}

/// Answers on their way from tasks of their own into the connection's.
struct Arrivals {
    /// `None` once the connection has ended.
    streams: Mutex<Option<Vec<Stream>>>,
    connection: AtomicWaker,
    /// How many streams there are, wherever they run.
    open: AtomicUsize,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Stream>>> {
        self.streams.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, future: F) {
        self.arrivals.open.fetch_add(1, Ordering::Relaxed);
        let open = Open(self.arrivals.clone());
        let future = Box::pin(future);
        let stream = Stream { future, unread_max: self.unread_max, unread: None, said: None, _open: open };
        tokio::spawn(until_it_waits(stream, self.arrivals.clone()));
    }
}

/// Runs a stream to its end, or until its answer waits: then it moves in with its connection.
async fn until_it_waits(mut stream: Stream, connection: Arc<Arrivals>) {
    let ended = std::future::poll_fn(|context| match Pin::new(&mut stream).poll(context) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending if stream.waits() => Poll::Ready(false),
        Poll::Pending => Poll::Pending,
    });
    if !ended.await
        && let Some(arrivals) = &mut *connection.lock()
    {
        arrivals.push(stream);
        connection.connection.wake();
    }
}

/// The task of one connection.
pub struct Connection<C, T> {
    http: Pin<Box<C>>,
    wire: Wire<T>,
    waiting: FuturesUnordered<Stream>,
    streams: Streams,
    held: Option<Arc<Held>>,
    /// Those who run beside this task have had their turn since there was something to deliver.
    gave_way: bool,
    idle_max: Duration,
    unread_max: Duration,
    /// Since there is no stream.
    idle: Option<Pin<Box<Sleep>>>,
    /// It was asked to end for that.
    ending: bool,
}

/// A connection of hyper's that can be told to end when its requests have.
pub trait Graceful {
    fn end(self: Pin<&mut Self>);
}

impl Streams {
    pub fn new(bounds: &Bounds) -> Streams {
        let arrivals = Arrivals {
            streams: Mutex::new(Some(Vec::new())),
            connection: AtomicWaker::new(),
            open: AtomicUsize::new(0),
        };
        Streams { arrivals: Arc::new(arrivals), unread_max: bounds.unread }
    }
}

impl<C, T> Connection<C, T> {
    /// `http` starts its requests with `streams`, and writes to `wire`.
    pub fn new(http: C, wire: Wire<T>, streams: Streams, bounds: &Bounds) -> Connection<C, T> {
        Connection {
            http: Box::pin(http),
            wire,
            waiting: FuturesUnordered::new(),
            streams,
            held: None,
            gave_way: false,
            idle_max: bounds.idle,
            unread_max: bounds.unread,
            idle: None,
            ending: false,
        }
    }

    /// What streams wake: the task, but held back while an event is being handed to many of them.
    fn held(&mut self, task: &Waker) -> Arc<Held> {
        match &self.held {
            Some(held) if held.task.will_wake(task) => held.clone(),
            _ => {
                let held = Held { task: task.clone(), polling: AtomicBool::new(false), woken: AtomicBool::new(false) };
                self.held.insert(Arc::new(held)).clone()
            }
        }
    }
}

impl<I, S, B> Graceful for http2::Connection<TokioIo<I>, S, Streams>
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Failure>,
    TokioIo<I>: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: Body + 'static,
    B::Error: Into<Failure>,
    Streams: Http2ServerConnExec<S::Future, B>,
{
    fn end(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// What waiting streams wake.
struct Held {
    task: Waker,
    /// The streams are being polled, and whoever polls them looks whether any was woken meanwhile.
    polling: AtomicBool,
    woken: AtomicBool,
}

impl Wake for Held {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            wakes::wake(&self.task);
        }
    }
}

impl<C, T> Connection<C, T>
where
    C: Future<Output = hyper::Result<()>> + Graceful,
    T: AsyncRead + AsyncWrite + Unpin,
{
    /// Asks for no more requests, and ends when those that there are have been answered.
    pub fn end(&mut self) {
        self.http.as_mut().end();
    }

    /// Lets the answers write that have something to say.
    fn poll_waiting(&mut self, context: &mut Context<'_>) {
        self.streams.arrivals.connection.register(context.waker());
        if let Some(arrivals) = &mut *self.streams.arrivals.lock() {
            self.waiting.extend(arrivals.drain(..));
        }
        let held = self.held(context.waker());
        let waker = Waker::from(held.clone());
        let mut context = Context::from_waker(&waker);
        held.polling.store(true, Ordering::SeqCst);
        // A stream that writes wakes itself, and the set stops after a few of those: it is asked until all were polled.
        for _ in 0..=self.waiting.len() {
            held.woken.store(false, Ordering::SeqCst);
            while let Poll::Ready(Some(())) = pin!(&mut self.waiting).poll_next(&mut context) {}
            if !held.woken.load(Ordering::SeqCst) {
                break;
            }
        }
        held.polling.store(false, Ordering::SeqCst);
        if held.woken.load(Ordering::SeqCst) {
            wakes::wake(&held.task);
        }
    }

    /// Writes out what was gathered, after the requests that came or went on together have had their turn: what they
    /// answer goes out in the same write.
    fn deliver(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if !self.gave_way && self.wire.has_gathered() {
            self.gave_way = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let delivered = self.wire.deliver(context);
        self.gave_way = delivered.is_pending();
        match delivered {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// Asks a connection without streams to end; ready when it does not, for the client does not read its last answers.
    fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.streams.arrivals.open.load(Ordering::Relaxed) > 0 {
            self.idle = None;
            return Poll::Pending;
        }
        let idle = self.idle.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.idle_max)));
        ready!(idle.as_mut().poll(context));
        if self.ending {
            return Poll::Ready(());
        }
        self.ending = true;
        idle.as_mut().reset(Instant::now() + self.unread_max);
        let _ = idle.as_mut().poll(context);
        self.end();
        Poll::Pending
    }
}

impl<C, T> Future for Connection<C, T>
where
    C: Future<Output = hyper::Result<()>> + Graceful,
    T: AsyncRead + AsyncWrite + Unpin,
{
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_waiting(context);
        if self.poll_idle(context).is_ready() {
            return Poll::Ready(Err("the client did not read its last answers".into()));
        }
        if let Poll::Ready(ended) = self.http.as_mut().poll(context) {
            return Poll::Ready(ended.map_err(Into::into));
        }
        self.deliver(context)
    }
}

impl<C, T> Drop for Connection<C, T> {
    fn drop(&mut self) {
        // A stream holds its executor, which holds what arrives: one that arrived later would stay for ever.
        *self.streams.arrivals.lock() = None;
    }
}

#[cfg(test)]
mod tests;
