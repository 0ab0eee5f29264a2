//! A file of lines, which begins anew when it has become large.

use super::Sink;
use crate::Event;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Legacy,
}

/// When a file begins anew, and how long the old ones stay. Zero is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotation {
    pub bytes_max: u64,
    pub days_max: u32,
    pub backups_max: usize,
    pub compress: bool,
}

/// Lines in a file, or on the standard output.
pub struct File {
    format: Format,
    place: Mutex<Place>,
}

enum Place {
    Output,
    File { path: PathBuf, rotation: Rotation, open: fs::File, bytes: u64 },
}

impl File {
    /// `-` is the standard output. The folder is made if it is not there.
    pub fn open(path: &str, format: Format, rotation: Rotation) -> io::Result<File> {
        let place = if path == "-" {
            Place::Output
        } else {
            let path = PathBuf::from(path);
            let open = open(&path)?;
            let bytes = open.metadata()?.len();
            Place::File { path, rotation, open, bytes }
        };
        Ok(File { format, place: Mutex::new(place) })
    }

    fn write(&self, events: &[Arc<Event>]) -> io::Result<()> {
        let mut lines = Vec::new();
        for event in events {
            match self.format {
                Format::Json => lines.extend(event.json_line()),
                Format::Legacy => lines.extend(event.legacy_line().into_bytes()),
            }
        }
        self.place.lock().unwrap_or_else(PoisonError::into_inner).write(&lines)
    }
}

/// Nobody but the owner reads what others have asked for.
fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Place {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Place::Output => io::stdout().lock().write_all(lines),
            Place::File { path, rotation, open: file, bytes } => {
                let full = rotation.bytes_max > 0 && *bytes > 0 && *bytes + lines.len() as u64 > rotation.bytes_max;
                if full {
                    *file = rotate(path, *rotation)?;
                    *bytes = 0;
                }
                file.write_all(lines)?;
                *bytes += lines.len() as u64;
                Ok(())
            }
        }
    }
}

/// Puts the file aside under the time of now, and opens a new one.
fn rotate(path: &Path, rotation: Rotation) -> io::Result<fs::File> {
    let aside = aside(path, Timestamp::now());
    fs::rename(path, &aside)?;
    let fresh = open(path)?;
    let path = path.to_owned();
    // What is done with old files, requests do not wait for.
    std::thread::spawn(move || {
        let tidied = compress(&aside, rotation).and_then(|()| forget(&path, rotation, Timestamp::now()));
        if let Err(error) = tidied {
            tracing::error!(%error, path = %path.display(), "old audit files could not be tidied up");
        }
    });
    Ok(fresh)
}

/// `NAME-2026-01-02T03-04-05.678.EXT`.
fn aside(path: &Path, time: Timestamp) -> PathBuf {
    let (before, after) = around(path);
    let time = jiff::tz::Offset::UTC.to_datetime(time);
    path.with_file_name(format!("{before}{}{after}", stamp(time)))
}

/// What stands before and behind the time in the names of old files.
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
    let out = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&packed)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut fs::File::open(path)?, &mut encoder)?;
    encoder.finish()?;
    fs::remove_file(path)
}

/// Removes the old files that are too many or too old.
fn forget(path: &Path, rotation: Rotation, now: Timestamp) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut old: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
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

    fn keep<'a>(&'a self, events: &'a [Arc<Event>]) -> BoxFuture<'a, Result<(), String>> {
        // A line into the page cache takes microseconds: less than to hand it to another thread.
        Box::pin(std::future::ready(self.write(events).map_err(|error| error.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
