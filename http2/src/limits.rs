//! What one client can hold of a connection, and how much of what leads nowhere it may send.

use crate::fault::Fault;
use crate::reason::Reason;

/// What whoever serves decides.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests in progress.
    pub streams_max: u32,
    /// The names and values of a request's headers, counted as RFC 9113 does in section 6.5.2.
    pub head_bytes_max: usize,
    /// What a client may send of one request's body before any of it is read.
    pub stream_window: u32,
    /// The same of all of them together.
    pub connection_window: u32,
}

/// Frames in a row, within one period, that bring no request on.
pub const IDLE_FRAMES_MAX: u32 = 10_000;
/// How many window updates a client owes us for a frame of data: one for the stream, one for the connection.
const UPDATES_A_DATA_FRAME: u32 = 2;
/// CONTINUATION frames behind one HEADERS frame. The largest head takes a quarter of these when they are full.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Mistakes about single streams that a connection survives within one period: it may serve many people for days.
const MISTAKES_MAX: u32 = 1_024;
/// Requests that a client takes back unanswered: so many more than it let be answered, and than it may have at a time.
const RESETS_MAX: u32 = 64;

/// What a client has sent that led nowhere.
#[derive(Debug, Default)]
pub struct Counts {
    idle: u32,
    mistakes: u32,
    resets: u32,
}

impl Counts {
    /// A frame that brings no request on.
    pub fn idle(&mut self) -> Result<(), Fault> {
        self.idle += 1;
        match self.idle > IDLE_FRAMES_MAX {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many frames that ask for nothing")),
            false => Ok(()),
        }
    }

    /// Begins a new period.
    pub fn tick(&mut self) {
        (self.idle, self.mistakes) = (0, 0);
    }

    /// Data went out, which the client may answer with updates of windows.
    pub fn sent_data(&mut self) {
        self.idle = self.idle.saturating_sub(UPDATES_A_DATA_FRAME);
    }

    /// The client did something wrong with a stream.
    pub fn mistake(&mut self) -> Result<(), Fault> {
        self.mistakes += 1;
        match self.mistakes > MISTAKES_MAX {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many mistakes")),
            false => Ok(()),
        }
    }

    /// The client took a request back that was not answered yet.
    pub fn took_back(&mut self, streams_max: u32) -> Result<(), Fault> {
        self.resets += 1;
        match self.resets > streams_max.saturating_add(RESETS_MAX) {
            true => Err(Fault::connection(Reason::ENHANCE_YOUR_CALM, "too many requests that were taken back")),
            false => Ok(()),
        }
    }

    /// A request was answered to its end.
    pub fn answered(&mut self) {
        self.resets = self.resets.saturating_sub(1);
    }
}
