//! `holdfast log export`: the log as lines of JSON, between a header and a footer.
//!
//! A file is written under a temporary name, and renamed once it is complete. `--resume` continues a file that an
//! interrupted export has left. If the server forgets history during an export, the file lacks events that existed when
//! the export began. Such an export fails, because the file would not describe the state at any moment.

use super::format::{self, FOOTER, FooterLine, Header};
use super::progress::Progress;
use super::{LINE_MAX, PIECE, each};
use crate::files::open_private;
use crate::remote::{Followed, Source};
use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_core::digest::Digest;
use holdfast_core::event::Offset;
use holdfast_engine::LogRead;
use holdfast_engine::log::Identity;
use sha2::{Digest as _, Sha256};
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// The first event to write [default: the log's first]. Only an export that begins with offset 1 can be imported.
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
    /// The last event to write [default: the log's last].
    #[arg(long, value_name = "OFFSET")]
    to: Option<u64>,
    /// The file to write, which must not exist [default: standard output]. Until the export is complete, the file is
    /// called FILE.part.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Continue an interrupted export, whose complete lines are in FILE.part.
    #[arg(long, requires = "output", conflicts_with_all = ["from", "to"])]
    resume: bool,
    /// Write encrypted values in plain text. Without this option, values of a data folder stay encrypted in the export,
    /// and the log of a running server that encrypts cannot be exported, because the server sends plain values.
    #[arg(long)]
    plain: bool,
}

pub fn run(args: Args) -> Result<()> {
    let output = args.output.as_deref().map(|file| Output::new(file, args.resume)).transpose()?;
    let opened = open(&args)?;
    let reader: &dyn LogRead = opened.as_ref();
    let last = reader.last()?.0;
    let Identity { id, origin } = reader.identity()?;
    let header = Header {
        format: format::FORMAT.into(),
        version: format::VERSION,
        from: args.from.unwrap_or(1).max(1),
        to: args.to.unwrap_or(last),
        oldest: reader.oldest()?.0,
        repaired: reader.repaired()?.0.min(args.to.unwrap_or(last)),
        id,
        origin: origin.map(Into::into),
    };
    ensure!(header.to <= last, "--to {}: the log ends with event {last}", header.to);
    ensure!(header.from <= last.max(1), "--from {}: the log ends with event {last}", header.from);
    ensure!(header.from <= header.to.max(1), "--from {} is behind --to {}", header.from, header.to);
    match output {
        None => match Export::begin(header, std::io::stdout().lock()).and_then(|writing| writing.write(reader)) {
            // The program that reads the output has closed the pipe.
            Err(error) if io_kind(&error) == Some(ErrorKind::BrokenPipe) => Ok(()),
            outcome => outcome,
        },
        Some(output) => output.write(reader, header),
    }
}

/// Opens the log with its values in the form in which they are exported.
fn open(args: &Args) -> Result<Box<dyn Followed>> {
    let source = &args.source;
    if args.plain || source.data_dir.is_none() {
        let log = source.open()?;
        ensure!(
            args.plain || !log.returns_decrypted(),
            "the server stores values encrypted, but returns them decrypted: give --plain to export them decrypted, or \
             export the server's data folder (--data-dir) to keep them encrypted"
        );
        return Ok(log);
    }
    ensure!(
        !source.encryption.is_given(),
        "--encryption-provider-config needs --plain: without it values are exported as they are stored"
    );
    source.open_kept()
}

/// The output file of an export, which has a temporary name until the export is complete.
struct Output<'a> {
    file: &'a Path,
    part: PathBuf,
    resume: bool,
}

