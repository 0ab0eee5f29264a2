//! Answers requests in the connection's task or in other tasks, and sends bodies as fast as the client reads them.

use super::making::{self, Content, Letter, Made, Next, Pen, Task, Then, guarded};
use super::upload::Upload;
use super::wakes::{Cause, Wakes};
use super::{Connection, Deadline, Failure, OUTPUT_BYTES_MAX, date};
use crate::manners::Farewell;
use crate::received::Received;
use bytes::Bytes;
use holdfast_http2::{Reason, ResponseHead, StreamId};
use http::response::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::time::Instant;
use tower::Service;

/// One request of the connection, and the state of its response.
pub struct Entry<B> {
    pub stream: StreamId,
    is_head: bool,
    upload: Option<Upload>,
    pub work: Work<B>,
    /// The time since which data of the response waits for the client to read.
    pub unread: Option<Instant>,
}

/// The work that makes the response at present. The work ends when this value is dropped.
pub enum Work<B> {
    /// No work on the response has begun.
    None,
    /// The future of a request with little work waits. This task polls the future when it is woken.
    Waiting(Making<B>),
    /// A separate task makes the response.
    Task(#[expect(dead_code, reason = "dropping it ends the task")] Task),
    /// No work runs until the client has read the data so far. Then the body is polled for more, in this task if `here`
    /// is true, otherwise in another task.
    Body { body: B, here: bool },
    /// The response is made. The body is kept until the client has read the rest, because the body may own memory that
    /// counts as used until then.
    Done(Option<B>),
}

/// The future that makes the response to one request.
type Making<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>> + Send>>;

impl<B> Entry<B> {
    pub fn new(stream: StreamId, head: &Request<()>, upload: Option<Upload>) -> Entry<B> {
        let is_head = head.method() == Method::HEAD;
        Entry { stream, is_head, upload, work: Work::None, unread: None }
    }

