//! `holdfast diff`: shows the changes of the cluster between two moments.

use super::{Common, LogView, Report, by, change_value, shown_time};
use anyhow::{Result, bail};
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::render::{Colour, Paint, unified};
use holdfast_core::history::{FieldChange, difference};
use holdfast_core::object::meta::split_key;
use holdfast_value::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

#[derive(clap::Args)]
pub struct Args {
    /// A version (42), a time (2026-11-21T10:00:00Z) or how long ago (-15m, -2h, -3d).
    #[arg(allow_hyphen_values = true, value_name = "VERSION|TIME")]
    from: String,
    /// A later moment, in the same form [default: now].
    #[arg(allow_hyphen_values = true, value_name = "VERSION|TIME")]
    to: Option<String>,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args, Default)]
pub struct Filters {
    /// Only objects of these kinds.
    #[arg(long, alias = "resource", value_delimiter = ',', value_name = "KIND")]
    kind: Vec<String>,
    /// Only objects in this namespace.
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only objects with this name.
    #[arg(long)]
    name: Option<String>,
    /// Only objects to which this user wrote between the two moments.
    #[arg(long)]
    user: Option<String>,
}

impl Filters {
    pub fn is_empty(&self) -> bool {
        self.kind.is_empty() && self.namespace.is_none() && self.name.is_none() && self.user.is_none()
    }

