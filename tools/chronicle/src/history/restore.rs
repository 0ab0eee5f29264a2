//! `holdfast restore`: restores an object to an earlier state, by a new event.

use super::put::{Put, WriteOptions, WriteOutcome};
use super::{LogView, ObjectArgs, ReportFormat, StoredAt, by, shown_time};
use crate::remote::Source;
use crate::remote::client::Client;
use anyhow::{Result, bail};
use holdfast_core::event::{Offset, Record};
use jiff::Timestamp;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    named: ObjectArgs,
    /// The moment to restore: a version (42), a time (2026-11-21T10:00:00Z) or how long ago (-15m).
    #[arg(long, allow_hyphen_values = true, value_name = "VERSION|TIME")]
    to: String,
    #[command(flatten)]
    writing: WriteOptions,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    shown: ReportFormat,
}

pub fn run(args: &Args) -> Result<()> {
    let log = args.source.open_of(&[args.named.kind()])?;
    let view = LogView::new(log.as_ref(), Timestamp::now(), false)?;
    let goal = Goal::find(&view, &args.named, &args.to)?;
    let api = args.source.api()?;
    args.shown.write(&restore(&view, api.client(), &goal, args.writing)?)
}

/// The earlier state of an object, which is to be restored.
struct Goal {
    place: StoredAt,
    record: Record,
}

impl Goal {
    fn find(view: &LogView, named: &ObjectArgs, to: &str) -> Result<Goal> {
        let place = view.place(named)?;
        let title = view.title(&place.storage, &place.key);
        let version = view.version(to)?;
        let versions = view.versions(&place)?;
        let newest = versions[..versions.partition_point(|offset| *offset <= version)].last();
        let Some(newest) = newest else {
            let first = view.record(versions[0])?;
            bail!(
                "{title} did not exist yet at version {version}: it was created at version {}, {}, by {}",
                first.offset,
                shown_time(first.time_ms),
                by(&first)
            );
        };
        let record = view.record(*newest)?;
        if record.is_delete() {
            let last = versions[..versions.partition_point(|offset| offset < newest)].last();
            let hint =
                last.map(|last: &Offset| format!("; its last version before that is {last}")).unwrap_or_default();
            bail!(
                "{title} was not there at version {version}: it was deleted at version {newest}, {}, by {}{hint}",
                shown_time(record.time_ms),
                by(&record)
            );
        }
        Ok(Goal { place, record })
    }
}

fn restore(view: &LogView, client: &Client, goal: &Goal, writing: WriteOptions) -> Result<WriteOutcome> {
    let Goal { place, record } = goal;
    let wanted = view.document(record)?;
    let api_version = wanted["apiVersion"].as_str().unwrap_or_default();
    let put = Put::new(client, view, place, api_version, writing, "holdfast-restore")?;
    let now = put.now()?;
    put.write(now.as_ref(), Some(wanted), format!("what it was at version {}", record.offset))
}
