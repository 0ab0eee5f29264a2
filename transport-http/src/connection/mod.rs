//! The task of one HTTP/2 connection. It reads requests, passes them to the service, and writes the responses. The
//! crate `holdfast-http2` implements the protocol.
//!
//! Requests with little work are answered in this task, and all requests that were read together are answered before
//! anything is written. Other requests, and long bodies, run in tasks of their own, which send their results to the
//! connection. Watches are polled by the connection's task once they wait (`making.rs`). So the connection writes
//! rarely, and writes much at a time.

mod answers;
mod date;
mod deadlines;
mod making;
pub mod upload;
mod wakes;

use crate::received::Received;
use answers::{Entry, entry_of, remove};
use bytes::Bytes;
use deadlines::{Deadline, Deadlines};
use holdfast_http2::{self as http2, Event, Limits, Reason, StreamId};
use holdfast_tls::bounds::Bounds;
use http::{Request, Response};
use http_body::Body;
use making::Mailbox;
use std::convert::Infallible;
use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::watch as signal;
use tokio::time::Instant;
use tower::Service;
use upload::{Upload, Uploads};
use wakes::{Cause, Wakes};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The maximum number of bytes of one body that a client may send before the request's code reads them.
const STREAM_WINDOW: u32 = 256 << 10;
/// The maximum number of bytes of all bodies together that a client may send before the requests' code reads them.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// If the output has this many bytes, nothing is read and no body is polled.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// The maximum number of requests that are read before the connection begins to answer them.
const ARRIVALS_MAX: usize = 64;
/// The maximum number of pieces of the output that are written by one system call.
const SLICES: usize = 16;
/// If there are more stream slots than this, their memory is freed when no stream is open.
const SLOTS_KEPT: usize = 8;

/// The state of the task that serves one connection.
pub struct Connection<T, S, B> {
    io: T,
    http: http2::Connection,
    service: S,
    /// Whether a request's response takes so little work that it is made in this task.
    is_quick: fn(&Request<()>) -> bool,
    /// The requests, by the slots of their streams.
    entries: Vec<Option<Entry<B>>>,
    /// The wakers with which streams wake this task, by the slots of the streams.
    wakers: Vec<Waker>,
    /// Requests that were read and are not begun yet.
    arrivals: Vec<(StreamId, Request<()>)>,
    wakes: Arc<Wakes>,
    mailbox: Arc<Mailbox<B>>,
    uploads: Arc<Uploads>,
    deadlines: Deadlines,
    bounds: Bounds,
    /// A future that is ready when the server stops.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The number of received frames when the deadlines were last updated.
    frames: u64,
    /// Whether there was a request since the connection was last idle.
    was_busy: bool,
    /// Whether the socket may have input that was not read yet.
    is_readable: bool,
    /// Whether written bytes may still be in TLS's buffers.
    is_unflushed: bool,
    /// Whether a result for which the connection waited, such as the result of a task, is not written yet.
    has_mail: bool,
    /// Whether other tasks, which may also have results to send, have run since that result arrived.
    gave_way: bool,
}

impl<T, S, B> Unpin for Connection<T, S, B> {}

