//! `holdfast history`, `blame` and `diff` report on objects from the log of a server or a data folder; `restore` and
//! `undo` write earlier states back.
//!
//! One file per subcommand. Each reads through [`LogRead`](holdfast_engine::LogRead), makes a report, and writes it as
//! text, JSON or YAML. This file has the common parts: the options, the [`LogView`] of a log, and the search for kinds,
//! objects and moments.

pub mod blame;
pub mod diff;
mod put;
pub mod restore;
pub mod scheduling;
pub mod undo;
pub mod versions;

use crate::out;
use crate::remote::{Readable, Source};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use holdfast_core::apply::hold;
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::render::Paint;
use holdfast_core::history::{FieldChange, Shape, What, find, without_bookkeeping};
use holdfast_core::kinds::{Kind, Registry, Scope, registry};
use holdfast_core::object::meta::{key, split_key};
use holdfast_core::state::{Change, State};
use holdfast_core::visible;
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Arc;

/// The options of all commands that report.
#[derive(clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub shown: ReportFormat,
    /// Also show `metadata.managedFields` and `metadata.resourceVersion`.
    #[arg(long)]
    show_managed_fields: bool,
}

/// The options for the format of a report.
#[derive(clap::Args, Clone)]
pub struct ReportFormat {
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Whether to colour text; auto colours it only on a terminal.
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    color: When,
}

/// The options that name one object.
#[derive(clap::Args)]
pub struct ObjectArgs {
    /// The object, as for kubectl: `deploy web` or `deploy/web`.
    #[arg(value_names = ["KIND", "NAME"], num_args = 1..=2, required = true)]
    object: Vec<String>,
    /// Namespace of the object [default: the namespace of the kubeconfig's context, or default].
    #[arg(short, long)]
    namespace: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
    Yaml,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// The result of a subcommand, which can be written as text, JSON or YAML.
pub trait Report {
    fn text(&self, paint: Paint) -> String;
    fn value(&self) -> Value;
}

impl ObjectArgs {
    /// The kind, as the user wrote it.
    fn kind(&self) -> &str {
        let first = self.object.first().map(String::as_str).unwrap_or_default();
        first.split_once('/').map_or(first, |(kind, _)| kind)
    }
}

impl Common {
    /// Runs a subcommand on the log that has the objects of `kinds`, and writes its report.
    fn run<R: Report>(&self, kinds: &[&str], look: impl FnOnce(&LogView) -> Result<R>) -> Result<()> {
        let log = self.source.open_of(kinds)?;
        let report = look(&LogView::new(log.as_ref(), Timestamp::now(), self.show_managed_fields)?)?;
        self.shown.write(&report)
    }
}

impl ReportFormat {
    pub fn write(&self, report: &impl Report) -> Result<()> {
        match self.output {
            Output::Text => {
                let paint = Paint(self.is_coloured());
                out::seen(&paint.finish(&report.text(paint)))
            }
            Output::Json => out::json(&report.value()),
            Output::Yaml => out::yaml(&report.value()),
        }
    }

    fn is_coloured(&self) -> bool {
        match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }
}

/// A log, as of its last event when the command began to read.
pub struct LogView<'l> {
    log: &'l dyn Readable,
    /// The built-in kinds and the kinds of CustomResourceDefinitions.
    registry: Arc<Registry>,
    last: Offset,
    oldest: Offset,
    now: Timestamp,
    bookkeeping: bool,
}

/// The resource and key of an object in the log.
#[derive(Debug)]
struct StoredAt {
    storage: String,
    key: String,
}

