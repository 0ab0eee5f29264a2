//! `holdfast log stats`: what the log is made of.

use super::progress::Progress;
use super::{each, format, quietly};
use crate::remote::Source;
use anyhow::Result;
use holdfast_core::event::Offset;
use holdfast_engine::log::Identity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[arg(long)]
    json: bool,
}

#[derive(Default, Clone, Copy)]
struct Count {
    events: u64,
    /// Of whole records, as they are stored before compression.
    bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

pub fn run(args: Args) -> Result<()> {
    let reader = args.source.open()?;
    let mut all = Count::default();
    let mut kinds: BTreeMap<String, Count> = BTreeMap::new();
    let mut actors: BTreeMap<(String, String), Count> = BTreeMap::new();
    let mut hours: BTreeMap<i64, Count> = BTreeMap::new();
    let (mut at, mut first) = (Offset::ZERO, None);
    let mut progress = Progress::new("counting");
    let last = reader.last()?;
    each(reader.as_ref(), at, |record| {
        let bytes = record.encoded_bytes() as u64;
        at = record.offset();
        first.get_or_insert(record.offset);
        all.add(bytes);
        kinds.entry(record.resource.clone()).or_default().add(bytes);
        actors.entry((record.actor.user.clone(), record.actor.manager.clone())).or_default().add(bytes);
        hours.entry(record.time_ms.div_euclid(3_600_000)).or_default().add(bytes);
        progress.at(all.events, at.0, Some(last.0));
        Ok(ControlFlow::Continue(()))
    })?;
    drop(progress);
    let first = first.unwrap_or(0);
    let Identity { id, origin } = reader.identity()?;
    let origin = origin.map(format::Forked::from);
    let hours: Vec<_> = hours.into_iter().map(|(hour, count)| (hour_name(hour), count)).collect();
    let kinds = largest_first(kinds);
    let actors = largest_first(actors);
    let mut out = std::io::stdout().lock();
    if args.json {
        let counted = |name: Value, count: &Count| {
            let mut row = name;
            row["events"] = count.events.into();
            row["bytes"] = count.bytes.into();
            row
        };
        let stats = json!({
            "id": id,
            "origin": origin,
            "oldest": reader.oldest()?.0,
            "events": all.events,
            "bytes": all.bytes,
            "first": first,
            "last": at.0,
            "kinds": kinds.iter().map(|(name, count)| counted(json!({"resource": name}), count)).collect::<Vec<_>>(),
            "actors": actors
                .iter()
                .map(|((user, manager), count)| counted(json!({"user": user, "manager": manager}), count))
                .collect::<Vec<_>>(),
            "hours": hours.iter().map(|(hour, count)| counted(json!({"hour": hour}), count)).collect::<Vec<_>>(),
        });
        return quietly(writeln!(out, "{stats:#}"));
    }
    let actors: Vec<_> = actors
        .into_iter()
        .map(|((user, manager), count)| {
            (format!("{user} ({})", if manager.is_empty() { "-" } else { &manager }), count)
        })
        .collect();
    let mut text = format!("{} events, {} bytes, offsets {first} to {at}\n", all.events, all.bytes);
    text.push_str(&format!("log {}\n", id.as_deref().unwrap_or("without an id: no server has opened it yet")));
    if let Some(format::Forked { id, version }) = origin {
        text.push_str(&format!("forked from {} at {version}\n", id.as_deref().unwrap_or("a log without an id")));
    }
    for (title, rows) in [("KIND", &kinds), ("ACTOR", &actors), ("HOUR", &hours)] {
        text.push_str(&table(title, rows));
    }
    quietly(write!(out, "{text}"))
}

fn largest_first<K: Ord>(counts: BTreeMap<K, Count>) -> Vec<(K, Count)> {
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(count.events));
    rows
}

fn table(title: &str, rows: &[(String, Count)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).chain([title.len()]).max().unwrap_or(0);
    let mut text = format!("\n{title:width$}  {:>12}  {:>14}\n", "EVENTS", "BYTES");
    for (name, count) in rows {
        text.push_str(&format!("{name:width$}  {:>12}  {:>14}\n", count.events, count.bytes));
    }
    text
}

fn hour_name(hour: i64) -> String {
    let time = jiff::Timestamp::from_second(hour.saturating_mul(3600));
    time.map(|time| time.strftime("%Y-%m-%dT%H:00Z").to_string()).unwrap_or_else(|_| hour.to_string())
}
