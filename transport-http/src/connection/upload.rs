//! The body of a request between its connection and its reader.
//!
//! The connection appends the arriving data, and the reader takes it. Only then may the client send as much again, so
//! that no more data waits here than the windows of flow control allow.

use crate::connection::wakes::{Cause, Wakes};
use bytes::{Bytes, BytesMut};
use holdfast_http2::Reason;
use http_body::{Body, Frame};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// When this many bytes of one body were read, the connection is woken to widen the window of that body's stream.
const READ_OF_ONE_BYTES: usize = 64 << 10;
/// When this many bytes of all bodies were read, the connection is woken to widen its own window.
const READ_OF_ALL_BYTES: usize = 256 << 10;

/// The state that the request bodies of one connection share.
#[derive(Debug)]
pub struct Uploads {
    wakes: Arc<Wakes>,
    /// Bytes that were read or are unwanted, and for which the connection's window was not widened yet.
    read: AtomicUsize,
}

impl Uploads {
    pub fn new(wakes: Arc<Wakes>) -> Uploads {
        Uploads { wakes, read: AtomicUsize::new(0) }
    }

    pub fn read(&self, bytes: usize) {
        let before = self.read.fetch_add(bytes, Ordering::Relaxed);
        if before < READ_OF_ALL_BYTES && before + bytes >= READ_OF_ALL_BYTES {
            self.wakes.wake(Cause::Mail);
        }
    }

    /// The number of bytes of all bodies that were read since the last call.
    pub fn take_read(&self) -> usize {
        match self.read.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.read.swap(0, Ordering::Relaxed),
        }
    }
}

#[derive(Debug)]
struct Shared {
    uploads: Arc<Uploads>,
    slot: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    data: BytesMut,
    /// Bytes that were read, and for which the stream's window was not widened yet.
    read: usize,
    /// How the body ended; `None` while more data may arrive.
    end: Option<Result<(), Cut>>,
    reader: Option<Waker>,
    /// Whether the reader was dropped, so that the data that arrive are unwanted.
    is_dropped: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The connection's side of a body. When it is dropped, the body is cut off.
#[derive(Debug)]
pub struct Upload(Arc<Shared>);

/// The reader's side of a body, from which the request's code reads.
#[derive(Debug)]
pub struct Download(Arc<Shared>);

/// The stream ended before the body of its request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stream error received: {0}")]
pub struct Cut(Reason);

impl Upload {
    /// Makes the upload for the body of the stream in this slot.
    pub fn new(uploads: &Arc<Uploads>, slot: usize) -> Upload {
        Upload(Arc::new(Shared { uploads: uploads.clone(), slot, state: Mutex::default() }))
    }

    pub fn reader(&self) -> Download {
        Download(self.0.clone())
    }

    /// Appends data that arrived from the client.
    pub fn push(&self, data: &[u8], is_end: bool) {
        let mut state = self.0.lock();
        if is_end {
            state.end.get_or_insert(Ok(()));
        }
        if state.is_dropped {
            drop(state);
            return self.0.uploads.read(data.len());
        }
        state.data.extend_from_slice(data);
        wake(state);
    }

    pub fn cut(&self, reason: Reason) {
        let mut state = self.0.lock();
        state.end.get_or_insert(Err(Cut(reason)));
        wake(state);
    }

    /// The number of bytes of this body that were read since the last call.
    pub fn take_read(&self) -> usize {
        std::mem::take(&mut self.0.lock().read)
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.cut(Reason::CANCEL);
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let mut state = self.0.lock();
        if state.data.is_empty() {
            return match state.end {
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(cut)) => Poll::Ready(Some(Err(cut))),
                None => {
                    if state.reader.as_ref().is_none_or(|reader| !reader.will_wake(context.waker())) {
                        state.reader = Some(context.waker().clone());
                    }
                    Poll::Pending
                }
            };
        }
        let data = std::mem::take(&mut state.data).freeze();
        let before = state.read;
        state.read += data.len();
        let is_due = state.end.is_none() && before < READ_OF_ONE_BYTES && state.read >= READ_OF_ONE_BYTES;
        drop(state);
        if is_due {
            self.0.uploads.wakes.wake(Cause::Stream(self.0.slot));
        }
        self.0.uploads.read(data.len());
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.lock();
        state.data.is_empty() && state.end == Some(Ok(()))
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_dropped = true;
        let unread = std::mem::take(&mut state.data).len();
        drop(state);
        self.0.uploads.read(unread);
    }
}
