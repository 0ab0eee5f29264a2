//! `holdfast bisect`: finds the event after which a command fails, by halving the versions between two moments.

use crate::at::{Base, command};
use crate::encryption::EncryptionArgs;
use crate::history::diff::{Filters, versions};
use crate::history::{LogView, Report, ReportFormat, by, change_value, shown_time};
use crate::out;
use crate::remote::Source;
use anyhow::{Context, Result, anyhow, bail};
use holdfast_core::event::{Offset, Record};
use holdfast_core::history::render::{Colour, Paint, unified};
use holdfast_core::history::{FieldChange, difference};
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

#[derive(clap::Args)]
pub struct Args {
    /// A moment at which the command succeeds: a version (42), a time (2026-11-21T10:00:00Z) or how long ago (-2h).
    #[arg(long, allow_hyphen_values = true, value_name = "VERSION|TIME")]
    good: String,
    /// A later moment, at which the command fails.
    #[arg(long, allow_hyphen_values = true, value_name = "VERSION|TIME", default_value = "-0s")]
    bad: String,
    #[command(flatten)]
    filters: Filters,
    /// Run the command on forks, so that the command can write. Each fork is a separate cluster with the state that the
    /// cluster of --data-dir had at the moment in question, and is removed after the command.
    #[arg(long, requires = "data_dir")]
    fork: bool,
    /// Show the output of the command.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    shown: ReportFormat,
    /// The command to run. In its environment, KUBECONFIG names the cluster as it was at one version, and
    /// HOLDFAST_VERSION is this version. Exit code 0 means good, 125 means that this version cannot be tested, and any
    /// other code up to 127 means bad.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<()> {
    let ground = Ground::of(args)?;
    let log = args.source.open()?;
    let view = LogView::new(log.as_ref(), Timestamp::now(), false)?;
    let (good, bad) = (view.version(&args.good)?, view.version(&args.bad)?);
    if good >= bad {
        bail!("the good version {good} is not before the bad version {bad}: the good one comes first");
    }
    ground.check(&args.source, good)?;
    let candidates = if args.filters.is_empty() {
        Candidates::All { after: good }
    } else {
        Candidates::Some(versions(&view, good, bad, &args.filters)?)
    };
    let count = candidates.count(bad);
    if count == 0 {
        bail!("no event between version {good} and {bad} is on what the filters leave: try with fewer of them");
    }
    let attempt = |version: Offset, left: Option<u32>| -> Result<Verdict> {
        let verdict = ground.attempt(args, version)?;
        let steps = left.map(|left| format!(", about {left} more to go")).unwrap_or_default();
        out::print_error(&format!("version {version}, {}: {}{steps}", view.time_of(version)?, verdict.word()));
        Ok(verdict)
    };
    if attempt(good, None)? != Verdict::Good {
        bail!("the command does not succeed at the good version {good}: give an earlier one, or see why with -v");
    }
    if attempt(bad, None)? != Verdict::Bad {
        bail!("the command does not fail at the bad version {bad}: give another one, or see why with -v");
    }
    let found = search(count, |place, left| attempt(candidates.version(place), Some(left)))?;
    let suspects: Vec<Offset> = found.map(|place| candidates.version(place)).collect();
    args.shown.write(&FirstBad::new(&view, &suspects)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    Skip,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Skip => "skipped",
        }
    }
}

/// The cluster on which the command runs.
enum Ground {
    /// The server of this kubeconfig context, which shows its past at `/at/VERSION`.
    Past(Box<Base>),
    /// A fork of this data folder.
    Fork(PathBuf, EncryptionArgs),
}

impl Ground {
    fn of(args: &Args) -> Result<Ground> {
        match &args.source.data_dir {
            Some(folder) if args.fork => Ok(Ground::Fork(folder.clone(), args.source.encryption.clone())),
            Some(_) => bail!(
                "a data folder can only be looked at through forks: give --fork, or name its running server with \
                 --kubeconfig"
            ),
            None => Ok(Ground::Past(Box::new(Base::find(&args.source.server)?))),
        }
    }