impl<'l> LogView<'l> {
    pub fn new(log: &'l dyn Readable, now: Timestamp, bookkeeping: bool) -> Result<LogView<'l>> {
        let (last, oldest) = (log.last()?, log.oldest()?);
        Ok(LogView { log, last, oldest, registry: kinds(log)?, now, bookkeeping })
    }

    fn kind(&self, asked: &str) -> Result<&Kind> {
        Ok(self.registry.get(find::find(&self.registry, asked)?))
    }

    /// The kind whose objects are stored under this path, if the kind is still defined.
    fn kind_at(&self, storage: &str) -> Option<&Kind> {
        self.registry.by_storage(storage).map(|id| self.registry.get(id))
    }

    fn place(&self, named: &ObjectArgs) -> Result<StoredAt> {
        let (kind, name) = match named.object.as_slice() {
            [kind, name] => (kind.as_str(), name.as_str()),
            [both] => {
                both.split_once('/').ok_or_else(|| anyhow!("name the object, too: {both} NAME or {both}/NAME"))?
            }
            _ => bail!("name one object: KIND NAME or KIND/NAME"),
        };
        if name.is_empty() || name.contains('/') {
            bail!("{name:?} is not a name of an object: give KIND NAME or KIND/NAME, and the namespace with -n");
        }
        let kind = self.kind(kind)?;
        let namespace = named.namespace.as_deref().unwrap_or(self.log.namespace());
        let namespace = Some(namespace).filter(|_| kind.scope == Scope::Namespaced);
        Ok(StoredAt { storage: kind.storage.path.clone(), key: key(namespace, name) })
    }

    /// An object's name in a report: `deployments.apps/default/web`.
    pub fn title(&self, storage: &str, key: &str) -> String {
        match self.kind_at(storage) {
            Some(kind) => match kind.versions[0].group.as_str() {
                "" => format!("{}/{key}", kind.resource),
                group => format!("{}.{group}/{key}", kind.resource),
            },
            None => format!("{storage}/{key}"),
        }
    }

    /// The offsets of an object's events that the log still has. Fails if the log has none.
    fn versions(&self, place: &StoredAt) -> Result<Vec<Offset>> {
        let versions = self.log.versions(&place.storage, &place.key)?;
        if !versions.is_empty() {
            return Ok(versions);
        }
        let mut text = format!("{} was never there", self.title(&place.storage, &place.key));
        let (_, name) = split_key(&place.key);
        let elsewhere = self.elsewhere(place, name);
        if !elsewhere.is_empty() {
            text.push_str(&format!(": did you mean {}?", elsewhere.join(" or ")));
        }
        if self.oldest > Offset::ZERO {
            text.push_str(&format!(
                " (the history begins at version {}: objects deleted before that are not in it)",
                self.oldest
            ));
        }
        bail!(text)
    }

    /// Suggestions for a missing object: objects of the kind with this name in other namespaces, or with a similar name
    /// in this namespace.
    fn elsewhere(&self, place: &StoredAt, name: &str) -> Vec<String> {
        const SHOWN_MAX: usize = 3;
        let far = name.chars().count().div_ceil(4).min(3);
        let mut found: Vec<(usize, String)> = Vec::new();
        // If reading fails, only the hint is missing.
        for (key, _) in present(self.log, &place.storage).unwrap_or_default() {
            let (namespace, other) = split_key(&key);
            let is_here = namespace == split_key(&place.key).0;
            let distance = if is_here { find::distance(name, other, far) } else { (name == other).then_some(0) };
            if let Some(distance) = distance {
                let option = namespace.filter(|_| !is_here).map(|namespace| format!(" -n {namespace}"));
                found.push((distance, format!("{other}{}", option.unwrap_or_default())));
            }
        }
        found.sort();
        found.into_iter().take(SHOWN_MAX).map(|(_, name)| name).collect()
    }

    /// An event; `None` if a repair left a gap at its offset.
    pub fn event(&self, offset: Offset) -> Result<Option<Record>> {
        Ok(self.log.read(offset)?)
    }

    /// The object before an event; `None` if the object did not exist.
    pub fn before(&self, record: &Record) -> Result<Option<Value>> {
        match record.replaces {
            0 => Ok(None),
            replaces => Ok(Some(self.document(&self.record(Offset(replaces))?)?)),
        }
    }

    fn record(&self, offset: Offset) -> Result<Record> {
        let found = self.log.read(offset)?;
        found.ok_or_else(|| anyhow!("event {offset} was removed from the history during this command: try again"))
    }

    /// The object after an event. For a deletion, the last state of the object.
    pub fn document(&self, record: &Record) -> Result<Value> {
        let document = serde_json::from_slice(&record.object)
            .map_err(|error| anyhow!("the object of event {} is not valid JSON: {error}", record.offset))?;
        Ok(if self.bookkeeping { document } else { without_bookkeeping(document) })
    }

    /// The schema shape of a kind's documents, in the version of this document.
    pub fn shape<'s>(&'s self, storage: &str, document: &Value) -> Shape<'s> {
        let layout = self.kind_at(storage).and_then(|kind| {
            let named = document["apiVersion"].as_str().and_then(|version| kind.version_named(version));
            kind.layout(named.unwrap_or(0))
        });
        Shape::new(layout)
    }

    /// The version that the text names, if its state can still be read.
    pub fn version(&self, text: &str) -> Result<Offset> {
        let version = self.log.named(text, self.now)?;
        if version > self.last {
            bail!("version {version} is in the future: the newest one is {}", self.last);
        }
        if version < self.oldest {
            let meant = if text == version.to_string() { String::new() } else { format!(" (which {text} means)") };
            bail!(
                "version {version}{meant} is no longer in the history: the oldest one is {oldest}, {}; name that or a \
                 later one",
                self.time_of(self.oldest)?,
                oldest = self.oldest
            );
        }
        Ok(version)
    }

    /// The time of a version, for people.
    pub fn time_of(&self, version: Offset) -> Result<String> {
        let at = self.log.scan(None, Offset(version.0.saturating_sub(1)), 1)?;
        Ok(at.first().map_or_else(|| "which is empty".into(), |record| format!("of {}", shown_time(record.time_ms))))
    }
}

