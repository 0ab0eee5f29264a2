//! Limits on the resources of one client's connection, and on its useless frames.

use crate::fault::Fault;
use crate::reason::Reason;

/// Limits that the driver of a connection sets.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of requests in progress.
    pub streams_max: u32,
    /// The maximum number of bytes of a request's headers, counted as in RFC 9113, section 6.5.2.
    pub head_bytes_max: usize,
    /// The bytes of one request's body that a client may send before any of them is read.
    pub stream_window: u32,
    /// The bytes of the bodies of all requests of a connection together that a client may send before any of them is
    /// read.
    pub connection_window: u32,
}

/// The maximum number of frames in one period that advance no request.
pub const IDLE_FRAMES_MAX: u32 = 10_000;
/// The number of window updates with which a client may answer a DATA frame: one for the stream and one for the
/// connection. These updates do not count as idle.
const UPDATES_A_DATA_FRAME: u32 = 2;
/// The maximum number of CONTINUATION frames after one HEADERS frame. If each frame is full, the largest head needs a
/// quarter of this number.
pub const CONTINUATIONS_MAX: u32 = 64;
/// The maximum number of errors on single streams in one period. A connection may serve many users for days, so it
/// survives a few errors.
const MISTAKES_MAX: u32 = 1_024;
/// A client may cancel as many requests as it may have in progress, and as many as were answered to their end. In
/// addition to these, a client may cancel at most this number of unanswered requests.
const RESETS_MAX: u32 = 64;

/// Counts of the client's useless frames. The counts of idle frames and of errors are of the current period.
#[derive(Debug, Default)]
pub struct UselessFrames {
    idle: u32,
    mistakes: u32,
    resets: u32,
}

impl UselessFrames {
    /// Counts a frame that advances no request.
    pub fn idle(&mut self) -> Result<(), Fault> {
        self.idle += 1;
        match self.idle > IDLE_FRAMES_MAX {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many frames that ask for nothing")),
            false => Ok(()),
        }
    }

    /// Begins a new period, in which the counts of idle frames and of errors start at zero.
    pub fn tick(&mut self) {
        (self.idle, self.mistakes) = (0, 0);
    }

    /// Counts a DATA frame that was sent, which the client may answer with window updates.
    pub fn sent_data(&mut self) {
        self.idle = self.idle.saturating_sub(UPDATES_A_DATA_FRAME);
    }

    /// Counts an error on a stream.
    pub fn mistake(&mut self) -> Result<(), Fault> {
        self.mistakes += 1;
        match self.mistakes > MISTAKES_MAX {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many mistakes")),
            false => Ok(()),
        }
    }

    /// Counts a request that the client cancelled before it was answered.
    pub fn took_back(&mut self, streams_max: u32) -> Result<(), Fault> {
        self.resets += 1;
        match self.resets > streams_max.saturating_add(RESETS_MAX) {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many requests that were taken back")),
            false => Ok(()),
        }
    }

    /// Counts a request that was answered to its end.
    pub fn answered(&mut self) {
        self.resets = self.resets.saturating_sub(1);
    }
}
