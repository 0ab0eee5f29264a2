//! `holdfast history`: the versions of one object.

use super::{Common, LogView, ObjectArgs, Report, change_value, dash, shown_time, table};
use anyhow::Result;
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::render::{Colour, Paint, unified};
use holdfast_core::history::{FieldChange, What, difference};
use holdfast_core::object::meta::split_key;
use holdfast_value::{Value, json};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    named: ObjectArgs,
    /// Show what changed from each version to the next.
    #[arg(short = 'p', long)]
    diff: bool,
    /// Show only this number of the newest versions.
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    common: Common,
}

pub fn run(args: &Args) -> Result<()> {
    args.common.run(&[args.named.kind()], |view| look(view, &args.named, args.limit, args.diff))
}

/// The versions of one object, newest last.
struct History {
    title: String,
    key: String,
    versions: Vec<VersionRow>,
    /// The number of older versions that `--limit` hides.
    left_out: usize,
    /// The oldest version after which the log is complete.
    oldest: Offset,
    diff: bool,
}

struct VersionRow {
    record: Record,
    event: &'static str,
    /// The changes since the previous version; `None` if the log has forgotten the previous version.
    changes: Option<Vec<FieldChange>>,
    before: Option<u64>,
}

fn look(view: &LogView, named: &ObjectArgs, limit: Option<usize>, diff: bool) -> Result<History> {
    let place = view.place(named)?;
    let offsets = view.versions(&place)?;
    let left_out = offsets.len().saturating_sub(limit.unwrap_or(usize::MAX));
    let mut versions = Vec::new();
    let mut before: Option<(Record, Value)> = None;
    let mut was_there = false;
    for (index, offset) in offsets.iter().enumerate().skip(left_out.saturating_sub(1)) {
        let record = view.record(*offset)?;
        let document = view.document(&record)?;
        if index >= left_out {
            let shape = view.shape(&place.storage, &document);
            let old = before.as_ref().filter(|(record, _)| !record.is_delete());
            let nothing = json!({});
            let changes = match (&old, record.is_delete(), record.replaces) {
                (Some((_, old)), true, _) => Some(difference(shape, old, &nothing)),
                (Some((_, old)), false, _) => Some(difference(shape, old, &document)),
                (None, false, 0) => Some(difference(shape, &nothing, &document)),
                (None, ..) => None,
            };
            let event = match (record.is_delete(), record.replaces) {
                (true, _) => "deleted",
                (false, 0) if was_there => "recreated",
                (false, 0) => "created",
                (false, _) => "changed",
            };
            versions.push(VersionRow {
                event,
                changes,
                before: old.map(|(old, _)| old.offset),
                record: record.clone(),
            });
        }
        was_there = true;
        before = Some((record, document));
    }
    let title = view.title(&place.storage, &place.key);
    Ok(History { title, key: place.key, versions, left_out, oldest: view.oldest, diff })
}

