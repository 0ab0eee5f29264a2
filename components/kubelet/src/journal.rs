//! The log of a container: its newest lines, each with its time.

use std::collections::VecDeque;

/// The maximum number of bytes of lines that are kept.
const BYTES_MAX: usize = 1 << 20;
/// The longest line, in bytes. Longer lines are split.
const LINE_BYTES_MAX: usize = 16 << 10;
/// How many bytes of recent output are kept for clients that attach.
const RECENT_BYTES_MAX: usize = 256 << 10;
/// How many bytes of [`BYTES_MAX`] a line takes in addition to its text.
const LINE_BYTES: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    pub time_ms: i64,
    /// Whether the line was written to stderr, and not to stdout.
    pub is_error: bool,
    /// The text of the line. If the line is complete, the line break is part of it.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct Journal {
    lines: VecDeque<LogLine>,
    /// How many lines were dropped because they were too old.
    dropped: u64,
    bytes: usize,
    /// The last line of stdout and the last line of stderr, if they are incomplete.
    open: [Option<LogLine>; 2],
}

impl Journal {
    /// Adds output; complete lines are appended to the log.
    pub fn put(&mut self, time_ms: i64, is_error: bool, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let open = &mut self.open[usize::from(is_error)];
            let line = open.get_or_insert_with(|| LogLine { time_ms, is_error, bytes: Vec::new() });
            line.bytes.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.bytes.len() >= LINE_BYTES_MAX {
                self.close(is_error);
            }
        }
    }

    fn close(&mut self, is_error: bool) {
        let Some(line) = self.open[usize::from(is_error)].take() else { return };
        self.bytes += line.bytes.len() + LINE_BYTES;
        self.lines.push_back(line);
        while self.bytes > BYTES_MAX
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.bytes.len() + LINE_BYTES;
            self.dropped += 1;
        }
    }

    /// Ends the log. Incomplete lines are appended as they are.
    pub fn end(&mut self) {
        self.close(false);
        self.close(true);
    }

    /// The kept lines beginning with line number `number`, and the number of the next line.
    pub fn since(&self, number: u64) -> (Vec<LogLine>, u64) {
        let skip = usize::try_from(number.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        let lines = self.lines.iter().skip(skip).cloned().collect();
        (lines, self.dropped + self.lines.len() as u64)
    }
}

/// A container's recent output in the pieces in which it was written, for clients that attach.
#[derive(Debug, Default)]
pub struct Recent {
    pieces: VecDeque<(bool, Vec<u8>)>,
    gone: u64,
    bytes: usize,
}

impl Recent {
    pub fn put(&mut self, is_error: bool, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len() + LINE_BYTES;
        self.pieces.push_back((is_error, bytes.to_vec()));
        while self.bytes > RECENT_BYTES_MAX
            && let Some((_, oldest)) = self.pieces.pop_front()
        {
            self.bytes -= oldest.len() + LINE_BYTES;
            self.gone += 1;
        }
    }

    /// The number that the next piece will get.
    pub fn next(&self) -> u64 {
        self.gone + self.pieces.len() as u64
    }

    /// The kept pieces beginning with piece number `number`. If a client reads too slowly, the oldest pieces are gone.
    pub fn since(&self, number: u64) -> Vec<(bool, Vec<u8>)> {
        let skip = usize::try_from(number.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        self.pieces.iter().skip(skip).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_kept_and_the_oldest_go() {
        let mut journal = Journal::default();
        journal.put(1, false, b"a");
        journal.put(2, true, b"e\n");
        journal.put(3, false, b"b\nc");
        let (lines, next) = journal.since(0);
        let told: Vec<_> = lines.iter().map(|line| (line.time_ms, line.bytes.as_slice())).collect();
        assert_eq!((told, next), (vec![(2, &b"e\n"[..]), (1, b"ab\n")], 2));
        journal.end();
        assert_eq!(journal.since(2).0.len(), 1);
        for _ in 0..100_000 {
            journal.put(4, false, b"0123456789012345678901234567890\n");
        }
        let (lines, next) = journal.since(0);
        assert!(journal.bytes <= BYTES_MAX && lines.len() < 20_000 && next == 100_003);
        journal.put(5, false, &vec![b'x'; 10 * LINE_BYTES_MAX]);
        assert!(journal.open[0].is_none(), "a line without an end is not kept whole");
    }
}
