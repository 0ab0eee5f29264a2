//! A file of lines that is rotated when it has become large.

use super::Sink;
use crate::Event;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::BoxFuture;
use holdfast_core::visible;
use holdfast_files::file::{open_growing, open_private};
use holdfast_files::folder::make_missing;
use holdfast_files::resolve::own_user;
use jiff::Timestamp;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Legacy,
}

/// When a file is rotated, and how long old files are kept. A limit of zero means that there is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    pub bytes_max: u64,
    pub days_max: u32,
    pub backups_max: usize,
    pub compress: bool,
}

/// Writes lines to a file, or to standard output.
pub struct File {
    format: Format,
    writing: Mutex<OpenFile>,
    /// The buffered lines. Their lock is held only briefly: no thread waits for `writing` while it holds this lock.
    held: Mutex<BufferedLines>,
}

struct OpenFile {
    place: LogSink,
    /// The number of the last buffered line that has been written.
    through: u64,
}

/// Lines that the next write will include.
#[derive(Default)]
struct BufferedLines {
    lines: Vec<u8>,
    /// The number of the last buffered line.
    number: u64,
    /// The number of bytes that are being written. If the write fails, these bytes are put back into the buffer.
    taken: usize,
}

/// The maximum number of bytes that are buffered while the disk accepts no bytes.
const HELD_BYTES_MAX: usize = 1 << 20;

enum LogSink {
    Output,
    File { path: PathBuf, rotation: Rotation, open: fs::File, bytes: u64 },
}

impl File {
    /// Opens the file; `-` is standard output. A missing folder is made.
    pub fn open(path: &str, format: Format, rotation: Rotation) -> io::Result<File> {
        let place = if path == "-" {
            LogSink::Output
        } else {
            let path = PathBuf::from(path);
            let open = open(&path)?;
            let bytes = open.metadata()?.len();
            LogSink::File { path, rotation, open, bytes }
        };
        Ok(File { format, writing: Mutex::new(OpenFile { place, through: 0 }), held: Mutex::default() })
    }

    fn line(&self, event: &Event) -> Vec<u8> {
        match self.format {
            Format::Json => event.json_line(),
            Format::Legacy => event.legacy_line().into_bytes(),
        }
    }

    /// Writes the buffered lines and these events. If the write fails, the lines stay buffered.
    fn write(&self, mut writing: MutexGuard<OpenFile>, events: &[Event]) -> io::Result<()> {
        let (mut lines, number) = {
            let mut held = self.held();
            held.taken = held.lines.len();
            (std::mem::take(&mut held.lines), held.number)
        };
        let end = lines.len();
        events.iter().for_each(|event| lines.append(&mut self.line(event)));
        if lines.is_empty() {
            return Ok(());
        }
        let written = writing.place.write(&lines);
        if written.is_ok() {
            writing.through = number;
            lines.clear();
        }
        // Lines that were not written are put back into the buffer before the `writing` lock is released. Otherwise
        // another writer would count them as written. The buffer is reused, unless an event made it large.
        lines.truncate(end);
        lines.shrink_to(HELD_BYTES_MAX);
        let mut held = self.held();
        lines.append(&mut held.lines);
        (held.lines, held.taken) = (lines, 0);
        written
    }

    fn writing(&self) -> MutexGuard<'_, OpenFile> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, BufferedLines> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the file, or makes it. Only the owner may read the file, because it shows the requests of all users.
fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        make_missing(folder)?;
    }
    open_growing(path, true)
}

impl LogSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            LogSink::Output => {
                // Standard output may be a terminal, so control characters are made visible.
                let text = String::from_utf8_lossy(lines);
                io::stdout().lock().write_all(visible::json(&text).as_bytes())
            }
            LogSink::File { path, rotation, open: file, bytes } => {
                let full = rotation.bytes_max > 0 && *bytes > 0 && *bytes + lines.len() as u64 > rotation.bytes_max;
                if full {
                    *file = rotate(path, *rotation)?;
                    *bytes = 0;
                }
                whole(file, lines, |rest| (&*file).write(rest))?;
                *bytes += lines.len() as u64;
                Ok(())
            }
        }
    }
}