impl VersionRow {
    /// The numbers of added, removed and changed fields: `+2 -1 ~3`.
    fn counts(&self) -> String {
        let Some(changes) = &self.changes else { return "?".into() };
        let count = |sign: char, is: fn(&What) -> bool| {
            let fields: usize = changes.iter().filter(|change| is(&change.what)).map(FieldChange::fields).sum();
            (fields > 0).then(|| format!("{sign}{fields}"))
        };
        let counts = [
            count('+', |what| matches!(what, What::Added(_))),
            count('-', |what| matches!(what, What::Removed(_))),
            count('~', |what| matches!(what, What::Changed { .. } | What::Reordered { .. })),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        if counts.is_empty() { "0".into() } else { counts.join(" ") }
    }

    fn colour(&self) -> Colour {
        match self.event {
            "deleted" => Colour::Red,
            "changed" => Colour::Yellow,
            _ => Colour::Green,
        }
    }
}

impl Report for History {
    fn text(&self, paint: Paint) -> String {
        let head = ["VERSION", "TIME", "EVENT", "VERB", "USER", "MANAGER", "REQUEST", "FIELDS"];
        let mut rows = vec![head.map(String::from).to_vec()];
        for version in &self.versions {
            let actor = &version.record.actor;
            rows.push(vec![
                version.record.offset.to_string(),
                shown_time(version.record.time_ms),
                version.event.into(),
                dash(&actor.verb),
                dash(&actor.user),
                dash(&actor.manager),
                dash(&actor.request_id),
                version.counts(),
            ]);
        }
        let mut out = String::new();
        let mut lines = table(&rows).into_iter();
        out.extend(lines.next().map(|head| paint.paint(Colour::Bold, &head) + "\n"));
        for (version, line) in self.versions.iter().zip(lines) {
            out.push_str(&paint.paint(version.colour(), &line));
            out.push('\n');
            if let Some(changes) = version.changes.as_ref().filter(|_| self.diff) {
                let title = |version: Option<u64>| match version {
                    Some(version) => format!("{} @ {version}", self.title),
                    None => "nothing".to_owned(),
                };
                let new = Some(version.record.offset).filter(|_| !version.record.is_delete());
                out.push_str(&unified((&title(version.before), &title(new)), changes, paint));
                out.push('\n');
            }
        }
        if self.left_out > 0 {
            let versions = if self.left_out == 1 { "version is" } else { "versions are" };
            out.push_str(&format!("{} older {versions} left out by --limit\n", self.left_out));
        } else if self.versions.first().is_some_and(|first| first.changes.is_none()) {
            out.push_str(&format!("older versions were removed: the history begins at version {}\n", self.oldest));
        }
        out
    }

    fn value(&self) -> Value {
        let (namespace, name) = split_key(&self.key);
        let version = |version: &VersionRow| {
            let actor = &version.record.actor;
            json!({
                "version": version.record.offset,
                "time": shown_time(version.record.time_ms),
                "event": version.event,
                "verb": actor.verb,
                "user": actor.user,
                "manager": actor.manager,
                "requestID": actor.request_id,
                "fields": version.changes.as_ref().map(|changes| changes.iter().map(FieldChange::fields).sum::<usize>()),
                "changes": version.changes.as_ref().map(|changes| changes.iter().map(change_value).collect::<Vec<_>>()),
            })
        };
        let versions: Vec<Value> = self.versions.iter().map(version).collect();
        json!({"object": self.title, "namespace": namespace, "name": name, "oldest": self.oldest.0,
            "leftOut": self.left_out, "versions": versions})
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{config_map, deleted, log, named, put, view};
    use super::*;
    use holdfast_engine::Log;

    fn told(history: &History) -> Vec<String> {
        let line = |version: &VersionRow| format!("{} {} {}", version.record.offset, version.event, version.counts());
        history.versions.iter().map(line).collect()
    }

    #[test]
    fn versions_are_told_with_what_was_let_go() {
        let log = log(&[
            put(1, "a", 0, config_map("a", "one")),
            put(2, "a", 1, config_map("a", "two")),
            put(3, "b", 0, config_map("b", "one")),
            deleted(4, "a", 2, config_map("a", "two")),
            put(5, "a", 0, config_map("a", "two")),
            put(6, "a", 5, config_map("a", "six")),
        ]);
        let look = |limit| look(&view(&log), &named("cm/a"), limit, false).expect("a history");
        let all = ["1 created +5", "2 changed ~1", "4 deleted -5", "5 recreated +5", "6 changed ~1"];
        assert_eq!(told(&look(None)), all);
        for limit in 0..=6 {
            let history = look(Some(limit));
            let left_out = all.len().saturating_sub(limit);
            assert_eq!(
                (told(&history), history.left_out),
                (all[left_out..].iter().map(|line| line.to_string()).collect(), left_out)
            );
        }
        log.forget(Offset(5)).expect("a log in memory forgets");
        let history = look(None);
        assert_eq!(told(&history), ["5 created +5", "6 changed ~1"]);
        log.forget(Offset(6)).expect("a log in memory forgets");
        let history = look(None);
        assert_eq!(told(&history), ["6 changed ?"]);
        assert!(history.text(Paint(false)).ends_with("older versions were removed: the history begins at version 6\n"));
        assert_eq!(history.value()["versions"][0]["changes"], Value::Null);
    }
}