    pub fn upload(&mut self) -> Option<&Upload> {
        self.upload.as_ref()
    }
}

/// The entry of a stream, if the stream still exists.
pub fn entry_of<B>(entries: &mut [Option<Entry<B>>], stream: StreamId) -> Option<&mut Entry<B>> {
    entries.get_mut(stream.slot())?.as_mut().filter(|entry| entry.stream == stream)
}

pub fn remove<B>(entries: &mut [Option<Entry<B>>], stream: StreamId) {
    if let Some(place) = entries.get_mut(stream.slot())
        && place.as_ref().is_some_and(|entry| entry.stream == stream)
    {
        *place = None;
    }
}

/// The waker for a stream. Streams that use the same slot one after another share the waker.
fn waker(wakers: &mut Vec<Waker>, wakes: &Arc<Wakes>, stream: StreamId) -> Waker {
    while wakers.len() <= stream.slot() {
        wakers.push(wakes.waker(Cause::Stream(wakers.len())));
    }
    wakers[stream.slot()].clone()
}

impl<T, S, B> Connection<T, S, B>
where
    T: AsyncBufRead + AsyncWrite + Unpin,
    S: Service<Request<Received>, Response = Response<B>, Error = Infallible, Future: Send + 'static>,
    B: Body<Data = Bytes, Error: Into<Failure>> + Send + Unpin + 'static,
{
    /// Begins to answer the requests that were read.
    pub(super) fn serve(&mut self) {
        if self.arrivals.is_empty() {
            return;
        }
        self.was_busy = true;
        for (stream, head) in std::mem::take(&mut self.arrivals) {
            self.ask(stream, head);
        }
    }

    fn ask(&mut self, stream: StreamId, head: Request<()>) {
        // The client may have cancelled the request, and then it has no entry.
        let Some(entry) = entry_of(&mut self.entries, stream) else { return };
        let body = entry.upload.as_ref().map_or_else(Received::nothing, |upload| Received::Http2(upload.reader()));
        let is_quick = (self.is_quick)(&head);
        let waker = waker(&mut self.wakers, &self.wakes, stream);
        let mut context = Context::from_waker(&waker);
        let service = &mut self.service;
        let called = guarded(|| match service.poll_ready(&mut context) {
            Poll::Ready(_) => Some(Box::pin(service.call(head.map(|()| body)))),
            Poll::Pending => None,
        });
        match called {
            Some(Some(future)) if is_quick => self.make_here(stream, future),
            Some(Some(future)) => {
                let pen = Pen::new(&self.mailbox, stream);
                entry.work = Work::Task(Task::new(tokio::spawn(making::answer(future, pen))));
            }
            _ => self.abandon(stream),
        }
    }

    /// Polls the future of a request with little work. If the future waits, other requests of the connection often wait
    /// for the same event, such as an answer of a shared log. These requests are polled here too, so that all of them
    /// are answered together.
    fn make_here(&mut self, stream: StreamId, mut future: Making<B>) {
        let Some(entry) = entry_of(&mut self.entries, stream) else { return };
        let waker = waker(&mut self.wakers, &self.wakes, stream);
        let mut context = Context::from_waker(&waker);
        match guarded(|| pin!(tokio::task::unconstrained(future.as_mut())).poll(&mut context)) {
            Some(Poll::Ready(Ok(answer))) => {
                let (head, body) = answer.into_parts();
                if entry.is_head || body.is_end_stream() || making::is_short(&head, &body) {
                    return self.begin(stream, head, body);
                }
                let pen = Pen::new(&self.mailbox, stream);
                entry.work = Work::Task(Task::new(tokio::spawn(making::begin(head, body, pen))));
            }
            Some(Poll::Pending) => entry.work = Work::Waiting(future),
            None => self.abandon(stream),
        }
    }

    /// Resets a stream after an error of the server.
    fn abandon(&mut self, stream: StreamId) {
        self.http.reset(stream, Reason::INTERNAL_ERROR);
        remove(&mut self.entries, stream);
    }

    /// Sends the head of a response, and the pieces of its short body that are ready.
    fn begin(&mut self, stream: StreamId, head: Parts, body: B) {
        if self.send_head(stream, head, &body) {
            self.set_work(stream, Work::Body { body, here: true });
            self.go_on(stream);
        }
    }

    /// Sends the head of a response. Returns false if no body follows, or if the stream no longer exists.
    fn send_head(&mut self, stream: StreamId, mut head: Parts, body: &B) -> bool {
        let Some(entry) = entry_of(&mut self.entries, stream) else { return false };
        let is_end = entry.is_head || body.is_end_stream();
        if head.extensions.remove::<Farewell>().is_some() {
            self.shut_down();
        }
        let date = date::now();
        let answer = ResponseHead {
            status: head.status,
            headers: &head.headers,
            date: Some(&date),
            length: if is_end { None } else { body.size_hint().exact() },
            is_end,
        };
        let is_open = self.http.answer(stream, &answer) && !is_end;
        if !is_open {
            remove(&mut self.entries, stream);
        }
        is_open
    }

    fn set_work(&mut self, stream: StreamId, work: Work<B>) {
        if let Some(entry) = entry_of(&mut self.entries, stream) {
            entry.work = work;
        }
    }

    /// Polls a body for more data, unless earlier data still waits to be sent.
    fn go_on(&mut self, stream: StreamId) {
        let mut waker_of_stream = None;
        while let Some(entry) = entry_of(&mut self.entries, stream)
            && entry.unread.is_none()
            && let Work::Body { body, here } = &mut entry.work
        {
            if !*here {
                return self.send_away(stream);
            }
            let waker = waker_of_stream.get_or_insert_with(|| waker(&mut self.wakers, &self.wakes, stream));
            let all_gone = match making::next(body, &mut Context::from_waker(waker)) {
                Next::Data(data) => {
                    let is_end = body.is_end_stream();
                    self.send(stream, data, is_end)
                }
                Next::End(trailers) => self.send_end(stream, trailers),
                Next::Waits => return,
                Next::Fails => return self.abandon(stream),
            };
            if !all_gone {
                return;
            }
        }
    }

    /// Starts a task that makes the next pieces of a body.
    fn send_away(&mut self, stream: StreamId) {
        let Some(entry) = entry_of(&mut self.entries, stream) else { return };
        if let Work::Body { body, .. } = std::mem::replace(&mut entry.work, Work::None) {
            let pen = Pen::new(&self.mailbox, stream);
            let task = tokio::spawn(async move { pen.send(Content::Made(making::make(body).await)) });
            entry.work = Work::Task(Task::new(task));
        }
    }

    /// Sends a piece. Returns false if the piece waits for the client or for its turn.
    fn send(&mut self, stream: StreamId, data: Bytes, is_end: bool) -> bool {
        let all_gone = self.http.send(stream, data, is_end);
        self.sent(stream, all_gone, is_end)
    }

    fn send_end(&mut self, stream: StreamId, trailers: Option<HeaderMap>) -> bool {
        let all_gone = match trailers {
            Some(trailers) => self.http.send_trailers(stream, trailers),
            None => self.http.send(stream, Bytes::new(), true),
        };
        self.sent(stream, all_gone, true)
    }

    fn sent(&mut self, stream: StreamId, all_gone: bool, is_end: bool) -> bool {
        if all_gone && is_end {
            remove(&mut self.entries, stream);
        }
        let Some(entry) = entry_of(&mut self.entries, stream) else { return true };
        if is_end {
            entry.work = match std::mem::replace(&mut entry.work, Work::None) {
                Work::Body { body, .. } => Work::Done(Some(body)),
                _ => Work::Done(None),
            };
        }
        if !all_gone && entry.unread.is_none() {
            let now = Instant::now();
            entry.unread = Some(now);
            self.deadlines.set_first(Deadline::Read, now + self.bounds.unread);
        }
        all_gone
    }

    /// Makes frames of waiting data, and polls bodies for more, while the output has room.
    pub(super) fn fill(&mut self) {
        loop {
            let has_filled = self.http.fill();
            while let Some(stream) = self.http.drained() {
                self.drained(stream);
            }
            if !has_filled || self.http.output_bytes() >= OUTPUT_BYTES_MAX {
                return;
            }
        }
    }

    /// Called when all data of a response that was made so far has been sent.
    fn drained(&mut self, stream: StreamId) {
        let Some(entry) = entry_of(&mut self.entries, stream) else { return };
        entry.unread = None;
        match entry.work {
            Work::Done(_) => remove(&mut self.entries, stream),
            _ => self.go_on(stream),
        }
    }

    /// Takes the results that tasks have sent to this connection.
    pub(super) fn open_mail(&mut self) {
        for Letter { stream, content } in self.mailbox.open() {
            if entry_of(&mut self.entries, stream).is_none() {
                continue;
            }
            self.has_mail = true;
            match content {
                Content::Answer(head, body) => self.begin(stream, head, body),
                Content::Begun(head, made) => {
                    if self.send_head(stream, head, &made.body) {
                        self.take_in(stream, made);
                    }
                }
                Content::Made(made) => self.take_in(stream, made),
                Content::Nothing => self.abandon(stream),
            }
        }
    }

    fn take_in(&mut self, stream: StreamId, made: Made<B>) {
        let Made { body, pieces, then } = made;
        self.set_work(stream, Work::Body { body, here: matches!(then, Then::Waits) });
        let mut pieces = pieces.into_iter().peekable();
        while let Some(piece) = pieces.next() {
            let is_end = pieces.peek().is_none() && matches!(then, Then::Ends(None));
            self.send(stream, piece, is_end);
            if is_end {
                return;
            }
        }
        match then {
            Then::Ends(trailers) => _ = self.send_end(stream, trailers),
            Then::Fails => self.abandon(stream),
            Then::Goes | Then::Waits => self.go_on(stream),
        }
    }

    /// Continues a stream that was woken because its response body has more data, or because its request body was read.
    pub(super) fn look_at(&mut self, slot: usize) {
        let Some(entry) = self.entries.get_mut(slot).and_then(Option::as_mut) else { return };
        let stream = entry.stream;
        if let Some(upload) = &entry.upload {
            self.http.release_of(stream, upload.take_read());
        }
        match std::mem::replace(&mut entry.work, Work::None) {
            Work::Waiting(future) => {
                self.has_mail = true;
                self.make_here(stream, future);
            }
            work => {
                let is_here = matches!(work, Work::Body { here: true, .. });
                entry.work = work;
                if is_here {
                    self.go_on(stream);
                }
            }
        }
    }
}
