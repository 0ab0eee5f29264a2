//! Bounded pipes between processes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The capacity of a pipe, in bytes.
pub const PIPE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    readers: usize,
    writers: usize,
}

#[derive(Debug)]
pub struct PipeReader(Arc<Mutex<Pipe>>);

#[derive(Debug)]
pub struct PipeWriter(Arc<Mutex<Pipe>>);

/// The result of reading from a pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadResult {
    Bytes(Vec<u8>),
    NothingYet,
    End,
}

pub fn pipe() -> (PipeWriter, PipeReader) {
    let pipe = Arc::new(Mutex::new(Pipe { readers: 1, writers: 1, ..Pipe::default() }));
    (PipeWriter(pipe.clone()), PipeReader(pipe))
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PipeReader {
    /// Takes at most `bytes_max` bytes from the pipe. With `line`, takes no byte after the end of a line.
    pub fn take(&self, bytes_max: usize, line: bool) -> ReadResult {
        let mut pipe = lock(&self.0);
        if pipe.bytes.is_empty() {
            return if pipe.writers == 0 { ReadResult::End } else { ReadResult::NothingYet };
        }
        let mut count = pipe.bytes.len().min(bytes_max);
        if line && let Some(end) = pipe.bytes.iter().take(count).position(|byte| *byte == b'\n') {
            count = end + 1;
        }
        ReadResult::Bytes(pipe.bytes.drain(..count).collect())
    }
}

impl PipeWriter {
    /// Writes as many of the bytes as fit, and returns their number; `None` if the reader has gone.
    pub fn put(&self, bytes: &[u8]) -> Option<usize> {
        let mut pipe = lock(&self.0);
        if pipe.readers == 0 {
            return None;
        }
        let count = bytes.len().min(PIPE_BYTES_MAX - pipe.bytes.len());
        pipe.bytes.extend(&bytes[..count]);
        Some(count)
    }

    /// How many bytes the pipe can still take.
    pub fn room(&self) -> usize {
        PIPE_BYTES_MAX - lock(&self.0).bytes.len()
    }
}

macro_rules! ends {
    ($end:ident, $count:ident) => {
        impl Clone for $end {
            fn clone(&self) -> $end {
                lock(&self.0).$count += 1;
                $end(self.0.clone())
            }
        }

        impl Drop for $end {
            fn drop(&mut self) {
                lock(&self.0).$count -= 1;
            }
        }
    };
}

ends!(PipeReader, readers);
ends!(PipeWriter, writers);
