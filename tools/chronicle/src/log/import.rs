//! `holdfast log import`: makes a data folder from an export. An import can be resumed, and an unfinished folder is
//! marked.

use super::format::{self, FOOTER, Footer, FooterLine, Header};
use super::progress::Progress;
use super::{Folder, LINE_MAX, PIECE};
use crate::encryption::EncryptionArgs;
use crate::out;
use anyhow::{Context, Result, anyhow, bail, ensure};
use holdfast_core::digest::Digest;
use holdfast_core::event::{Offset, Record};
use holdfast_core::kinds::custom::is_storage;
use holdfast_core::kinds::registry;
use holdfast_encryption::OfflineKeyring;
use holdfast_engine::log::sealing::Values;
use holdfast_storage_rocks::Import;
use sha2::{Digest as _, Sha256};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

/// The bytes of events that are made durable at a time.
const BATCH_BYTES: usize = 4 << 20;

#[derive(clap::Args)]
pub struct Args {
    /// An export of the whole log; `-` reads standard input.
    file: PathBuf,
    /// The new data folder.
    #[command(flatten)]
    folder: Folder,
    // All values are encrypted with this configuration, whether or not they are encrypted in the export. Without a
    // configuration values are not changed.
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// Continue an interrupted import after its last durable event.
    #[arg(long)]
    resume: bool,
}

pub fn run(args: Args) -> Result<()> {
    let (input, size): (Box<dyn Read + Send>, _) = if args.file.as_os_str() == "-" {
        (Box::new(std::io::stdin()), None)
    } else {
        let file = std::fs::File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?;
        let size = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
        (Box::new(file), size)
    };
    let mut lines = Lines::new(input, size);
    let first = lines.next_line()?.ok_or_else(|| anyhow!("{} is empty: it is not an export", args.file.display()))?;
    let header = Header::parse(&first)?;
    ensure!(
        header.from <= 1,
        "the export begins with event {}: only one of the whole log can be imported (`holdfast log export` without \
         --from)",
        header.from
    );
    ensure!(
        header.oldest <= header.to,
        "the export ends with event {}, and its log holds everything only from event {} on: export again with a later \
         --to",
        header.to,
        header.oldest
    );
    let values = if args.encryption.is_given() { Some(args.encryption.values()?) } else { None };
    // Nothing has been changed up to this line.
    let import = Import::open(&args.folder.data_dir, args.resume, &header.identity())?;
    let events = read(&import, &header, &mut lines, values.as_ref()).with_context(|| {
        let folder = args.folder.data_dir.display();
        format!(
            "the import into {folder} is not finished: continue with an intact copy and --resume, or remove the folder"
        )
    })?;
    import.finish(Offset(header.oldest), Offset(header.repaired))?;
    out::line(&format!("{events} events are imported into {}", args.folder.data_dir.display()))
}

/// Makes every event durable. Returns their number.
fn read(import: &Import, header: &Header, lines: &mut Lines, values: Option<&OfflineKeyring>) -> Result<u64> {
    let gaps_end = header.oldest.max(header.repaired);
    let durable = import.last()?;
    let mut known = ImportedEvents { import, values, at: Offset::ZERO, waiting: VecDeque::new() };
    let (mut last, mut events, mut bytes) = (0, 0, 0);
    let mut batch: Vec<Record> = Vec::new();
    let mut progress = Progress::new("importing");
    loop {
        // The digest is computed before the next line is read, because the digest in the footer does not include the
        // footer.
        let digest = lines.digest();
        let line = lines.next_line()?.ok_or_else(|| {
            anyhow!(
                "the export ends after line {} (event {last}) without its footer: it was cut short; export again",
                lines.number
            )
        })?;
        let number = lines.number;
        if line.starts_with(FOOTER) {
            let found = Footer { events, last, digest: digest() };
            check_footer(&line, &found).with_context(|| format!("line {number}"))?;
            ensure!(lines.next_line()?.is_none(), "line {}: there is more behind the footer", lines.number);
            import.append(&batch)?;
            ensure!(last >= durable.0, "the folder holds events up to {durable}, and the export ends with {last}");
            return Ok(events);
        }
        let record = format::parse_event(&line).map_err(|error| anyhow!("line {number} is damaged: {error:#}"))?;
        check_event(&record, last, gaps_end).with_context(|| format!("line {number}"))?;
        last = record.offset;
        events += 1;
        if record.offset() <= durable {
            known.expect(&record).with_context(|| format!("line {number}"))?;
        } else {
            bytes += line.len();
            batch.push(match values {
                Some(values) => values.seal(values.open(record)?).with_context(|| format!("line {number}"))?,
                None => record,
            });
        }
        if bytes >= BATCH_BYTES || batch.len() >= PIECE {
            import.append(&batch)?;
            batch.clear();
            bytes = 0;
        }
        progress.at(events, lines.read, lines.size);
    }
}