impl Output<'_> {
    /// Checks whether the file can be written, and changes nothing.
    fn new(file: &Path, resume: bool) -> Result<Output<'_>> {
        let mut part = file.as_os_str().to_owned();
        part.push(".part");
        let output = Output { file, part: part.into(), resume };
        let shown = file.display();
        ensure!(!file.exists(), "{shown} is there already, and an export replaces nothing: name another file");
        match (resume, output.part.exists()) {
            (false, true) => bail!(
                "{} was left by an interrupted export, or one is writing it: go on with --resume, or remove it",
                output.part.display()
            ),
            (true, false) => bail!("no export to {shown} was begun: leave out --resume"),
            _ => Ok(output),
        }
    }

    fn write(&self, reader: &dyn LogRead, header: Header) -> Result<()> {
        let shown = self.part.display();
        let made = open_private(&self.part, !self.resume).with_context(|| format!("make {shown}"))?;
        match made.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{shown} is being written by another export"),
            Err(TryLockError::Error(error)) => return Err(error).with_context(|| format!("lock {shown}")),
        }
        let writing = match self.resume {
            true => PartialFile::read(&made).and_then(|part| part.resume(&made, reader, &header)),
            false => Export::begin(header, &made),
        };
        // A partial file that cannot be continued stays as it is.
        let writing = writing.with_context(|| format!("write {shown}"))?;
        let written = writing.write(reader).and_then(|()| Ok(made.sync_all()?));
        written.and_then(|()| Ok(std::fs::rename(&self.part, self.file)?)).map_err(|error| {
            if matches!(
                io_kind(&error),
                Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
            ) {
                // The disk has no room for the rest of the export, so the partial file is removed.
                let _ = std::fs::remove_file(&self.part);
                return error.context(format!("write {}", self.file.display()));
            }
            let way_out =
                if error.is::<ForgottenEvents>() { "remove it" } else { "continue with --resume, or remove it" };
            error.context(format!("the export {shown} is incomplete: {way_out}"))
        })
    }
}

/// The log has forgotten events that were to be exported.
#[derive(Debug)]
struct ForgottenEvents {
    oldest: Offset,
    at: Offset,
}

impl std::fmt::Display for ForgottenEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ForgottenEvents { oldest, at } = self;
        write!(
            f,
            "old history up to event {oldest} was removed while the export was at event {at}, so that events between \
             are missing. Export again; if history is removed all the time, export a fork (`holdfast fork`), or the \
             server's data folder (--data-dir), which is read as it is at one moment"
        )
    }
}

impl std::error::Error for ForgottenEvents {}

/// An export in progress.
struct Export<W: Write> {
    out: BufWriter<W>,
    header: Header,
    digest: Sha256,
    /// The offset of the last written event; 0 if no event was written.
    last: u64,
    /// The number of written events.
    events: u64,
}

impl<W: Write> Export<W> {
    fn begin(header: Header, out: W) -> Result<Export<W>> {
        let mut line = serde_json::to_vec(&header)?;
        line.push(b'\n');
        let mut writing = Export::at(header, out);
        writing.put(&line)?;
        Ok(writing)
    }

    fn at(header: Header, out: W) -> Export<W> {
        Export { out: BufWriter::with_capacity(1 << 20, out), header, digest: Sha256::new(), last: 0, events: 0 }
    }

    fn put(&mut self, line: &[u8]) -> Result<()> {
        self.digest.update(line);
        Ok(self.out.write_all(line)?)
    }

    /// Writes the remaining events and the footer.
    fn write(mut self, reader: &dyn LogRead) -> Result<()> {
        let mut progress = Progress::new("exporting");
        let (from, to) = (self.header.from, self.header.to);
        let begin = Offset(self.last.max(from - 1));
        // At the last check no event after this offset was missing, unless the export had already read it.
        let mut whole = begin;
        let mut line = Vec::new();
        if begin.0 < to {
            each(reader, begin, |record| {
                if record.offset > to {
                    return Ok(ControlFlow::Break(()));
                }
                line.clear();
                format::event(record, &mut line)?;
                self.put(&line)?;
                self.last = record.offset;
                self.events += 1;
                if self.events.is_multiple_of(PIECE as u64) {
                    self.check_kept(reader, whole)?;
                    whole = record.offset();
                }
                progress.at(self.events, record.offset + 1 - from, Some(to + 1 - from));
                Ok(ControlFlow::Continue(()))
            })?;
            self.check_kept(reader, whole)?;
        }
        let digest = Digest(self.digest.finalize().into()).to_string();
        let footer = format::Footer { events: self.events, last: self.last, digest };
        let mut footer = serde_json::to_vec(&FooterLine { footer })?;
        footer.push(b'\n');
        self.out.write_all(&footer)?;
        Ok(self.out.flush()?)
    }

