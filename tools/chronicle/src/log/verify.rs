//! `holdfast log verify`: folds the whole log, and compares the result with the state that a server loads.

use super::progress::Progress;
use super::{Folder, each, format};
use crate::encryption::EncryptionArgs;
use crate::out;
use crate::remote::open_folder;
use anyhow::{Result, anyhow, bail};
use holdfast_core::apply::replay;
use holdfast_core::digest::{Digest, differences};
use holdfast_core::event::{Offset, Operation, Record};
use holdfast_core::kinds::{Registry, registry};
use holdfast_core::state::State;
use holdfast_core::visible;
use holdfast_engine::log::{Identity, NUMBERED_ELSEWHERE};
use holdfast_engine::{LogRead, load};
use holdfast_value::{Value, json};
use serde::de::IgnoredAny;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    encryption: EncryptionArgs,
    /// Also print the digest of the state after every EVENTS events.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u64).range(1..))]
    every: Option<u64>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// The maximum number of problems that are shown; other problems are only counted.
const TOLD_MAX: usize = 20;

/// The result of folding the whole log.
struct Fold {
    state: State,
    events: u64,
    oldest: Offset,
    /// The offset up to which `holdfast log repair` has already reported the gaps.
    told_of: Offset,
    /// Each gap in the log, as the offset before it and the offset after it.
    gaps: Vec<(Offset, Offset)>,
    problems: Vec<String>,
}

pub fn run(args: Args) -> Result<()> {
    let began = Instant::now();
    let reader = open_folder(&args.folder.data_dir, &args.encryption)?;
    let last = reader.last()?;
    let oldest = reader.oldest()?;
    let registry = Arc::new(registry().clone());
    let mut fold = Fold {
        state: State::new(registry.clone()),
        events: 0,
        oldest,
        told_of: oldest.max(reader.repaired()?),
        gaps: Vec::new(),
        problems: Vec::new(),
    };
    let mut checkpoints = Vec::new();
    let mut progress = Progress::new("verifying");
    each(&reader, Offset::ZERO, |record| {
        fold.take(record)?;
        if args.every.is_some_and(|every| fold.events.is_multiple_of(every)) {
            let digest = Digest::of(&fold.state).to_string();
            if !args.json {
                out::line(&format!("{} {digest}", record.offset))?;
            }
            checkpoints.push(json!({"offset": record.offset, "digest": digest}));
        }
        progress.at(fold.events, fold.state.offset.0, Some(last.0));
        Ok(ControlFlow::Continue(()))
    })?;
    drop(progress);
    let folded_in = began.elapsed();
    let digest = Digest::of(&fold.state);
    let objects = fold.state.collections().map(|(_, objects)| objects.len()).sum();
    let served = fold.compare(&reader, registry, digest)?;
    let verdict =
        VerifyReport { fold, identity: reader.identity()?, last, objects, digest, served, checkpoints, folded_in };
    match args.json {
        true => out::json(&verdict.to_json())?,
        false => out::text(&verdict.to_text())?,
    }
    match verdict.fold.problems.as_slice() {
        [] => Ok(()),
        [first, ..] => bail!(
            "the log has {} problems, the first: {first}. Restore the folder from a backup, or from an \
             export with `holdfast log import`",
            verdict.fold.problems.len()
        ),
    }
}

/// The result of comparing the log with the state that a server would load.
struct VerifyReport {
    fold: Fold,
    identity: Identity,
    last: Offset,
    objects: usize,
    digest: Digest,
    /// The digest of the state that a server would load.
    served: String,
    checkpoints: Vec<Value>,
    folded_in: Duration,
}

impl VerifyReport {
    fn to_json(&self) -> Value {
        let gap = |(after, before): &(Offset, Offset)| json!({"after": after.0, "before": before.0});
        json!({
            "id": self.identity.id,
            "origin": self.identity.origin.clone().map(format::Forked::from),
            "intact": self.fold.problems.is_empty(),
            "events": self.fold.events,
            "last": self.last.0,
            "oldest": self.fold.oldest.0,
            "gaps": self.fold.gaps.iter().map(gap).collect::<Vec<_>>(),
            "checkpoints": self.checkpoints,
            "objects": self.objects,
            "digest": self.digest.to_string(),
            "servedDigest": self.served,
            "problems": self.fold.problems.iter().take(TOLD_MAX).collect::<Vec<_>>(),
            "seconds": self.folded_in.as_secs_f64(),
        })
    }