impl<T, S, B> Connection<T, S, B>
where
    T: AsyncBufRead + AsyncWrite + Unpin,
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
{
    /// Serves the client at the other end of `io`. Requests for which `is_quick` holds are answered in this task.
    pub fn new(
        io: T,
        service: S,
        is_quick: fn(&Request<()>) -> bool,
        bounds: Bounds,
        mut stopping: signal::Receiver<bool>,
    ) -> Connection<T, S, B> {
        let limits = Limits {
            streams_max: bounds.streams_max,
            head_bytes_max: bounds.head_bytes_max as usize,
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
        };
        let wakes = Arc::<Wakes>::default();
        let now = Instant::now();
        let mut deadlines = Deadlines::new(now + bounds.head, &wakes);
        deadlines.set(Deadline::Opening, now + bounds.head);
        deadlines.set(Deadline::Period, now + bounds.ping_period);
        deadlines.set(Deadline::Ping, now + bounds.ping_period);
        deadlines.set(Deadline::Idle, now + bounds.idle);
        // This wake causes the first poll of `stopped`. Later the future wakes the task itself.
        wakes.wake(Cause::Stop);
        Connection {
            io,
            http: http2::Connection::new(limits),
            service,
            is_quick,
            entries: Vec::new(),
            wakers: Vec::new(),
            arrivals: Vec::new(),
            mailbox: Arc::new(Mailbox::new(wakes.clone())),
            uploads: Arc::new(Uploads::new(wakes.clone())),
            wakes,
            deadlines,
            bounds,
            // The server has also stopped if the sender was dropped.
            stopped: Box::pin(async move { drop(stopping.wait_for(|stopping| *stopping).await) }),
            frames: 0,
            was_busy: false,
            is_readable: true,
            is_unflushed: false,
            has_mail: false,
            gave_way: false,
        }
    }

    /// The underlying stream, for work after the end of the connection.
    pub fn into_io(self) -> T {
        self.io
    }

    /// Ends the connection when its requests are answered.
    fn shut_down(&mut self) {
        self.http.shut_down();
        self.deadlines.set_first(Deadline::Farewell, Instant::now() + self.bounds.unread);
    }

    /// Reads while there is room for the responses. Returns false at the end of the input.
    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, Failure> {
        while self.is_readable
            && self.arrivals.len() < ARRIVALS_MAX
            && self.http.output_bytes() < OUTPUT_BYTES_MAX
            && self.http.failed().is_none()
        {
            let input = match Pin::new(&mut self.io).poll_fill_buf(context) {
                Poll::Ready(input) => input?,
                Poll::Pending => {
                    self.is_readable = false;
                    break;
                }
            };
            let bytes = input.len();
            if bytes == 0 {
                return Ok(false);
            }
            let (entries, arrivals, uploads) = (&mut self.entries, &mut self.arrivals, &self.uploads);
            self.http.receive(input, &mut |event| match event {
                Event::Request { stream, head, is_end } => {
                    let upload = (!is_end).then(|| Upload::new(uploads, stream.slot()));
                    if entries.len() <= stream.slot() {
                        entries.resize_with(stream.slot() + 1, || None);
                    }
                    entries[stream.slot()] = Some(Entry::new(stream, &head, upload));
                    arrivals.push((stream, head));
                }
                Event::Data { stream, data, is_end } => match entry_of(entries, stream).and_then(Entry::upload) {
                    Some(upload) => upload.push(data, is_end),
                    // The data of a stream that has ended counts as read, so that the connection's window opens again.
                    None => uploads.read(data.len()),
                },
                Event::Reset { stream, reason } => {
                    if let Some(upload) = entry_of(entries, stream).and_then(Entry::upload) {
                        upload.cut(reason);
                    }
                    remove(entries, stream);
                }
            });
            Pin::new(&mut self.io).consume(bytes);
        }
        Ok(true)
    }

    /// Writes all output that is ready to the socket.
    fn write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        while self.http.output_bytes() > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.http.output(&mut slices);
            let written = match &slices[..count] {
                [slice] => Pin::new(&mut self.io).poll_write(context, slice),
                slices => Pin::new(&mut self.io).poll_write_vectored(context, slices),
            };
            let written = ready!(self.in_time(written))?;
            if written == 0 {
                return Poll::Ready(Err(Error::from(ErrorKind::WriteZero).into()));
            }
            self.is_unflushed = true;
            self.http.sent(written);
        }
        if self.is_unflushed {
            let flushed = Pin::new(&mut self.io).poll_flush(context);
            ready!(self.in_time(flushed))?;
            self.is_unflushed = false;
        }
        (self.has_mail, self.gave_way) = (false, false);
        Poll::Ready(Ok(()))
    }

    /// The result of a write. The first write that the client does not accept starts a deadline.
    fn in_time<R>(&mut self, written: Poll<Result<R, Error>>) -> Poll<Result<R, Failure>> {
        match &written {
            Poll::Ready(_) => self.deadlines.clear(Deadline::Taken),
            Poll::Pending => self.deadlines.set_first(Deadline::Taken, Instant::now() + self.bounds.unread),
        }
        written.map_err(Into::into)
    }

    /// Handles all causes that have woken the task.
    fn look(&mut self) -> Result<(), Failure> {
        self.http.release(self.uploads.take_read());
        let wakes = self.wakes.clone();
        let mut looked = Ok(());
        wakes.take(self.entries.len(), |cause| match cause {
            Cause::Timer => looked = self.look_at_deadlines(),
            Cause::Stop => {
                let waker = self.wakes.waker(Cause::Stop);
                if self.stopped.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    self.stopped = Box::pin(std::future::pending());
                    self.shut_down();
                }
            }
            Cause::Mail => self.open_mail(),
            Cause::Stream(slot) => self.look_at(slot),
        });
        looked
    }

    /// Handles passed deadlines; fails if the connection must end at once.
    fn look_at_deadlines(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        for passed in self.deadlines.take_passed(now) {
            match passed {
                Deadline::Opening if !self.http.is_open() => return late("the client did not begin with HTTP/2"),
                Deadline::Opening if !self.http.is_acknowledged() => {
                    self.http.fail(Reason::SETTINGS_TIMEOUT, "the settings were not acknowledged");
                }
                Deadline::Opening => {}
                Deadline::Period => {
                    self.http.tick();
                    self.deadlines.set(Deadline::Period, now + self.bounds.ping_period);
                }
                Deadline::Ping => {
                    self.http.ping();
                    self.deadlines.set(Deadline::Ping, now + self.bounds.ping_period);
                    self.deadlines.set_first(Deadline::Pong, now + self.bounds.pong);
                }
                Deadline::Pong if self.http.is_ping_due() => return late("the client did not answer a ping"),
                Deadline::Pong => {}
                Deadline::Idle => self.shut_down(),
                Deadline::Farewell if self.http.streams() == 0 => {
                    return late("the client did not end the connection");
                }
                // Requests are still being answered, and the client can end the connection only after it has received
                // the responses.
                Deadline::Farewell => self.deadlines.set(Deadline::Farewell, now + self.bounds.unread),
                Deadline::Taken => return late("the client did not read its answer in time"),
                Deadline::Read => self.let_unread_go(now),
            }
        }
        self.deadlines.rearm();
        Ok(())
    }

    /// Ends responses that the client has not read for too long.
    fn let_unread_go(&mut self, now: Instant) {
        let unread_max = self.bounds.unread;
        let late = |entry: &&Entry<B>| entry.unread.is_some_and(|since| since + unread_max <= now);
        let late: Vec<StreamId> = self.entries.iter().flatten().filter(late).map(|entry| entry.stream).collect();
        for stream in late {
            tracing::debug!("an answer was not read");
            self.http.reset(stream, Reason::CANCEL);
            remove(&mut self.entries, stream);
        }
        if let Some(since) = self.entries.iter().flatten().filter_map(|entry| entry.unread).min() {
            self.deadlines.set(Deadline::Read, since + unread_max);
        }
    }

    /// Updates the deadlines after `turn` has read, answered and written.
    fn note(&mut self) {
        let frames = self.http.frames();
        let is_idle = self.http.streams() == 0;
        if !is_idle {
            self.deadlines.clear(Deadline::Idle);
        }
        // The clock is read only if something has happened.
        let becomes_idle = is_idle && (self.was_busy || self.deadlines.at(Deadline::Idle).is_none());
        if frames == self.frames && !becomes_idle {
            return;
        }
        let now = Instant::now();
        if frames != self.frames {
            self.frames = frames;
            self.deadlines.set(Deadline::Ping, now + self.bounds.ping_period);
            if !self.http.is_ping_due() {
                self.deadlines.clear(Deadline::Pong);
            }
        }
        if becomes_idle {
            self.was_busy = false;
            self.deadlines.set(Deadline::Idle, now + self.bounds.idle);
            if self.entries.len() > SLOTS_KEPT {
                (self.entries, self.wakers) = (Vec::new(), Vec::new());
            }
        }
    }

    /// Reads, answers and writes, until nothing more can be done at once. Ready when the connection is over.
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.look()?;
        self.is_readable = true;
        loop {
            if !self.read(context)? {
                return Poll::Ready(Ok(()));
            }
            if self.http.failed().is_some() {
                self.entries.clear();
                self.arrivals.clear();
            }
            self.serve();
            self.fill();
            let has_output = self.http.output_bytes() > 0 || self.is_unflushed;
            if has_output && self.has_mail && !self.gave_way {
                // Lets other tasks run that finish about now, so that their output is sent in the same write.
                self.gave_way = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            ready!(self.write(context))?;
            if self.http.is_finished() {
                let ended = Pin::new(&mut self.io).poll_shutdown(context);
                ready!(self.in_time(ended))?;
                return Poll::Ready(match self.http.failed() {
                    Some((reason, why)) => Err(format!("{reason}: {why}").into()),
                    None => Ok(()),
                });
            }
            if !has_output && !self.is_readable {
                return Poll::Pending;
            }
        }
    }
}

fn late(why: &'static str) -> Result<(), Failure> {
    Err(Error::new(ErrorKind::TimedOut, why).into())
}

impl<T, S, B> Future for Connection<T, S, B>
where
    T: AsyncBufRead + AsyncWrite + Unpin,
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
{
    type Output = Result<(), Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let connection = &mut *self;
        connection.wakes.begin(context.waker());
        let turned = connection.turn(context);
        if turned.is_pending() {
            connection.note();
            connection.wakes.rest(context.waker());
        }
        turned
    }
}

#[cfg(test)]
mod tests;