    /// Checks that no event after `whole` was forgotten since the export began.
    fn check_kept(&self, reader: &dyn LogRead, whole: Offset) -> Result<()> {
        let oldest = reader.oldest()?;
        if oldest > whole && oldest.0 > self.header.oldest && oldest.0 >= self.header.from {
            return Err(ForgottenEvents { oldest, at: whole }.into());
        }
        Ok(())
    }
}

/// The file that an interrupted export has left.
struct PartialFile {
    header: Header,
    digest: Sha256,
    /// The bytes of complete lines; the last line may be cut off.
    bytes: u64,
    events: u64,
    last: u64,
    last_line: Vec<u8>,
}

impl PartialFile {
    fn read(file: &File) -> Result<PartialFile> {
        let mut input = BufReader::with_capacity(1 << 20, file);
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| -> Result<bool> {
            line.clear();
            (&mut input).take(LINE_MAX).read_until(b'\n', line).context("read it")?;
            Ok(line.ends_with(b"\n") && !line.starts_with(FOOTER))
        };
        ensure!(next(&mut line)?, "it holds nothing that could be gone on with: remove it, and leave out --resume");
        let header = Header::parse(&line)?;
        let mut part = PartialFile {
            header,
            digest: Sha256::new_with_prefix(&line),
            bytes: line.len() as u64,
            events: 0,
            last: 0,
            last_line: Vec::new(),
        };
        while next(&mut line)? {
            let number = part.events + 2;
            let record = format::parse_event(&line[..line.len() - 1]);
            let record = record.map_err(|error| anyhow!("its line {number} is damaged: {error:#}. Remove it"))?;
            ensure!(
                record.offset > part.last && record.offset <= part.header.to,
                "its line {number} is out of order: remove it"
            );
            part.digest.update(&line);
            part.bytes += line.len() as u64;
            part.events += 1;
            part.last = record.offset;
            std::mem::swap(&mut part.last_line, &mut line);
        }
        Ok(part)
    }

    /// Continues after the last line of the file, if the file is an export of the same log.
    fn resume<'a>(self, file: &'a File, reader: &dyn LogRead, now: &Header) -> Result<Export<&'a File>> {
        let same = self.header.id == now.id && self.header.to <= now.to && {
            let mut line = Vec::new();
            if let Some(record) = reader.read(Offset(self.last))? {
                format::event(&record, &mut line)?;
            }
            line == self.last_line || line.is_empty() && self.last <= now.oldest
        };
        let name = |header: &Header| header.id.clone().unwrap_or_else(|| "that has no id".into());
        ensure!(
            same,
            "it was begun with the log {}, and this is the log {} with other events: go on with the other, or remove it",
            name(&self.header),
            name(now)
        );
        let mut out = file;
        out.set_len(self.bytes)?;
        out.seek(SeekFrom::Start(self.bytes))?;
        let writing = Export::at(self.header, out);
        Ok(Export { digest: self.digest, last: self.last, events: self.events, ..writing })
    }
}