/// The built-in kinds and the kinds that the log's CustomResourceDefinitions define.
fn kinds(log: &dyn Readable) -> Result<Arc<Registry>> {
    let mut state = State::new(Arc::new(registry().clone()));
    let definitions = state.registry.definitions().map(|id| state.kind(id).storage.path.clone());
    let mut records: Vec<Record> =
        definitions.map(|storage| present(log, &storage)).transpose()?.unwrap_or_default().into_values().collect();
    records.sort_by_key(|record| record.offset);
    for record in &records {
        let event = Change::from_record(&state.registry, record).map_err(|unknown| anyhow!("{unknown}"))?;
        hold(&mut state, &event);
    }
    Ok(state.registry)
}

/// The newest record of every object of a resource, by key.
fn present(log: &dyn Readable, storage: &str) -> Result<BTreeMap<String, Record>> {
    const PIECE: usize = 1024;
    let (mut found, mut after) = (BTreeMap::new(), Offset::ZERO);
    loop {
        let records = log.scan(Some(storage), after, PIECE)?;
        let is_last = records.len() < PIECE;
        for record in records {
            after = record.offset();
            match record.is_delete() {
                true => found.remove(&record.key),
                false => found.insert(record.key.clone(), record),
            };
        }
        if is_last {
            return Ok(found);
        }
    }
}

/// A time in reports: `2026-11-21T10:00:00.120Z`.
pub fn shown_time(time_ms: i64) -> String {
    Timestamp::from_millisecond(time_ms)
        .map(|time| time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string())
        .unwrap_or_else(|_| time_ms.to_string())
}

/// Converts a change of a field to the form that it has in JSON and YAML.
pub fn change_value(change: &FieldChange) -> Value {
    let path = change.path.to_string();
    match &change.what {
        What::Added(new) => json!({"path": path, "change": "added", "new": new}),
        What::Removed(old) => json!({"path": path, "change": "removed", "old": old}),
        What::Changed { old, new } => json!({"path": path, "change": "changed", "old": old, "new": new}),
        What::Reordered { old, new } => json!({"path": path, "change": "reordered", "old": old, "new": new}),
    }
}

/// The author of an event in reports: `jane (kubectl-create)`.
pub fn by(record: &Record) -> String {
    let actor = &record.actor;
    let user = dash(&actor.user);
    if actor.manager.is_empty() { user } else { format!("{user} ({})", visible::line(&actor.manager)) }
}

/// The text of a cell; a dash for an empty text.
fn dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { visible::cell(text).into_owned() }
}

