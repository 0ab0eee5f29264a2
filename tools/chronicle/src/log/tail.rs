//! `holdfast log tail`: events, one a line, for people.

use crate::remote::Source;
use anyhow::Result;
use holdfast_core::event::{Offset, Record};
use holdfast_core::visible;
use std::io::Write;

const PIECE: usize = 1024;

pub fn run(source: &Source, follow: bool, lines: u64) -> Result<()> {
    let reader = source.open_kept()?;
    let last = reader.last()?;
    let mut at = if lines == 0 { Offset::ZERO } else { Offset(last.0.saturating_sub(lines)) };
    let mut out = std::io::stdout().lock();
    loop {
        let records = reader.scan(None, at, PIECE)?;
        for record in &records {
            at = record.offset();
            match writeln!(out, "{}", visible::line(&line(record))) {
                // The program that reads the output has closed the pipe.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                other => other?,
            }
        }
        if records.len() == PIECE {
            continue;
        }
        if !follow {
            return Ok(());
        }
        out.flush()?;
        reader.follow(at)?;
    }
}

/// An event as a line: `42 2026-11-21T10:00:00.000Z created deployments/default/web by jane (kubectl, update) 1234
/// bytes`.
fn line(record: &Record) -> String {
    let time = jiff::Timestamp::from_millisecond(record.time_ms)
        .map(|time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .unwrap_or_else(|_| record.time_ms.to_string());
    let what = match (record.is_delete(), record.replaces) {
        (true, _) => "deleted",
        (false, 0) => "created",
        (false, _) => "changed",
    };
    let actor = &record.actor;
    let manager = if actor.manager.is_empty() { "-" } else { &actor.manager };
    format!(
        "{} {time} {what} {}/{} by {} ({manager}, {}) {} bytes",
        record.offset,
        record.resource,
        record.key,
        actor.user,
        actor.verb,
        record.object.len()
    )
}
