//! Response bodies: where the next piece is made, and the tasks that make pieces.
//!
//! A short body is made in the connection's task, which also sends it. A long body may take much work, so a separate
//! task makes one batch of pieces at a time. A body that has waited once is a watch, and its connection polls it from
//! then on. When an event is delivered, all watches of the connection get it at the same time, and their frames are
//! written together.

use crate::connection::wakes::{Cause, Wakes};
use bytes::Bytes;
use holdfast_http2::StreamId;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response};
use http_body::Body;
use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::task::{AbortHandle, JoinHandle};

/// A task stops making a body after this many bytes, and sends these bytes to the connection.
const MADE_BYTES: usize = 64 << 10;

/// Whether a body is so short that it is made in the connection's task.
pub fn is_short(head: &Parts, body: &impl Body) -> bool {
    let said = || head.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok();
    body.size_hint().exact().or_else(said).is_some_and(|bytes| bytes <= MADE_BYTES as u64)
}

/// The result of one poll of a body.
#[derive(Debug)]
pub enum Next {
    Data(Bytes),
    End(Option<HeaderMap>),
    Waits,
    Fails,
}

/// Polls a body. tokio's budget does not apply, so that a body is not delayed because many other bodies were polled
/// before.
pub fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B, context: &mut Context<'_>) -> Next {
    let frame = guarded(|| {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        pin!(tokio::task::unconstrained(frame)).poll(context)
    });
    match frame {
        Some(Poll::Pending) => Next::Waits,
        Some(Poll::Ready(None)) => Next::End(None),
        None | Some(Poll::Ready(Some(Err(_)))) => Next::Fails,
        Some(Poll::Ready(Some(Ok(frame)))) => match frame.into_data() {
            Ok(data) => Next::Data(data),
            Err(frame) => Next::End(frame.into_trailers().ok()),
        },
    }
}

/// Runs code of a service or body; `None` when it panics. Then the stream ends, and the connection continues.
pub fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// The pieces of a body that one task has made, and the rest of the body.
#[derive(Debug)]
pub struct Made<B> {
    pub body: B,
    pub pieces: Vec<Bytes>,
    pub then: Then,
}

#[derive(Debug)]
pub enum Then {
    /// The body has more pieces, which can be made at once.
    Goes,
    Waits,
    Ends(Option<HeaderMap>),
    Fails,
}

/// Makes the next pieces of a body, until the body waits or ends or there are enough bytes.
pub async fn make<B: Body<Data = Bytes> + Unpin>(mut body: B) -> Made<B> {
    let mut pieces = Vec::new();
    let then = poll_fn(|context| Poll::Ready(gather(&mut body, &mut pieces, context))).await;
    Made { body, pieces, then }
}

fn gather<B: Body<Data = Bytes> + Unpin>(body: &mut B, pieces: &mut Vec<Bytes>, context: &mut Context<'_>) -> Then {
    let mut bytes = 0;
    while bytes < MADE_BYTES {
        match next(body, context) {
            Next::Data(data) => {
                bytes += data.len();
                pieces.push(data);
                if body.is_end_stream() {
                    return Then::Ends(None);
                }
            }
            Next::End(trailers) => return Then::Ends(trailers),
            Next::Fails => return Then::Fails,
            Next::Waits => return Then::Waits,
        }
    }
    Then::Goes
}

/// Runs the future of a request, and begins a long body.
pub async fn answer<F, B>(future: Pin<Box<F>>, pen: Pen<B>)
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body<Data = Bytes> + Unpin,
{
    let Ok(answer) = future.await;
    let (head, body) = answer.into_parts();
    match is_short(&head, &body) {
        true => pen.send(Content::Answer(head, body)),
        false => begin(head, body, pen).await,
    }
}

/// Begins a body that is long or of unknown length. The head is sent with the first pieces of the body.
pub async fn begin<B: Body<Data = Bytes> + Unpin>(head: Parts, body: B, pen: Pen<B>) {
    let made = make(body).await;
    pen.send(Content::Begun(head, made));
}

/// A task that works for a stream. The task ends when this value is dropped.
#[derive(Debug)]
pub struct Task(AbortHandle);

impl Task {
    pub fn new(handle: JoinHandle<()>) -> Task {
        Task(handle.abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The messages that tasks have sent to their connection.
#[derive(Debug)]
pub struct Mailbox<B> {
    letters: Mutex<Vec<Letter<B>>>,
    wakes: Arc<Wakes>,
}

#[derive(Debug)]
pub struct Letter<B> {
    pub stream: StreamId,
    pub content: Content<B>,
}

#[derive(Debug)]
pub enum Content<B> {
    /// A response whose body is made in the connection's task.
    Answer(Parts, B),
    /// The beginning of a response whose body tasks make.
    Begun(Parts, Made<B>),
    Made(Made<B>),
    /// The task ended without a result, because it panicked.
    Nothing,
}

impl<B> Mailbox<B> {
    pub fn new(wakes: Arc<Wakes>) -> Mailbox<B> {
        Mailbox { letters: Mutex::default(), wakes }
    }

    /// Takes all letters that tasks have sent since the last call.
    pub fn open(&self) -> Vec<Letter<B>> {
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    fn put(&self, letter: Letter<B>) {
        self.letters.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(letter);
        self.wakes.wake(Cause::Mail);
    }
}

/// Lets a task send one letter. If the pen is dropped unused, it sends a letter without a result, so that the
/// connection detects a panic.
pub struct Pen<B> {
    mailbox: Arc<Mailbox<B>>,
    stream: StreamId,
    content: Content<B>,
}

impl<B> Pen<B> {
    pub fn new(mailbox: &Arc<Mailbox<B>>, stream: StreamId) -> Pen<B> {
        Pen { mailbox: mailbox.clone(), stream, content: Content::Nothing }
    }

    pub fn send(mut self, content: Content<B>) {
        self.content = content;
    }
}

impl<B> Drop for Pen<B> {
    fn drop(&mut self) {
        let content = std::mem::replace(&mut self.content, Content::Nothing);
        self.mailbox.put(Letter { stream: self.stream, content });
    }
}
