//! The log to replay, event by event, from any of its sources.

use crate::encryption::EncryptionArgs;
use crate::log::format::{self, FOOTER, FooterLine, Header};
use crate::log::import::Lines;
use crate::remote::log::RemoteLog;
use crate::remote::{Followed, RemoteServer, open_folder};
use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_core::event::{Offset, Record};
use holdfast_encryption::Keyring;
use holdfast_engine::log::sealing::Values;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// How many records are read at a time.
const PIECE: usize = 1024;

pub struct Source {
    events: Events,
    from: u64,
    to: u64,
    server: Option<String>,
}

enum Events {
    Export(Lines, Arc<Keyring>),
    Log { log: Box<dyn Followed>, at: Offset, read: VecDeque<Record> },
}

impl Source {
    /// Opens the log. An export is first read to its end, so that a truncated one is refused before a request is sent.
    pub fn open(path: &Path, encryption: &EncryptionArgs, from: u64, to: Option<u64>) -> Result<Source> {
        let from = from.max(1);
        if path.is_dir() {
            return Source::of_log(Box::new(open_folder(path, encryption)?), None, from, to);
        }
        let mut file = open(path)?;
        let mut beginning = Vec::new();
        (&mut file).take(4096).read_to_end(&mut beginning).with_context(|| format!("read {}", path.display()))?;
        if beginning.first() == Some(&b'{') {
            let (first, last) = check(path)?;
            let to = bounded(first, last, from, to)?;
            let mut lines = lines(path)?;
            lines.next_line()?;
            return Ok(Source { events: Events::Export(lines, encryption.keyring()?), from, to, server: None });
        }
        if String::from_utf8_lossy(&beginning).lines().any(|line| line.trim() == "kind: Config") {
            let client = RemoteServer { kubeconfig: Some(path.to_owned()), context: None }.connect()?;
            let server = client.server.clone();
            return Source::of_log(Box::new(RemoteLog::open(client)?), Some(server), from, to);
        }
        bail!(
            "{} is not a log: give an export of `holdfast log export`, a data folder, or the kubeconfig of a running \
             Holdfast",
            path.display()
        )
    }

    fn of_log(log: Box<dyn Followed>, server: Option<String>, from: u64, to: Option<u64>) -> Result<Source> {
        let first = log.scan(None, Offset::ZERO, 1)?.first().map_or(0, |record| record.offset);
        let to = bounded(first, log.last()?.0, from, to)?;
        let events = Events::Log { log, at: Offset(from - 1), read: VecDeque::new() };
        Ok(Source { events, from, to, server })
    }

    /// The address of the server whose log is replayed; `None` for other sources.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The offsets of the first and the last event to replay.
    pub fn span(&self) -> (u64, u64) {
        (self.from, self.to)
    }

    pub fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(record) = self.events.next()? else { return Ok(None) };
            if record.offset > self.to {
                return Ok(None);
            }
            if record.offset >= self.from {
                return Ok(Some(record));
            }
        }
    }
}

impl Events {
    fn next(&mut self) -> Result<Option<Record>> {
        match self {
            Events::Export(lines, keyring) => match lines.next_line()? {
                Some(line) if !line.starts_with(FOOTER) => {
                    let number = lines.number;
                    let event = format::parse_event(&line).with_context(|| format!("line {number} is damaged"))?;
                    Ok(Some(keyring.open(event)?))
                }
                _ => Ok(None),
            },
            Events::Log { log, at, read } => {
                if read.is_empty() {
                    *read = log.scan(None, *at, PIECE)?.into();
                }
                let next = read.pop_front();
                *at = next.as_ref().map_or(*at, Record::offset);
                Ok(next)
            }
        }
    }
}

/// The offset of the last event to replay, in a log whose events have the offsets `first` to `last`.
fn bounded(first: u64, last: u64, from: u64, to: Option<u64>) -> Result<u64> {
    ensure!(last > 0, "the log holds no event");
    let to = to.unwrap_or(last);
    ensure!(to <= last, "--to {to}: the log ends with event {last}");
    ensure!(from <= to, "--from {from} is behind the last event, {to}");
    ensure!(to >= first, "--to {to}: the log begins with event {first}");
    Ok(to)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            anyhow!("there is no {}: name an export, a data folder or a kubeconfig", path.display())
        }
        _ => anyhow!("open {}: {error}", path.display()),
    })
}

fn lines(path: &Path) -> Result<Lines> {
    let file = open(path)?;
    let size = file.metadata().ok().map(|metadata| metadata.len());
    Ok(Lines::new(Box::new(file), size))
}

/// Reads an export to its footer and checks it. Returns the offsets of the first and the last event.
fn check(path: &Path) -> Result<(u64, u64)> {
    let mut lines = lines(path)?;
    let in_file = || path.display().to_string();
    let first = lines.next_line()?.ok_or_else(|| anyhow!("{} is empty", in_file()))?;
    let header = Header::parse(&first).with_context(in_file)?;
    let mut events = 0;
    loop {
        let digest = lines.digest();
        let line = lines.next_line().with_context(in_file)?.ok_or_else(|| {
            anyhow!("{} ends after line {} without its footer: it was cut short; export again", in_file(), lines.number)
        })?;
        if line.starts_with(FOOTER) {
            let FooterLine { footer } = serde_json::from_slice(&line).with_context(in_file)?;
            ensure!(
                footer.events == events && footer.digest == digest(),
                "{}: the footer is of other lines: the export was changed or damaged",
                in_file()
            );
            return Ok((header.from.max(1), footer.last));
        }
        events += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replayed_lies_within_the_log() {
        assert_eq!(bounded(1, 9, 1, None).expect("all"), 9);
        assert_eq!(bounded(1, 9, 3, Some(5)).expect("a part"), 5);
        for (first, last, from, to, expected) in [
            (0, 0, 1, None, "the log holds no event"),
            (1, 9, 1, Some(10), "--to 10: the log ends with event 9"),
            (1, 9, 10, None, "--from 10 is behind the last event, 9"),
            (5, 9, 1, Some(4), "--to 4: the log begins with event 5"),
        ] {
            assert_eq!(bounded(first, last, from, to).expect_err(expected).to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_log_is_told_apart() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = |text: Option<&str>| {
            let file = folder.path().join("log");
            let _ = std::fs::remove_file(&file);
            if let Some(text) = text {
                std::fs::write(&file, text).expect("written");
            }
            Source::open(&file, &EncryptionArgs::default(), 1, None)
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default()
        };
        let header = r#"{"format":"holdfast-log","version":1,"from":1,"to":1}"#;
        for (text, expected) in [
            (None, "there is no "),
            (Some(""), "is not a log: give an export"),
            (Some("hello\n"), "is not a log: give an export"),
            (Some("{}\n"), "is not a header of a Holdfast log"),
            (Some(&format!("{header}\n")), "ends after line 1 without its footer: it was cut short"),
            (Some(&format!("{header}\n{{\"off")), "line 2 has no line feed at its end"),
            (
                Some(&format!("{header}\n{{\"footer\":{{\"events\":1,\"last\":1,\"digest\":\"sha256:0\"}}}}\n")),
                "the footer is of other lines",
            ),
        ] {
            assert!(error(text).contains(expected), "{text:?}: {}", error(text));
        }
        let error =
            Source::open(folder.path(), &EncryptionArgs::default(), 1, None).err().expect("a refusal").to_string();
        assert!(error.contains("holds no Holdfast log"), "{error}");
    }
}