fn io_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.downcast_ref::<std::io::Error>().map(std::io::Error::kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Operation, Record};
    use holdfast_engine::Log;
    use holdfast_engine::memory::MemoryLog;

    /// A log of events on three objects, which change in turn.
    fn log() -> MemoryLog {
        let log = MemoryLog::default();
        let record = |offset: u64| Record {
            offset,
            resource: "configmaps".into(),
            key: format!("default/{}", offset % 3),
            replaces: offset.saturating_sub(3),
            operation: Operation::Put as i32,
            object: format!("{{\"is\":{offset}}}\n").into(),
            ..Record::default()
        };
        log.append(&(1..=10_000).map(record).collect::<Vec<_>>()).expect("written");
        log
    }

    fn header(log: &MemoryLog) -> Header {
        Header {
            format: format::FORMAT.into(),
            version: format::VERSION,
            from: 1,
            to: log.last().expect("the last").0,
            oldest: log.oldest().expect("the oldest").0,
            repaired: 0,
            id: None,
            origin: None,
        }
    }

    fn exported(log: &MemoryLog, header: Header) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        Export::begin(header, &mut out)?.write(log)?;
        Ok(out)
    }

    #[test]
    fn what_is_let_go_meanwhile_is_missed() {
        let log = log();
        let begun = header(&log);
        assert!(exported(&log, begun.clone()).is_ok());
        log.forget(Offset(6_000)).expect("let go");
        let error = exported(&log, begun).expect_err("events are missing");
        assert!(error.is::<ForgottenEvents>() && error.to_string().contains("up to event 6000"), "{error:#}");
        assert!(exported(&log, header(&log)).is_ok(), "one that begins now knows of it");
    }

    #[test]
    fn an_export_goes_on_wherever_it_was_cut() {
        let log = log();
        let whole = exported(&log, header(&log)).expect("an export");
        let first_line = whole.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        let cuts = [first_line, first_line + 1, first_line + 500, whole.len() / 2, whole.len() - 200, whole.len() - 1];
        for cut in cuts.into_iter().chain([whole.len()]) {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&whole[..cut]).expect("written");
            file.rewind().expect("begun anew");
            let part = PartialFile::read(&file).expect("a part");
            part.resume(&file, &log, &header(&log)).expect("the same log").write(&log).expect("an export");
            let mut made = Vec::new();
            file.rewind().expect("begun anew");
            file.read_to_end(&mut made).expect("read");
            assert!(made == whole, "cut at {cut} of {}", whole.len());
        }
    }

    #[test]
    fn what_cannot_be_gone_on_with_stays_as_it_is() {
        let log = log();
        let whole = exported(&log, header(&log)).expect("an export");
        let lines: Vec<&[u8]> = whole.split_inclusive(|byte| *byte == b'\n').collect();
        let part = |lines: &[&[u8]]| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(&lines.concat()).expect("written");
            file.rewind().expect("begun anew");
            file
        };
        for (lines, complaint) in [
            (vec![], "holds nothing"),
            (vec![&b"{\"format\""[..]], "holds nothing"),
            (vec![&b"hello\n"[..]], "is not a header"),
            (vec![lines[0], &b"\0\0\0\n"[..]], "line 2 is damaged"),
            (vec![lines[0], lines[2], lines[1]], "line 3 is out of order"),
        ] {
            let error = PartialFile::read(&part(&lines)).err().expect("a refusal");
            assert!(format!("{error:#}").contains(complaint), "{complaint}: {error:#}");
        }
        let file = part(&lines[..100]);
        let other = Header { id: Some("other".into()), ..header(&log) };
        assert!(PartialFile::read(&file).expect("a part").resume(&file, &log, &other).is_err());
        let shorter = Header { to: 50, ..header(&log) };
        let mut file = part(&lines[..100]);
        assert!(PartialFile::read(&file).expect("a part").resume(&file, &log, &shorter).is_err());
        let changed = String::from_utf8_lossy(lines[99]).replacen("\"is\"", "\"it\"", 1).into_bytes();
        assert_ne!(changed, lines[99]);
        file = part(&[&lines[..99], &[&changed[..]]].concat());
        let error =
            PartialFile::read(&file).expect("a part").resume(&file, &log, &header(&log)).err().expect("a refusal");
        assert!(error.to_string().contains("with other events"), "{error:#}");
        assert_eq!(file.metadata().expect("its length").len() as usize, lines[..100].concat().len());
    }
}
