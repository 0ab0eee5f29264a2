//! `holdfast undo`: reverts the changes of one event, by a new event.

use super::put::{ExplainedConflict, Put, WriteOptions, WriteOutcome};
use super::{LogView, ReportFormat, StoredAt, by, shown_time};
use crate::remote::Source;
use crate::remote::client::Client;
use anyhow::{Result, bail};
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::{Conflict, Path, Reverted, difference, revert, settable};
use holdfast_value::{Value, json};
use jiff::Timestamp;

#[derive(clap::Args)]
pub struct Args {
    /// The version of the event to undo.
    version: u64,
    #[command(flatten)]
    writing: WriteOptions,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    shown: ReportFormat,
}

pub fn run(args: &Args) -> Result<()> {
    let log = args.source.open()?;
    let view = LogView::new(log.as_ref(), Timestamp::now(), false)?;
    let event = Event::find(&view, args.version)?;
    let api = args.source.api()?;
    let outcome = undo(&view, api.client(), &event, args.writing)?;
    args.shown.write(&outcome)?;
    outcome.check()
}

/// The event to undo, with the object before and after the event.
struct Event {
    record: Record,
    place: StoredAt,
    before: Option<Value>,
    after: Option<Value>,
    api_version: String,
}

impl Event {
    fn find(view: &LogView, version: u64) -> Result<Event> {
        if version == 0 {
            bail!("version 0 is the beginning, before any event: give the version of an event");
        }
        let offset = view.version(&version.to_string())?;
        let Some(record) = view.log.read(offset)? else {
            bail!("there is no event {version}: a repair of the log left a gap there")
        };
        let place = StoredAt { storage: record.resource.clone(), key: record.key.clone() };
        let title = view.title(&place.storage, &place.key);
        let document = view.document(&record)?;
        let api_version = document["apiVersion"].as_str().unwrap_or_default().to_owned();
        let before = match record.replaces {
            0 => None,
            replaces => match view.log.read(Offset(replaces))? {
                Some(before) => Some(view.document(&before)?),
                None => bail!(
                    "event {version} changed {title}, but the version before, {replaces}, is no longer in the history: \
                     change the object by hand"
                ),
            },
        };
        let after = (!record.is_delete()).then_some(document);
        Ok(Event { record, place, before, after, api_version })
    }

    fn told(&self, title: &str) -> String {
        let what = match (&self.before, &self.after) {
            (_, None) => "deleted",
            (None, Some(_)) => "created",
            (Some(_), Some(_)) => "changed",
        };
        format!("event {}, in which {} {what} {title}", self.record.offset, by(&self.record))
    }
}

fn undo(view: &LogView, client: &Client, event: &Event, writing: WriteOptions) -> Result<WriteOutcome> {
    let Event { record, place, before, after, api_version } = event;
    let put = Put::new(client, view, place, api_version, writing, "holdfast-undo")?;
    let now = put.now()?;
    let goal = match (before, after) {
        (_, None) => format!("what it was before version {}", record.offset),
        (None, Some(_)) => format!("gone, as before version {}", record.offset),
        (Some(_), Some(_)) => format!("without what version {} changed", record.offset),
    };
    let (wanted, conflicts) = wanted(view, &put, event, now.as_ref())?;
    if conflicts.is_empty() || writing.force {
        return put.write(now.as_ref(), wanted, goal);
    }
    let conflicts = told(view, place, record.offset(), &put, conflicts)?;
    Ok(put.refusal(now.as_ref(), goal, conflicts))
}

/// The object after the undo, and the later changes that conflict with the undo.
fn wanted(view: &LogView, put: &Put, event: &Event, now: Option<&Value>) -> Result<(Option<Value>, Vec<Conflict>)> {
    let Event { record, place, before, after, .. } = event;
    let uid = |document: &Value| document["metadata"]["uid"].clone();
    // Controllers write the status, so a later change of the status is no conflict.
    let intended = |document: &Value| {
        let mut document = settable(document.clone());
        if let Some(document) = document.as_object_mut().filter(|_| put.has_status()) {
            document.remove("status");
        }
        document
    };
    let wanted = match (before, after, now) {
        (Some(before), None, None) => (Some(before.clone()), Vec::new()),
        (Some(before), None, Some(now)) => {
            let is_same = intended(before) == intended(now);
            let again = whole(Some(before), None, Some(now));
            (Some(before.clone()), if is_same { Vec::new() } else { vec![again] })
        }
        (None, Some(after), Some(now)) => {
            let mut since = Vec::new();
            if uid(after) != uid(now) {
                since.push(whole(None, Some(after), Some(now)));
            } else {
                let changes = difference(put.shape(), &intended(after), &intended(now));
                since.extend(changes.into_iter().map(|change| {
                    let (after, now) = change.what.sides();
                    Conflict { path: change.path, before: None, after, now }
                }));
            }
            (None, since)
        }
        (Some(before), Some(after), Some(now)) => {
            let is_deletion = |document: &Value| document["metadata"].get("deletionTimestamp").is_some();
            if is_deletion(after) && !is_deletion(before) {
                bail!(
                    "{} started a deletion, which cannot be undone once it has begun: restore the object when it is gone",
                    event.told(&put.title)
                );
            }
            let sides = [before, after, now].map(|document| settable(document.clone()));
            let Reverted { document, mut conflicts } = revert(put.shape(), &sides[0], &sides[1], &sides[2]);
            if uid(after) != uid(now) {
                conflicts.insert(0, whole(Some(before), Some(after), Some(now)));
            }
            (Some(document), conflicts)
        }
        (Some(_), Some(_), None) => {
            let versions = view.versions(place)?;
            let gone = versions.last().copied().unwrap_or(record.offset());
            bail!("{}, which was deleted since: undo that first, with `holdfast undo {gone}`", event.told(&put.title))
        }
        (None, _, None) => (None, Vec::new()),
        (None, None, Some(_)) => {
            bail!("{} deleted an object that did not exist: there is nothing to undo", event.told(&put.title))
        }
    };
    Ok(wanted)
}

/// A conflict about the object as a whole.
fn whole(before: Option<&Value>, after: Option<&Value>, now: Option<&Value>) -> Conflict {
    Conflict { path: Path::default(), before: before.cloned(), after: after.cloned(), now: now.cloned() }
}

/// Finds the event that last set each conflicting field.
fn told(
    view: &LogView,
    place: &StoredAt,
    event: Offset,
    put: &Put,
    conflicts: Vec<Conflict>,
) -> Result<Vec<ExplainedConflict>> {
    let mut told: Vec<ExplainedConflict> =
        conflicts.into_iter().map(|conflict| ExplainedConflict { conflict, since: None, version: None }).collect();
    let versions = view.versions(place)?;
    let mut before: Option<Value> = None;
    for offset in versions.iter().filter(|offset| **offset >= event) {
        let record = view.record(*offset)?;
        let document = if record.is_delete() { json!({}) } else { settable(view.document(&record)?) };
        if let Some(before) = &before {
            let changes = difference(put.shape(), before, &document);
            for told in &mut told {
                let steps = &told.conflict.path.0;
                let touches = |path: &Path| path.0.starts_with(steps) || steps.starts_with(&path.0);
                if changes.iter().any(|change| touches(&change.path)) {
                    let time = shown_time(record.time_ms);
                    told.since = Some(format!("version {offset}, {time}, by {}", by(&record)));
                    told.version = Some(offset.0);
                }
            }
        }
        before = Some(document);
    }
    Ok(told)
}