/// Pads columns to the width of their widest cell. The last column is not padded.
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<_>> = rows.iter().map(|row| row.iter().map(|cell| visible::cell(cell)).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<Cow<'_, str>>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        cells.join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Actor, Operation};
    use holdfast_engine::Log;
    use holdfast_engine::memory::MemoryLog;

    pub fn config_map(name: &str, text: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
            "data": {"text": text}})
    }

    /// An event on a ConfigMap in the namespace `default`, whose time is a second after the time of the event before.
    pub fn put(offset: u64, name: &str, replaces: u64, object: Value) -> Record {
        Record {
            offset,
            time_ms: NOW_SECONDS * 1000 - 3_600_000 + offset as i64 * 1000,
            resource: "configmaps".into(),
            key: format!("default/{name}"),
            replaces,
            operation: Operation::Put as i32,
            actor: Actor { user: format!("user-{offset}"), verb: "update".into(), ..Actor::default() },
            object: object.to_string().into(),
        }
    }

    pub fn deleted(offset: u64, name: &str, replaces: u64, object: Value) -> Record {
        Record { operation: Operation::Delete as i32, ..put(offset, name, replaces, object) }
    }

    pub fn log(records: &[Record]) -> MemoryLog {
        let log = MemoryLog::default();
        log.append(records).expect("a log in memory takes records");
        log
    }

    const NOW_SECONDS: i64 = 1_795_000_000;

    pub fn view(log: &MemoryLog) -> LogView<'_> {
        LogView::new(log, Timestamp::from_second(NOW_SECONDS).expect("a time"), false).expect("a state")
    }

    pub fn named(object: &str) -> ObjectArgs {
        ObjectArgs { object: object.split(' ').map(String::from).collect(), namespace: None }
    }

    #[test]
    fn moments_are_versions_that_can_still_be_told() {
        let records: Vec<Record> = (1..=9).map(|n| put(n, "a", n - 1, config_map("a", &n.to_string()))).collect();
        let log = log(&records);
        let version = |text: &str| view(&log).version(text).map(|version| version.0).map_err(|error| error.to_string());
        for (text, expected) in [("0", 0), ("9", 9), ("-1h", 0), ("-59m55s", 5), ("-1m", 9), ("-2h", 0)] {
            assert_eq!(version(text), Ok(expected), "{text}");
        }
        assert_eq!(version("10"), Err("version 10 is in the future: the newest one is 9".into()));
        log.forget(Offset(4)).expect("a log in memory forgets");
        assert_eq!(version("4"), Ok(4));
        for (text, meant) in [("3", "version 3"), ("-59m57s", "version 3 (which -59m57s means)")] {
            let expected = format!(
                "{meant} is no longer in the history: the oldest one is 4, of 2026-11-18T10:06:44.000Z; name that or a \
                 later one"
            );
            assert_eq!(version(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn objects_are_found_or_said_not_to_be() {
        let log = log(&[
            put(1, "web", 0, config_map("web", "1")),
            put(2, "gone", 0, config_map("gone", "1")),
            deleted(3, "gone", 2, config_map("gone", "1")),
        ]);
        let versions = |object: &str, namespace: &str| {
            let view = view(&log);
            let named = ObjectArgs { namespace: Some(namespace.into()), ..named(object) };
            let found = view.place(&named).and_then(|place| view.versions(&place));
            found.map(|versions| versions.len()).map_err(|error| error.to_string())
        };
        let error = |text: &str| Err(text.to_owned());
        for (object, namespace, expected) in [
            ("cm web", "default", Ok(1)),
            ("ConfigMap/web", "default", Ok(1)),
            ("cm gone", "default", Ok(2)),
            ("cm wep", "default", error("configmaps/default/wep was never there: did you mean web?")),
            ("cm web", "other", error("configmaps/other/web was never there: did you mean web -n default?")),
            ("cm x", "default", error("configmaps/default/x was never there")),
            ("namespaces web", "default", error("namespaces/web was never there")),
            ("cm", "default", error("name the object, too: cm NAME or cm/NAME")),
            ("confgmap web", "default", error("there is no kind \"confgmap\": did you mean configmaps?")),
        ] {
            assert_eq!(versions(object, namespace), expected, "{object} in {namespace}");
        }
    }
}
