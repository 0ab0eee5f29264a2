//! `holdfast blame`: every field of an object, with the event that set it last.

use super::{Common, LogView, Named, Report, by, dash, shown_time, table};
use anyhow::{Result, bail};
use holdfast_core::event::Record;
use holdfast_core::history::render::{Colour, Paint, printable};
use holdfast_core::history::{Blame, Set};
use holdfast_core::object::meta::split_key;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    common: Common,
}

/// How much of a value a line shows.
const VALUE_CHARACTERS_MAX: usize = 60;

pub fn run(args: &Args) -> Result<()> {
    args.common.run(|view| look(view, &args.named))
}

struct Blamed {
    title: String,
    key: String,
    /// The events that set something, by their place among the object's versions; without their objects.
    records: BTreeMap<usize, Record>,
    fields: Vec<Set>,
}

fn look(view: &LogView, named: &Named) -> Result<Blamed> {
    let place = view.place(named)?;
    let title = view.title(&place.storage, &place.key);
    let offsets = view.versions(&place)?;
    let newest = view.record(offsets[offsets.len() - 1])?;
    if newest.is_delete() {
        bail!(
            "{title} is deleted, since version {}, {}, by {}: see what it was with `holdfast history -p`",
            newest.offset,
            shown_time(newest.time_ms),
            by(&newest)
        );
    }
    // The form of the newest version holds for all, so that one field has one path.
    let newest = view.document(&newest)?;
    let shape = view.shape(&place.storage, &newest);
    let mut records = BTreeMap::new();
    let mut blame = None;
    for (version, offset) in offsets.iter().enumerate() {
        let mut record = view.record(*offset)?;
        let document = view.document(&record)?;
        let is_whole = record.replaces == 0;
        blame.get_or_insert_with(|| Blame::new(shape, is_whole)).next(Some(&document).filter(|_| !record.is_delete()));
        record.object = Default::default();
        records.insert(version, record);
    }
    let fields = blame.map(Blame::fields).unwrap_or_default();
    Ok(Blamed { title, key: place.key, records, fields })
}

impl Report for Blamed {
    fn text(&self, paint: Paint) -> String {
        let mut rows = vec![["VERSION", "TIME", "USER", "MANAGER", "VERB", "FIELD"].map(String::from).to_vec()];
        for set in &self.fields {
            let record = &self.records[&set.origin.version];
            let sign = if set.origin.or_before { "<=" } else { "" };
            rows.push(vec![
                format!("{sign}{}", record.offset),
                shown_time(record.time_ms),
                dash(&record.actor.user),
                dash(&record.actor.manager),
                dash(&record.actor.verb),
                format!("{}: {}", printable(&set.path.to_string()), short(&set.value)),
            ]);
        }
        let mut lines = table(&rows).into_iter();
        let head = lines.next().map(|head| paint.paint(Colour::Bold, &head)).into_iter();
        head.chain(lines).map(|line| line + "\n").collect()
    }

    fn value(&self) -> Value {
        let (namespace, name) = split_key(&self.key);
        let field = |set: &Set| {
            let record = &self.records[&set.origin.version];
            json!({
                "path": set.path.to_string(),
                "value": set.value,
                "version": record.offset,
                "orBefore": set.origin.or_before,
                "time": shown_time(record.time_ms),
                "user": record.actor.user,
                "manager": record.actor.manager,
                "verb": record.actor.verb,
                "requestID": record.actor.request_id,
            })
        };
        let fields: Vec<Value> = self.fields.iter().map(field).collect();
        json!({"object": self.title, "namespace": namespace, "name": name, "fields": fields})
    }
}

/// A value on one line, cut where it is long.
fn short(value: &Value) -> String {
    let text = printable(&value.to_string());
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