    fn check(&self, source: &Source, version: Offset) -> Result<()> {
        match self {
            Ground::Past(base) => base.check(&source.server.connect()?, version),
            Ground::Fork(..) => Ok(()),
        }
    }

    fn attempt(&self, args: &Args, version: Offset) -> Result<Verdict> {
        let status = match self {
            Ground::Past(base) => on_past(base, args, version),
            Ground::Fork(folder, encryption) => on_fork(folder, encryption, args, version),
        }?;
        match status.code() {
            Some(0) => Ok(Verdict::Good),
            Some(125) => Ok(Verdict::Skip),
            Some(1..=127) => Ok(Verdict::Bad),
            _ => bail!("the command ended with {status} at version {version}, which is neither good nor bad: stopped"),
        }
    }
}

fn on_past(base: &Base, args: &Args, version: Offset) -> Result<ExitStatus> {
    let kubeconfig = base.file(version)?;
    let mut command = command(&args.command, kubeconfig.path(), version);
    command.stdin(Stdio::null());
    if args.verbose {
        // Standard output is for the report only.
        command.stdout(std::io::stderr());
    } else {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    command.status().with_context(|| format!("run {}", args.command[0].display()))
}

/// Runs the command with `holdfast run`. The messages distinguish failures of `holdfast run` from failures of the
/// command.
fn on_fork(folder: &Path, encryption: &EncryptionArgs, args: &Args, version: Offset) -> Result<ExitStatus> {
    let mut command = Command::new(std::env::current_exe().context("find this program")?);
    command.arg("run").arg("--from").arg(folder).args(["--at", &version.to_string()]).args(encryption.arguments());
    command.arg("--").args(&args.command);
    command.env("HOLDFAST_VERSION", version.to_string()).stdin(Stdio::null());
    let output = command.output().context("run holdfast")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if let Some(why) = errors.lines().find_map(|line| line.strip_prefix("holdfast run: ")) {
        return Err(anyhow!("{why}").context(format!("the fork at version {version}")));
    }
    if args.verbose {
        let mut out = std::io::stderr().lock();
        out.write_all(&output.stdout)?;
        out.write_all(&output.stderr)?;
    }
    Ok(output.status)
}

/// The versions among which the first bad version is searched.
enum Candidates {
    All { after: Offset },
    Some(Vec<Offset>),
}

impl Candidates {
    fn count(&self, bad: Offset) -> usize {
        match self {
            Candidates::All { after } => (bad.0 - after.0) as usize,
            Candidates::Some(versions) => versions.len(),
        }
    }

    fn version(&self, place: usize) -> Offset {
        match self {
            Candidates::All { after } => Offset(after.0 + 1 + place as u64),
            Candidates::Some(versions) => versions[place],
        }
    }
}

/// The range of versions that may be the first bad version. The range has one version, unless versions beside it were
/// skipped. The last of `count` versions is bad, and the version before the first is good. `attempt` receives the
/// number of attempts that are left.
fn search(
    count: usize,
    mut attempt: impl FnMut(usize, u32) -> Result<Verdict>,
) -> Result<std::ops::RangeInclusive<usize>> {
    let (mut first, mut bad) = (0, count - 1);
    let mut skipped = BTreeSet::new();
    while first < bad {
        let middle = first + (bad - first) / 2;
        let near = (first..bad).filter(|place| !skipped.contains(place)).min_by_key(|place| place.abs_diff(middle));
        let Some(place) = near else { break };
        let left = (bad - first).div_ceil(2).checked_ilog2().unwrap_or(0);
        match attempt(place, left)? {
            Verdict::Good => first = place + 1,
            Verdict::Bad => bad = place,
            Verdict::Skip => _ = skipped.insert(place),
        }
    }
    Ok(first..=bad)
}

/// The first bad event, or several events of which one is the first bad event.
struct FirstBad {
    events: Vec<Event>,
}

struct Event {
    title: String,
    what: &'static str,
    record: Record,
    changes: Vec<FieldChange>,
}

impl FirstBad {
    fn new(view: &LogView, suspects: &[Offset]) -> Result<FirstBad> {
        let mut events = Vec::new();
        for version in suspects {
            // A repair may have left a gap at this version, so that there is no change.
            let Some(mut record) = view.event(*version)? else { continue };
            let before = view.before(&record)?;
            let document = view.document(&record)?;
            let shape = view.shape(&record.resource, &document);
            let nothing = json!({});
            let after = if record.is_delete() { &nothing } else { &document };
            let what = match (record.is_delete(), record.replaces) {
                (true, _) => "deleted",
                (false, 0) => "created",
                (false, _) => "changed",
            };
            let changes = difference(shape, before.as_ref().unwrap_or(&nothing), after);
            record.object = Default::default();
            events.push(Event { title: view.title(&record.resource, &record.key), what, record, changes });
        }
        Ok(FirstBad { events })
    }
}

impl Report for FirstBad {
    fn text(&self, paint: Paint) -> String {
        let mut out = match self.events.len() {
            1 => String::new(),
            count => format!("the first bad event is one of these {count}, between which all were skipped:\n"),
        };
        for Event { title, what, record, changes } in &self.events {
            let line = format!(
                "{} {}: {} {what} {title}, {}",
                if self.events.len() == 1 { "the first bad event is" } else { "event" },
                record.offset,
                by(record),
                shown_time(record.time_ms)
            );
            out.push_str(&paint.paint(Colour::Bold, &line));
            out.push('\n');
            let name = |version: u64| if version == 0 { "nothing".to_owned() } else { format!("{title} @ {version}") };
            let new = if record.is_delete() { name(0) } else { name(record.offset) };
            out.push_str(&unified((&name(record.replaces), &new), changes, paint));
        }
        if let [event] = self.events.as_slice() {
            out.push_str(&format!("take it back with: holdfast undo {}\n", event.record.offset));
        }
        out
    }

    fn value(&self) -> Value {
        let event = |event: &Event| {
            let Event { title, what, record, changes } = event;
            let actor = &record.actor;
            json!({"version": record.offset, "time": shown_time(record.time_ms), "user": actor.user,
                "manager": actor.manager, "verb": actor.verb, "requestID": actor.request_id, "object": title,
                "event": what, "changes": changes.iter().map(change_value).collect::<Vec<_>>()})
        };
        json!({"isCertain": self.events.len() == 1, "events": self.events.iter().map(event).collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for the first bad version at a known place, with some versions skipped. Returns the range found and the
    /// number of attempts.
    fn found(count: usize, first_bad: usize, skipped: &[usize]) -> (Vec<usize>, usize) {
        let mut attempts = 0;
        let range = search(count, |place, _| {
            attempts += 1;
            Ok(match (skipped.contains(&place), place < first_bad) {
                (true, _) => Verdict::Skip,
                (false, true) => Verdict::Good,
                (false, false) => Verdict::Bad,
            })
        });
        (range.expect("no attempt fails").collect(), attempts)
    }

    #[test]
    fn the_first_bad_one_is_found_in_few_attempts() {
        for count in 1..=40 {
            for first_bad in 0..count {
                let (places, attempts) = found(count, first_bad, &[]);
                assert_eq!(places, [first_bad], "{count}");
                let most = count.next_power_of_two().ilog2() as usize;
                assert!(attempts <= most, "{attempts} attempts for {first_bad} of {count}");
            }
        }
        let (places, attempts) = found(1_000_000, 123_456, &[]);
        assert_eq!(places, [123_456]);
        assert!(attempts <= 20, "{attempts}");
    }

    #[test]
    fn what_is_skipped_leaves_a_doubt_only_beside_the_first_bad_one() {
        for (skipped, expected) in [
            (&[4][..], &[4, 5][..]),
            (&[2, 3], &[5]),
            (&[5], &[5, 6]),
            (&[4, 5], &[4, 5, 6]),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ] {
            let (places, _) = found(10, 5, skipped);
            assert_eq!(places, expected, "{skipped:?}");
        }
    }
}
