//! `holdfast log stats`: counts events and bytes of a log.

use super::progress::Progress;
use super::{each, format};
use crate::out;
use crate::remote::Source;
use anyhow::Result;
use holdfast_core::event::Offset;
use holdfast_core::visible;
use holdfast_engine::LogRead;
use holdfast_engine::log::Identity;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    source: Source,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Clone, Copy)]
struct Count {
    events: u64,
    /// The number of bytes of whole records, before compression.
    bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }
}

pub fn run(args: Args) -> Result<()> {
    let reader = args.source.open_kept()?;
    let counted = LogCounts::read(reader.as_ref())?;
    match args.json {
        true => out::json(&counted.json()),
        false => out::text(&counted.text()),
    }
}

/// The numbers of events and bytes in a log, in total and by several properties.
struct LogCounts {
    id: Option<String>,
    origin: Option<format::Forked>,
    oldest: Offset,
    all: Count,
    first: u64,
    last: Offset,
    kinds: Vec<(String, Count)>,
    /// The counts by user and field manager.
    actors: Vec<((String, String), Count)>,
    hours: Vec<(String, Count)>,
}

impl LogCounts {
    fn read(reader: &dyn LogRead) -> Result<LogCounts> {
        let mut all = Count::default();
        let mut kinds: BTreeMap<String, Count> = BTreeMap::new();
        let mut actors: BTreeMap<(String, String), Count> = BTreeMap::new();
        let mut hours: BTreeMap<i64, Count> = BTreeMap::new();
        let (mut at, mut first) = (Offset::ZERO, None);
        let mut progress = Progress::new("counting");
        let last = reader.last()?;
        each(reader, at, |record| {
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
        let Identity { id, origin } = reader.identity()?;
        Ok(LogCounts {
            id,
            origin: origin.map(format::Forked::from),
            oldest: reader.oldest()?,
            all,
            first: first.unwrap_or(0),
            last: at,
            kinds: largest_first(kinds),
            actors: largest_first(actors),
            hours: hours.into_iter().map(|(hour, count)| (hour_name(hour), count)).collect(),
        })
    }

    fn json(&self) -> Value {
        let row = |name: Value, count: &Count| {
            let mut row = name;
            row["events"] = count.events.into();
            row["bytes"] = count.bytes.into();
            row
        };
        let kinds = self.kinds.iter().map(|(name, count)| row(json!({"resource": name}), count));
        let actors = self.actors.iter();
        let actors = actors.map(|((user, manager), count)| row(json!({"user": user, "manager": manager}), count));
        let hours = self.hours.iter().map(|(hour, count)| row(json!({"hour": hour}), count));
        json!({
            "id": self.id,
            "origin": self.origin,
            "oldest": self.oldest.0,
            "events": self.all.events,
            "bytes": self.all.bytes,
            "first": self.first,
            "last": self.last.0,
            "kinds": kinds.collect::<Vec<_>>(),
            "actors": actors.collect::<Vec<_>>(),
            "hours": hours.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let Count { events, bytes } = self.all;
        let mut text = format!("{events} events, {bytes} bytes, offsets {} to {}\n", self.first, self.last);
        let id = self.id.as_deref().unwrap_or("without an id: no server has opened it yet");
        text.push_str(&format!("log {id}\n"));
        if let Some(format::Forked { id, version }) = &self.origin {
            text.push_str(&format!("forked from {} at {version}\n", id.as_deref().unwrap_or("a log without an id")));
        }
        let actor = |(user, manager): &(String, String)| match manager.as_str() {
            "" => format!("{user} (-)"),
            manager => format!("{user} ({manager})"),
        };
        let actors: Vec<_> = self.actors.iter().map(|(who, count)| (actor(who), *count)).collect();
        for (title, rows) in [("KIND", &self.kinds), ("ACTOR", &actors), ("HOUR", &self.hours)] {
            text.push_str(&table(title, rows));
        }
        text
    }
}

fn largest_first<K: Ord>(counts: BTreeMap<K, Count>) -> Vec<(K, Count)> {
    let mut rows: Vec<_> = counts.into_iter().collect();
    rows.sort_by_key(|(_, count)| std::cmp::Reverse(count.events));
    rows
}

fn table(title: &str, rows: &[(String, Count)]) -> String {
    let rows: Vec<_> = rows.iter().map(|(name, count)| (visible::cell(name), count)).collect();
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