/// Checks that an event may follow the event at `last`. Events with offsets up to `gaps_end` may be missing.
fn check_event(record: &Record, last: u64, gaps_end: u64) -> Result<()> {
    let Record { offset, resource, .. } = record;
    ensure!(
        *offset == last + 1 || *offset > last && last < gaps_end,
        "event {offset} comes after event {last}: lines are missing or in another order"
    );
    ensure!(
        is_storage(resource) || registry().by_storage(resource).is_some(),
        "event {offset} is on {resource:?}, which this release does not know: import it with the release that wrote \
         it, or a newer one"
    );
    Ok(())
}

/// Checks that the footer agrees with the lines before the footer.
fn check_footer(line: &[u8], found: &Footer) -> Result<()> {
    let FooterLine { footer } = serde_json::from_slice(line).map_err(|error| anyhow!("it is damaged: {error}"))?;
    ensure!(
        footer == *found,
        "the footer is of other lines ({} events up to {}): the export was changed or damaged",
        footer.events,
        footer.last
    );
    Ok(())
}

/// The events that an interrupted import has made durable. These events must equal the events of the export; otherwise
/// the export belongs to another log.
struct ImportedEvents<'a> {
    import: &'a Import,
    /// Decrypts the events for the comparison, because two encryptions of the same value differ.
    values: Option<&'a OfflineKeyring>,
    at: Offset,
    waiting: VecDeque<Record>,
}

impl ImportedEvents<'_> {
    fn expect(&mut self, record: &Record) -> Result<()> {
        if self.waiting.is_empty() {
            self.waiting = self.import.scan(self.at, PIECE)?.into();
        }
        let found = self.waiting.pop_front();
        self.at = record.offset();
        let is_same = match (self.values, found) {
            (_, None) => false,
            (None, Some(found)) => found == *record,
            (Some(values), Some(found)) => values.open(found)? == values.open(record.clone())?,
        };
        if !is_same {
            bail!("event {} is not the one that the import was begun with: this is another export", record.offset);
        }
        Ok(())
    }
}

pub struct Lines {
    input: BufReader<Box<dyn Read + Send>>,
    digest: Sha256,
    pub number: u64,
    /// The number of bytes of the input that were read so far.
    pub read: u64,
    /// The number of bytes of the input; `None` if it is not known, as for standard input.
    size: Option<u64>,
}

impl Lines {
    pub fn new(input: Box<dyn Read + Send>, size: Option<u64>) -> Lines {
        Lines { input: BufReader::with_capacity(1 << 20, input), digest: Sha256::new(), number: 0, read: 0, size }
    }

    /// The next line without its newline. A line without a newline at the end of the input is an error: it was cut off.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_MAX).read_until(b'\n', &mut line).context("read the export")?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.read += read as u64;
        self.digest.update(&line);
        let number = self.number;
        ensure!(
            line.pop() == Some(b'\n'),
            "line {number} has no line feed at its end: the file is not an export, or is incomplete; export again"
        );
        Ok(Some(line))
    }

    /// The digest of the lines so far, computed when the function is called.
    pub fn digest(&self) -> impl FnOnce() -> String + use<> {
        let digest = self.digest.clone();
        move || Digest(digest.finalize().into()).to_string()
    }
}
