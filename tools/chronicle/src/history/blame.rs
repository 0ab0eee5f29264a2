//! `holdfast blame`: shows every field of an object with the event that set it last.

use super::{Common, LogView, ObjectArgs, Report, by, dash, shown_time, table};
use anyhow::{Result, bail};
use holdfast_core::event::{ChangedBy, Record};
use holdfast_core::history::render::{Colour, Paint};
use holdfast_core::history::{Blame, Set, is_at};
use holdfast_core::object::meta::split_key;
use holdfast_core::visible;
use holdfast_value::{Value, json};
use std::collections::BTreeMap;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    named: ObjectArgs,
    #[command(flatten)]
    common: Common,
}

/// The maximum number of characters of a value in a line.
const VALUE_CHARACTERS_MAX: usize = 60;

/// The note under a table in which some users are missing.
const OF_OTHERS: &str = "no USER: another API server made the change, and only its managed fields are known";

pub fn run(args: &Args) -> Result<()> {
    args.common.run(&[args.named.kind()], |view| look(view, &args.named))
}

struct Blamed {
    title: String,
    key: String,
    /// The events that set fields, without their objects, by their index among the object's versions.
    records: BTreeMap<usize, Record>,
    fields: Vec<Set>,
    /// The webhooks and policies that changed a field, by the field's index.
    admitted: BTreeMap<usize, String>,
}

/// The changes that webhooks and policies made in one version, with the resulting object.
struct Changed {
    changes: Vec<ChangedBy>,
    document: Value,
}

fn look(view: &LogView, named: &ObjectArgs) -> Result<Blamed> {
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
    // The shape of the newest version is used for all versions, so that a field always has the same path.
    let newest = view.document(&newest)?;
    let shape = view.shape(&place.storage, &newest);
    let mut records = BTreeMap::new();
    let mut blame = None;
    let mut changed = BTreeMap::new();
    for (version, offset) in offsets.iter().enumerate() {
        let mut record = view.record(*offset)?;
        let document = view.document(&record)?;
        let is_whole = record.replaces == 0;
        blame.get_or_insert_with(|| Blame::new(shape, is_whole)).next(Some(&document).filter(|_| !record.is_delete()));
        let changes = std::mem::take(&mut record.actor.changes);
        if !changes.is_empty() {
            changed.insert(version, Changed { changes, document });
        }
        record.object = Default::default();
        records.insert(version, record);
    }
    let fields = blame.map(Blame::fields).unwrap_or_default();
    let said = |set: &Set| {
        let Changed { changes, document } = changed.get(&set.origin.version)?;
        let mine = |change: &&ChangedBy| change.fields.iter().any(|pointer| is_at(&set.path, pointer, document));
        changes.iter().rev().find(mine).map(|change| change.by.clone())
    };
    let admitted = fields.iter().enumerate().filter_map(|(at, set)| Some((at, said(set)?))).collect();
    Ok(Blamed { title, key: place.key, records, fields, admitted })
}

impl Report for Blamed {
    fn text(&self, paint: Paint) -> String {
        let mut rows = vec![["VERSION", "TIME", "USER", "MANAGER", "VERB", "FIELD"].map(String::from).to_vec()];
        for (at, set) in self.fields.iter().enumerate() {
            let record = &self.records[&set.origin.version];
            let sign = if set.origin.or_before { "<=" } else { "" };
            rows.push(vec![
                format!("{sign}{}", record.offset),
                shown_time(record.time_ms),
                match self.admitted.get(&at) {
                    Some(by) => format!("{} ({by})", dash(&record.actor.user)),
                    None => dash(&record.actor.user),
                },
                dash(&record.actor.manager),
                dash(&record.actor.verb),
                format!("{}: {}", set.path, short(&set.value)),
            ]);
        }
        let mut lines = table(&rows).into_iter();
        let head = lines.next().map(|head| paint.paint(Colour::Bold, &head)).into_iter();
        let mut shown = self.fields.iter().map(|set| &self.records[&set.origin.version].actor);
        let is_told = shown.any(|actor| actor.user.is_empty());
        let note = is_told.then(|| OF_OTHERS.to_owned());
        head.chain(lines).chain(note).map(|line| line + "\n").collect()
    }

    fn value(&self) -> Value {
        let (namespace, name) = split_key(&self.key);
        let field = |(at, set): (usize, &Set)| {
            let record = &self.records[&set.origin.version];
            let mut field = json!({
                "path": set.path.to_string(),
                "value": set.value,
                "version": record.offset,
                "orBefore": set.origin.or_before,
                "time": shown_time(record.time_ms),
                "user": record.actor.user,
                "manager": record.actor.manager,
                "verb": record.actor.verb,
                "requestID": record.actor.request_id,
            });
            if let Some(by) = self.admitted.get(&at) {
                field["changedBy"] = by.as_str().into();
            }
            field
        };
        let fields: Vec<Value> = self.fields.iter().enumerate().map(field).collect();
        json!({"object": self.title, "namespace": namespace, "name": name, "fields": fields})
    }
}

/// A value on one line, cut if it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    let text = visible::line(&text);
    match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}