/// Writes all of the lines or none of them. If a full disk cut a line off, the next write would continue that line.
fn whole(file: &fs::File, lines: &[u8], mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
    let mut rest = lines;
    while !rest.is_empty() {
        let error = match write(rest) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(written) => {
                rest = &rest[written..];
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let begun = (lines.len() - rest.len()) as u64;
        if begun > 0
            && let Err(error) = file.metadata().and_then(|now| file.set_len(now.len().saturating_sub(begun)))
        {
            tracing::error!(%error, "half a line stays in the audit file");
        }
        return Err(error);
    }
    Ok(())
}

/// Renames the file to a name with the current time, and opens a new file.
fn rotate(path: &Path, rotation: Rotation) -> io::Result<fs::File> {
    // The time is increased until the name is free, so that no old file is overwritten if files are rotated within a
    // millisecond.
    let mut time = Timestamp::now();
    while aside(path, time).exists() {
        time += jiff::SignedDuration::from_millis(1);
    }
    let aside = aside(path, time);
    match fs::rename(path, &aside) {
        // Another process has removed the file, or the file was renamed earlier when no new file could be opened.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    let fresh = open(path)?;
    let path = path.to_owned();
    // Another thread compresses and removes old files, so that no request waits for this work.
    std::thread::spawn(move || {
        let tidied = compress(&aside, rotation).and_then(|()| forget(&path, rotation, Timestamp::now()));
        if let Err(error) = tidied {
            tracing::error!(%error, path = %path.display(), "old audit files could not be tidied up");
        }
    });
    Ok(fresh)
}

/// The name of a rotated file: `NAME-2026-01-02T03-04-05.678.EXT`.
fn aside(path: &Path, time: Timestamp) -> PathBuf {
    let (before, after) = around(path);
    let time = jiff::tz::Offset::UTC.to_datetime(time);
    path.with_file_name(format!("{before}{}{after}", stamp(time)))
}

/// The parts before and after the time in the names of old files.
fn around(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    (format!("{stem}-"), extension.unwrap_or_default())
}

fn stamp(time: jiff::civil::DateTime) -> String {
    let (day, clock) = (time.date(), time.time());
    let millis = clock.millisecond();
    format!("{day}T{:02}-{:02}-{:02}.{millis:03}", clock.hour(), clock.minute(), clock.second())
}

/// The time in the name of an old file, as text that sorts by time.
fn time_of(name: &str, path: &Path) -> Option<String> {
    let (before, after) = around(path);
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let time = name.strip_prefix(&before)?.strip_suffix(&after)?;
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    (shape == "0000-00-00T00-00-00.000").then(|| time.to_owned())
}

fn compress(path: &Path, rotation: Rotation) -> io::Result<()> {
    if !rotation.compress {
        return Ok(());
    }
    let packed = PathBuf::from(format!("{}.gz", path.display()));
    // Another process has removed the file, so there is nothing to compress.
    let mut plain = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    // A compressed file that was not completed earlier is replaced.
    let _ = fs::remove_file(&packed);
    let out = open_private(&packed, true)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut plain, &mut encoder)?;
    encoder.finish()?;
    fs::remove_file(path)
}

/// Removes old files that are too many or too old.
fn forget(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut old: Vec<(String, PathBuf)> = Vec::new();
    let own = own_user();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // In a shared folder other users may make files with such names; these files must not count.
        if entry.metadata().is_ok_and(|metadata| metadata.uid() != own) {
            continue;
        }
        if let Some(time) = time_of(&entry.file_name().to_string_lossy(), path) {
            old.push((time, entry.path()));
        }
    }
    old.sort_by(|a, b| b.cmp(a));
    let hours = i64::from(rotation.days_max) * 24;
    let since = jiff::tz::Offset::UTC.to_datetime(now - jiff::SignedDuration::from_hours(hours));
    let since = if rotation.days_max > 0 { stamp(since) } else { String::new() };
    for (index, (time, path)) in old.iter().enumerate() {
        let too_many = rotation.backups_max > 0 && index >= rotation.backups_max;
        if too_many || *time < since {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

impl Sink for File {
    fn name(&self) -> &'static str {
        "log"
    }

    fn store<'a>(&'a self, events: &'a [Event]) -> BoxFuture<'a, Result<(), String>> {
        // Writing a line into the page cache takes microseconds, which is less than passing the line to another thread.
        Box::pin(std::future::ready(self.write(self.writing(), events).map_err(|error| error.to_string())))
    }

    fn buffer(&self, event: &Event) -> Option<u64> {
        let mut line = self.line(event);
        let mut held = self.held();
        if held.taken + held.lines.len() + line.len() > HELD_BYTES_MAX {
            return None;
        }
        held.lines.append(&mut line);
        held.number += 1;
        Some(held.number)
    }

    fn release(&self, number: u64) -> Result<(), String> {
        let writing = self.writing();
        if writing.through >= number {
            return Ok(());
        }
        self.write(writing, &[]).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Rotation = Rotation { bytes_max: 8, days_max: 0, backups_max: 0, compress: false };

    fn place(path: &Path) -> LogSink {
        LogSink::File { path: path.to_owned(), rotation: SMALL, open: open(path).expect("a file"), bytes: 0 }
    }

    fn files(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut all: Vec<_> =
            entries.map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("text")).collect();
        all.sort();
        all
    }

    #[test]
    fn no_line_is_lost_between_files_that_begin_anew_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut place = place(&folder.path().join("audit.log"));
        for number in 10..40 {
            place.write(format!("line {number}\n").as_bytes()).expect("written");
        }
        assert_eq!(files(folder.path()), (10..40).map(|number| format!("line {number}\n")).collect::<Vec<_>>());
    }

    /// If another process has removed the file, or if the folder could not be written to when the file was rotated,
    /// later writes make a new file and succeed.
    #[test]
    fn what_hinders_a_new_file_once_does_not_for_good() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logs/audit.log");
        let mut place = place(&path);
        place.write(b"line 1\n").expect("written");
        fs::remove_file(&path).expect("taken away");
        place.write(b"line 2\n").expect("written");
        // The folder is replaced by a file, so no new log file can be opened in it.
        fs::rename(folder.path().join("logs"), folder.path().join("elsewhere")).expect("moved");
        fs::write(folder.path().join("logs"), "").expect("a file");
        place.write(b"line 3\n").expect_err("no folder");
        fs::remove_file(folder.path().join("logs")).expect("removed");
        place.write(b"line 4\n").expect("written");
        assert_eq!(files(&folder.path().join("logs")), ["line 4\n"]);
    }

    #[test]
    fn what_does_not_fit_leaves_no_half_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = open(&folder.path().join("audit.log")).expect("a file");
        let write = |bytes: &[u8]| (&file).write(bytes);
        whole(&file, b"line 1\n", write).expect("written");
        let mut room = 3;
        let full = |bytes: &[u8]| match std::mem::take(&mut room) {
            0 => Err(io::ErrorKind::StorageFull.into()),
            room => write(&bytes[..room]),
        };
        whole(&file, b"line 2\n", full).expect_err("the disk is full");
        whole(&file, b"line 3\n", write).expect("written");
        assert_eq!(files(folder.path()), ["line 1\nline 3\n"]);
    }

    fn event(audit_id: &str) -> Event {
        Event { audit_id: audit_id.into(), ..Event::nothing() }
    }

    /// The ids of the events in a file, line by line.
    fn ids(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let id = |line: &str| {
            let event: holdfast_value::Value = serde_json::from_str(line).expect("an event");
            event["auditID"].as_str().expect("an id").to_owned()
        };
        text.lines().map(id).collect()
    }

    #[test]
    fn what_is_held_goes_before_what_comes_next_and_stays_while_nothing_can_be_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("logs/audit.log");
        let open = || File::open(path.to_str().expect("a path"), Format::Json, SMALL).expect("a file");
        let file = open();
        let keep = |event: &[Event]| file.write(file.writing(), event);
        let hold = |id: &str| file.buffer(&event(id)).expect("there is room");
        assert!(hold("1") < hold("2"));
        assert_eq!(ids(&path), [""; 0]);
        keep(&[event("3")]).expect("written");
        assert_eq!(ids(&path), ["1", "2", "3"]);
        let fourth = hold("4");
        // The file is rotated at each write. The rotation fails while the file's folder is a file.
        fs::rename(folder.path().join("logs"), folder.path().join("elsewhere")).expect("moved");
        fs::write(folder.path().join("logs"), "").expect("a file");
        keep(&[event("5")]).expect_err("no folder");
        file.release(fourth).expect_err("no folder");
        fs::remove_file(folder.path().join("logs")).expect("removed");
        file.release(fourth).expect("written");
        assert_eq!(ids(&path), ["4"]);
        file.release(u64::MAX).expect("nothing is left");
        assert_eq!(ids(&path), ["4"]);
    }

    #[test]
    fn what_somebody_else_has_written_is_not_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let file = File::open(path.to_str().expect("a path"), Format::Json, Rotation::default()).expect("a file");
        let [first, second] = ["1", "2"].map(|id| file.buffer(&event(id)).expect("there is room"));
        file.release(second).expect("written");
        let third = file.buffer(&event("3")).expect("there is room");
        file.release(first).expect("it is written");
        assert_eq!(ids(&path), ["1", "2"], "the third is nobody's yet");
        file.release(third).expect("written");
        assert_eq!(ids(&path), ["1", "2", "3"]);
    }

    #[test]
    fn no_more_is_held_than_there_is_room_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let file = File::open(path.to_str().expect("a path"), Format::Json, Rotation::default()).expect("a file");
        let large = event(&"x".repeat(HELD_BYTES_MAX / 2));
        assert_eq!(file.buffer(&large), Some(1));
        assert_eq!(file.buffer(&large), None);
        assert_eq!(file.buffer(&event("small")), Some(2));
        // The size of lines that are being written counts, because these lines may be put back into the buffer.
        let before = std::mem::replace(&mut file.held().taken, HELD_BYTES_MAX / 2);
        assert_eq!((before, file.buffer(&event("small"))), (0, None));
        file.write(file.writing(), &[event(&"x".repeat(4 * HELD_BYTES_MAX))]).expect("written");
        assert!(file.held().lines.capacity() <= HELD_BYTES_MAX);
        assert_eq!(file.buffer(&event("small")), Some(3));
    }

    #[test]
    fn old_files_are_named_by_time_and_go_by_age_and_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let now: Timestamp = "2026-03-10T12:00:00.5Z".parse().expect("a time");
        for name in [
            "audit-2026-03-10T11-00-00.000.log",
            "audit-2026-03-09T11-00-00.000.log.gz",
            "audit-2026-03-08T11-00-00.000.log",
            "audit-2026-02-08T11-00-00.000.log",
            "audit-kept.log",
            "audit.log",
        ] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        assert!(aside(&path, now).ends_with("audit-2026-03-10T12-00-00.500.log"));
        let left = || {
            let mut names: Vec<_> = fs::read_dir(folder.path())
                .expect("a folder")
                .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            names
        };
        forget(&path, Rotation { days_max: 7, ..Rotation::default() }, now).expect("tidied");
        assert_eq!(left().len(), 5);
        forget(&path, Rotation { backups_max: 1, ..Rotation::default() }, now).expect("tidied");
        assert_eq!(left(), ["audit-2026-03-10T11-00-00.000.log", "audit-kept.log", "audit.log"]);
    }
}
