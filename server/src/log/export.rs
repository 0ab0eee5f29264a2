//! `holdfast log export`: the log as lines of JSON, between a header and a footer.

use super::PIECE;
use super::format::{self, FooterLine, Header};
use super::progress::Progress;
use crate::remote::Source;
use anyhow::{Context, Result, ensure};
use holdfast_core::digest::Digest;
use holdfast_core::event::Offset;
use holdfast_engine::{EventLog, Identity};
use sha2::{Digest as _, Sha256};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// The first event to write [default: the log's first]. Only an export from the first can be imported.
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
    /// The last event to write [default: the log's last].
    #[arg(long, value_name = "OFFSET")]
    to: Option<u64>,
    /// Where to write [default: standard output]. The file gets its name once it is whole.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<()> {
    let reader = args.source.open()?;
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
    ensure!(header.from <= header.to.max(1), "--from {} is behind --to {}", header.from, header.to);
    let reader: &dyn EventLog = reader.as_ref();
    match &args.output {
        None => match write(reader, &header, std::io::stdout().lock()) {
            // The reader of a pipe has seen enough.
            Err(error) if is_broken_pipe(&error) => Ok(()),
            outcome => outcome,
        },
        Some(file) => {
            let part = part(file);
            let made = std::fs::File::create(&part).with_context(|| format!("make {}", part.display()))?;
            let written = write(reader, &header, &made).and_then(|()| Ok(made.sync_all()?));
            let named = written.and_then(|()| Ok(std::fs::rename(&part, file)?));
            named.with_context(|| {
                let _ = std::fs::remove_file(&part);
                format!("write {}", file.display())
            })
        }
    }
}

fn part(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write(reader: &dyn EventLog, header: &Header, out: impl Write) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let mut digest = Sha256::new();
    let mut put = |out: &mut BufWriter<_>, line: &[u8]| -> Result<()> {
        digest.update(line);
        Ok(out.write_all(line)?)
    };
    let mut first = serde_json::to_vec(header)?;
    first.push(b'\n');
    put(&mut out, &first)?;
    let mut progress = Progress::new("exporting");
    let (mut at, mut last, mut events) = (Offset(header.from - 1), 0, 0);
    while at.0 < header.to {
        let records = reader.scan(None, at, PIECE)?;
        for record in records.iter().take_while(|record| record.offset <= header.to) {
            put(&mut out, &format::event(record)?)?;
            last = record.offset;
            events += 1;
        }
        let Some(end) = records.last() else { break };
        at = end.offset();
        progress.at(events, at.0 - header.from, Some(header.to - header.from + 1));
    }
    let digest = Digest(digest.finalize().into()).to_string();
    let mut footer = serde_json::to_vec(&FooterLine { footer: format::Footer { events, last, digest } })?;
    footer.push(b'\n');
    out.write_all(&footer)?;
    Ok(out.flush()?)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