    fn to_text(&self) -> String {
        let VerifyReport { fold, last, objects, digest, served, .. } = self;
        let rate = fold.events as f64 / self.folded_in.as_secs_f64().max(1e-9);
        let mut text = fold.remarks();
        text.push_str(&format!(
            "{} events up to {last} give {objects} objects ({rate:.0} events a second)\nfolded {digest}\nserved \
             {served}\n",
            fold.events
        ));
        if fold.problems.is_empty() {
            text.push_str("the log is intact\n");
        }
        text
    }
}

impl Fold {
    /// Compares the folded state with the state that a server would load, and returns the digest of the loaded state.
    fn compare(&mut self, reader: &dyn LogRead, registry: Arc<Registry>, folded: Digest) -> Result<String> {
        // Memory may suffice for only one state of a large log, so the folded state is dropped first.
        self.state = State::new(registry.clone());
        let served = match load(reader, registry) {
            Ok(served) => served,
            // The fault is reported after the problems of the log, which usually cause the fault.
            Err(fault) => {
                self.problems.push(format!("no server can load it: {fault}"));
                return Ok("nothing".to_owned());
            }
        };
        let digest = Digest::of(&served);
        if digest != folded {
            each(reader, Offset::ZERO, |record| {
                Ok(replay(&mut self.state, record).map(|_| ControlFlow::Continue(()))?)
            })?;
            self.problems.extend(differences(&self.state, &served, TOLD_MAX));
        }
        Ok(digest.to_string())
    }

    /// Checks one record against all earlier records, and applies it to the state.
    fn take(&mut self, record: &Record) -> Result<()> {
        let offset = record.offset();
        if offset != self.state.offset.next() {
            let before = self.state.offset;
            self.gaps.push((before, offset));
            if before >= self.told_of {
                self.problems.push(format!("events {} to {} are missing", before.next(), offset.0 - 1));
            }
        }
        if Operation::try_from(record.operation).is_err() {
            self.problems.push(format!("event {offset} has operation {}, which is unknown", record.operation));
        }
        serde_json::from_slice::<IgnoredAny>(&record.object).map_err(|error| {
            anyhow!("the object of event {offset} is not JSON, so later events cannot be verified: {error}")
        })?;
        self.events += 1;
        let replaced = replay(&mut self.state, record)
            .map_err(|unknown| anyhow!("{unknown}: verify it with the release that wrote it, or a newer one"))?;
        let newest = replaced.map_or(Offset::ZERO, |entry| entry.offset);
        // If events after that version are missing, the replaced event may be one of the missing events.
        let explained = self.gaps.last().is_some_and(|(_, behind)| *behind > newest);
        if record.replaces != newest.0 && !explained {
            self.problems.push(format!(
                "event {offset} replaces event {} of {}/{}, whose newest was {newest}",
                record.replaces, record.resource, record.key
            ));
        }
        Ok(())
    }

    /// The sentences that the text output adds to the result, such as which events could not be verified.
    fn remarks(&self) -> String {
        let mut text = String::new();
        if self.oldest > Offset::ZERO {
            text.push_str(&format!(
                "old history up to event {} was removed: the log is verified completely after that event, and before it \
                 only for the events that are left\n",
                self.oldest
            ));
        }
        let is_numbered_elsewhere = self.told_of == NUMBERED_ELSEWHERE;
        if is_numbered_elsewhere {
            text.push_str("the events are numbered by etcd's revisions, so numbers are missing in between\n");
        }
        let told = |after: Offset| !is_numbered_elsewhere && after >= self.oldest && after < self.told_of;
        for (after, before) in self.gaps.iter().filter(|(after, _)| told(*after)) {
            let (first, last) = (after.next(), before.0 - 1);
            text.push_str(&format!("events {first} to {last} are missing: `holdfast log repair` left this gap\n"));
        }
        for problem in self.problems.iter().take(TOLD_MAX) {
            text.push_str(&visible::line(problem));
            text.push('\n');
        }
        text
    }
}