    /// Visits the events after `from` and up to `to` that match all filters except the filter by user.
    fn events(&self, view: &LogView, from: Offset, to: Offset, visit: &mut dyn FnMut(Record)) -> Result<()> {
        let kinds =
            self.kind.iter().map(|kind| Ok(view.kind(kind)?.storage.path.clone())).collect::<Result<Vec<_>>>()?;
        let only = if let [kind] = kinds.as_slice() { Some(kind.as_str()) } else { None };
        let mut after = from;
        loop {
            let records = view.log.scan(only, after, PIECE)?;
            let is_last = records.len() < PIECE;
            for record in records {
                after = record.offset();
                if after > to {
                    return Ok(());
                }
                let (namespace, name) = split_key(&record.key);
                let is_meant = (kinds.is_empty() || kinds.contains(&record.resource))
                    && self.namespace.as_ref().is_none_or(|only| namespace == Some(only))
                    && self.name.as_ref().is_none_or(|only| name == only);
                if is_meant {
                    visit(record);
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// The versions of the events after `from` and up to `to` that match the filters, including the filter by user.
pub fn versions(view: &LogView, from: Offset, to: Offset, filters: &Filters) -> Result<Vec<Offset>> {
    let mut versions = Vec::new();
    filters.events(view, from, to, &mut |record| {
        if filters.user.as_ref().is_none_or(|user| *user == record.actor.user) {
            versions.push(record.offset());
        }
    })?;
    Ok(versions)
}

/// The number of events that are read at a time.
const PIECE: usize = 1024;

pub fn run(args: &Args) -> Result<()> {
    let kinds: Vec<&str> = args.filters.kind.iter().map(String::as_str).collect();
    args.common.run(&kinds, |view| look(view, &args.from, args.to.as_deref(), &args.filters))
}

struct Diff {
    from: Offset,
    to: Offset,
    objects: Vec<ChangedObject>,
    summary: Summary,
}

/// An object that differs between the two moments.
struct ChangedObject {
    title: String,
    key: String,
    event: &'static str,
    /// The event that wrote the state of the object at the first moment.
    before: u64,
    /// The object's newest event up to the second moment, without the object itself.
    newest: Record,
    users: BTreeSet<String>,
    changes: Vec<FieldChange>,
}

#[derive(Default)]
struct Summary {
    created: usize,
    changed: usize,
    recreated: usize,
    deleted: usize,
    /// The number of objects that were created and deleted between the two moments.
    passed: usize,
    /// The number of objects with events between the two moments whose state is the same at both moments.
    same: usize,
    events: usize,
}

/// The events on one object between the two moments.
struct Touched {
    /// The version that the first event on the object after the first moment replaced; zero if the object did not exist
    /// then.
    replaces: Offset,
    newest: Record,
    users: BTreeSet<String>,
    events: usize,
}

fn look(view: &LogView, from: &str, to: Option<&str>, filters: &Filters) -> Result<Diff> {
    let from_version = view.version(from)?;
    let to_version = to.map_or(Ok(view.last), |to| view.version(to))?;
    if from_version > to_version {
        bail!(
            "version {to_version} is before version {from_version}: give the earlier moment first, `holdfast diff {} {}`",
            to.unwrap_or("0"),
            from
        );
    }
    let mut diff = Diff { from: from_version, to: to_version, objects: Vec::new(), summary: Summary::default() };
    let mut touched = touched(view, from_version, to_version, filters)?;
    touched.retain(|_, touched| filters.user.as_ref().is_none_or(|user| touched.users.contains(user)));
    let replaced = touched.values().map(|touched| touched.replaces).filter(|replaces| *replaces > Offset::ZERO);
    view.log.will_read(&replaced.collect::<Vec<_>>());
    for ((storage, key), touched) in touched {
        diff.summary.events += touched.events;
        diff.add(view, &storage, key, touched)?;
    }
    Ok(diff)
}

/// The objects with events between the two moments, by resource and key.
fn touched(view: &LogView, from: Offset, to: Offset, filters: &Filters) -> Result<BTreeMap<(String, String), Touched>> {
    let mut found: BTreeMap<(String, String), Touched> = BTreeMap::new();
    filters.events(view, from, to, &mut |record| {
        let user = record.actor.user.clone();
        let touched = found.entry((record.resource.clone(), record.key.clone())).or_insert_with(|| Touched {
            replaces: Offset(record.replaces),
            newest: record.clone(),
            users: BTreeSet::new(),
            events: 0,
        });
        touched.users.insert(user);
        touched.events += 1;
        touched.newest = record;
    })?;
    Ok(found)
}

impl Diff {
    fn add(&mut self, view: &LogView, storage: &str, key: String, touched: Touched) -> Result<()> {
        let Touched { replaces, mut newest, users, .. } = touched;
        let before = match replaces {
            Offset::ZERO => None,
            replaces => Some(view.document(&view.record(replaces)?)?),
        };
        let document = view.document(&newest)?;
        let after = (!newest.is_delete()).then_some(&document);
        let shape = view.shape(storage, &document);
        let uid = |document: &Value| document["metadata"]["uid"].clone();
        let nothing = json!({});
        let changes = difference(shape, before.as_ref().unwrap_or(&nothing), after.unwrap_or(&nothing));
        let summary = &mut self.summary;
        let (event, count) = match (&before, after) {
            (None, None) => ("", &mut summary.passed),
            (None, Some(_)) => ("created", &mut summary.created),
            (Some(_), None) => ("deleted", &mut summary.deleted),
            (Some(before), Some(after)) if uid(before) != uid(after) => ("recreated", &mut summary.recreated),
            (Some(_), Some(_)) if changes.is_empty() => ("", &mut summary.same),
            (Some(_), Some(_)) => ("changed", &mut summary.changed),
        };
        *count += 1;
        if !event.is_empty() {
            newest.object = Default::default();
            let title = view.title(storage, &key);
            self.objects.push(ChangedObject { title, key, event, before: replaces.0, newest, users, changes });
        }
        Ok(())
    }
}

impl Summary {
    fn line(&self, from: Offset, to: Offset) -> String {
        let counts = [
            (self.created, "created"),
            (self.changed, "changed"),
            (self.recreated, "recreated"),
            (self.deleted, "deleted"),
            (self.passed, "came and went"),
            (self.same, "written and the same"),
        ];
        let told: Vec<String> =
            counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        let told = if told.is_empty() { "nothing changed".into() } else { told.join(", ") };
        let events = if self.events == 1 { "event" } else { "events" };
        format!("{told} ({} {events} from version {from} to {to})", self.events)
    }
}

impl Report for Diff {
    fn text(&self, paint: Paint) -> String {
        let mut out = String::new();
        for object in &self.objects {
            let ChangedObject { title, event, newest, .. } = object;
            let colour = match *event {
                "created" => Colour::Green,
                "deleted" => Colour::Red,
                _ => Colour::Yellow,
            };
            let others = object.users.len() - 1;
            let others = if others > 0 { format!(" and {others} more") } else { String::new() };
            let line = format!(
                "{event} {title} at version {}, {}, by {}{others}",
                newest.offset,
                shown_time(newest.time_ms),
                by(newest)
            );
            out.push_str(&paint.paint(colour, &line));
            out.push('\n');
            // For created and deleted objects the name is enough.
            if matches!(*event, "changed" | "recreated") {
                let titles = (format!("{title} @ {}", object.before), format!("{title} @ {}", newest.offset));
                out.push_str(&unified((&titles.0, &titles.1), &object.changes, paint));
                out.push('\n');
            }
        }
        out + &self.summary.line(self.from, self.to) + "\n"
    }

    fn value(&self) -> Value {
        let object = |object: &ChangedObject| {
            let (namespace, name) = split_key(&object.key);
            json!({
                "object": object.title,
                "namespace": namespace,
                "name": name,
                "event": object.event,
                "version": object.newest.offset,
                "time": shown_time(object.newest.time_ms),
                "user": object.newest.actor.user,
                "manager": object.newest.actor.manager,
                "requestID": object.newest.actor.request_id,
                "users": object.users,
                "changes": object.changes.iter().map(change_value).collect::<Vec<_>>(),
            })
        };
        let summary = &self.summary;
        json!({
            "from": self.from.0,
            "to": self.to.0,
            "objects": self.objects.iter().map(object).collect::<Vec<_>>(),
            "summary": {
                "created": summary.created, "changed": summary.changed, "recreated": summary.recreated,
                "deleted": summary.deleted, "cameAndWent": summary.passed, "same": summary.same,
                "events": summary.events,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config_map, deleted, log, put, view};
    use super::*;

    #[test]
    fn what_lies_between_two_versions_is_summed_up() {
        let with_uid = |name: &str, uid: &str| {
            let mut map = config_map(name, "x");
            map["metadata"]["uid"] = uid.into();
            map
        };
        let log = log(&[
            put(1, "changed", 0, config_map("changed", "one")),
            put(2, "same", 0, config_map("same", "one")),
            put(3, "deleted", 0, config_map("deleted", "one")),
            put(4, "again", 0, with_uid("again", "1")),
            put(5, "changed", 1, config_map("changed", "two")),
            put(6, "same", 2, config_map("same", "two")),
            put(7, "same", 6, config_map("same", "one")),
            deleted(8, "deleted", 3, config_map("deleted", "one")),
            deleted(9, "again", 4, with_uid("again", "1")),
            put(10, "again", 0, with_uid("again", "2")),
            put(11, "made", 0, config_map("made", "one")),
            put(12, "passed", 0, config_map("passed", "one")),
            deleted(13, "passed", 12, config_map("passed", "one")),
        ]);
        let told = |from: &str, to: Option<&str>, filters: Filters| {
            let diff = look(&view(&log), from, to, &filters).expect("a difference");
            let line = |object: &ChangedObject| format!("{} {}", object.event, object.key);
            let mut lines: Vec<String> = diff.objects.iter().map(line).collect();
            lines.push(diff.summary.line(diff.from, diff.to));
            lines
        };
        let none = Filters::default;
        assert_eq!(
            told("4", None, none()),
            [
                "recreated default/again",
                "changed default/changed",
                "deleted default/deleted",
                "created default/made",
                "1 created, 1 changed, 1 recreated, 1 deleted, 1 came and went, 1 written and the same \
             (9 events from version 4 to 13)",
            ]
        );
        assert_eq!(
            told("4", Some("5"), none()),
            ["changed default/changed", "1 changed (1 event from version 4 to 5)"]
        );
        assert_eq!(told("13", None, none()), ["nothing changed (0 events from version 13 to 13)"]);
        for filters in [
            Filters { name: Some("made".into()), ..none() },
            Filters { user: Some("user-11".into()), ..none() },
            Filters { name: Some("made".into()), kind: vec!["cm".into(), "po".into()], ..none() },
        ] {
            assert_eq!(told("4", None, filters), ["created default/made", "1 created (1 event from version 4 to 13)"]);
        }
        for filters in [
            Filters { namespace: Some("other".into()), ..none() },
            Filters { kind: vec!["pods".into()], ..none() },
            Filters { user: Some("nobody".into()), ..none() },
        ] {
            assert_eq!(told("4", None, filters), ["nothing changed (0 events from version 4 to 13)"]);
        }
        let backwards = look(&view(&log), "9", Some("4"), &none()).err().expect("a refusal").to_string();
        assert!(backwards.ends_with("give the earlier moment first, `holdfast diff 4 9`"), "{backwards}");
    }
}
