//! Moves the objects of a cluster between data folders and etcd.
//!
//! Start at [`run`]. A [`Source`] is read at one version, in an order that does not change. One thread reads and
//! converts, and another thread writes batches of objects. Each batch writes a [`Note`] of the progress into the
//! target. An interrupted migration continues from the note. A target that has no note and is not empty is refused.

mod from_etcd;
mod from_folder;
mod to_etcd;
mod to_folder;

pub use from_etcd::FromEtcd;
pub use from_folder::FromFolder;
pub use to_etcd::{Storage, ToEtcd};
pub use to_folder::ToFolder;

use crate::client::KeyValue;
use holdfast_core::event::Record;
use holdfast_core::kinds::Kind;
use holdfast_engine::Fault;
use holdfast_storage_rocks::FolderFault;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};

/// The maximum number of objects in a batch.
const BATCH_MAX: usize = 256;
/// The size in bytes at which a batch ends with fewer objects.
const BATCH_BYTES: usize = 4 << 20;

/// The store from which objects are read. No server may write to the store during the migration.
pub trait Source: Sync {
    /// A text that identifies this source, for the note of an interrupted migration.
    fn id(&self) -> String;

    /// The version of the source at which the objects are read.
    fn version(&self) -> u64;

    /// Refuses a source to which a running server writes.
    fn check_unused(&self) -> Result<(), Stopped>;

    /// Makes all later reads return the state at `version`, which an interrupted migration was reading. Fails if that
    /// version is no longer available.
    fn read_at(&mut self, version: u64) -> Result<(), Stopped>;

    /// Visits the objects after the place `after`, or all objects if `after` is empty.
    fn each(&self, after: &str, visit: &mut dyn FnMut(SourceObject) -> Result<(), Stopped>) -> Result<(), Stopped>;

    /// Refuses a source if it was written to while it was read.
    fn check_unchanged(&self) -> Result<(), Stopped>;
}

/// An object that is read from a source.
pub struct SourceObject {
    /// The object's place in the order of the source. If the place is empty, a migration that continues after this
    /// object reads the object again.
    pub place: String,
    /// How much of the source has been read when this object has been read, from 0 to 1.
    pub part: f64,
    /// The object's resource, under which the object is counted.
    pub resource: String,
    pub object: Result<Movable, Unmovable>,
}

/// The reason why an object cannot be moved.
pub type Unmovable = Box<dyn std::error::Error + Send + Sync>;

pub enum Movable {
    /// The newest event of an object in a log, with its value decrypted.
    Event(Record),
    Pair(StoredPair),
}

/// A key of an etcd and its value, as read from a source.
pub struct StoredPair {
    /// The key without the prefix.
    pub below: String,
    pub meaning: Meaning,
    pub found: KeyValue,
}

/// What a key of an etcd contains.
pub enum Meaning {
    /// An object. `kind` is `None` for custom kinds.
    Object { kind: Option<&'static Kind>, resource: String, key: String },
    /// A record that servers derive from objects, with its place in storage.
    Derived(&'static str),
    /// A key that this release cannot interpret, and why.
    Unknown(String),
}

/// The store to which objects are written.
pub trait Destination: Sync {
    /// An object in the form in which this target stores it.
    type Ready: Send;

    /// The name of the target in messages to people.
    fn name(&self) -> String;

    /// The note of an interrupted migration; `None` for an empty target. Other targets are refused.
    fn read_note(&mut self) -> Result<Option<Note>, Stopped>;

    /// Prevents other processes from using the target until [`finish`](Self::finish).
    fn begin(&mut self, note: &Note) -> Result<(), Stopped>;

    /// Converts an object; `None` if the target does not need it.
    fn prepare(&self, object: Movable) -> Result<Option<Prepared<Self::Ready>>, Unmovable>;

    /// Makes a batch durable, together with the note of the progress. The same batch may be written again after a part
    /// or all of it was written.
    fn write(&self, batch: Vec<Self::Ready>, note: &Note) -> Result<(), Stopped>;

    /// Marks the target as complete. Returns the target's newest version.
    fn finish(&mut self) -> Result<u64, Stopped>;
}

pub struct Prepared<R> {
    pub bytes: usize,
    pub ready: R,
}

/// The progress of a migration, which is stored in the target.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Note {
    /// The source's [id](Source::id).
    #[prost(string, tag = "1")]
    pub source: String,
    /// The version at which the source is read.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// The place in the source up to which all objects are in the target.
    #[prost(string, tag = "3")]
    pub after: String,
}

/// The options of a migration.
#[derive(Debug, Clone, Copy, Default)]
pub struct MigrationOptions {
    /// Whether objects are only read and converted, and nothing is written.
    pub is_dry: bool,
    /// Whether objects that cannot be read are skipped.
    pub skips: bool,
}

/// Progress that is reported while a migration runs.
pub enum MigrationProgress<'a> {
    /// The migration continues an interrupted migration.
    GoesOn,
    At {
        objects: u64,
        /// How much of the source has been read, from 0 to 1.
        part: f64,
    },
    /// An object cannot be moved, for this reason.
    Unreadable(&'a Unmovable),
}

#[derive(Debug, Default)]
pub struct Summary {
    /// The number of objects that this run moved, or would move, by resource.
    pub moved: BTreeMap<String, u64>,
    pub unreadable: u64,
    /// The version at which the source was read.
    pub source_version: u64,
    /// The target's newest version; zero if nothing was written.
    pub target_version: u64,
}

impl Summary {
    pub fn objects(&self) -> u64 {
        self.moved.values().sum()
    }
}

/// The reason why a migration stopped.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    #[error(transparent)]
    Log(#[from] Fault),
    #[error(transparent)]
    Folder(#[from] FolderFault),
    #[error("{0}")]
    Refused(String),
    #[error("an object cannot be moved (--dry-run shows all that cannot, --skip-unreadable leaves them out)")]
    Unreadable(#[source] Unmovable),
    /// The writing thread has stopped; its result contains the reason.
    #[error("the thread that writes to the target has stopped")]
    Ended,
}

/// Moves all objects from `source` to the target, or only checks that they can be read.
pub fn run<T: Destination>(
    source: &mut dyn Source,
    target: &mut T,
    how: MigrationOptions,
    tell: &mut dyn FnMut(MigrationProgress<'_>),
) -> Result<Summary, Stopped> {
    let mut note = match target.read_note()? {
        Some(note) if note.source == source.id() => {
            tell(MigrationProgress::GoesOn);
            source.read_at(note.version)?;
            note
        }
        Some(note) => {
            return Err(Stopped::Refused(format!(
                "{} has an unfinished migration from {}, and the source named now is {}: continue with the same \
                 source, or empty the target",
                target.name(),
                note.source,
                source.id()
            )));
        }
        None => Note { source: source.id(), version: source.version(), after: String::new() },
    };
    if !how.is_dry {
        source.check_unused()?;
        target.begin(&note)?;
    }
    let mut summary = Summary { source_version: note.version, ..Summary::default() };
    move_all(&*source, &*target, how, &mut note, &mut summary, tell)?;
    if !how.is_dry {
        source.check_unchanged()?;
        summary.target_version = target.finish()?;
    }
    Ok(summary)
}

fn move_all<T: Destination>(
    source: &dyn Source,
    target: &T,
    how: MigrationOptions,
    note: &mut Note,
    summary: &mut Summary,
    tell: &mut dyn FnMut(MigrationProgress<'_>),
) -> Result<(), Stopped> {
    let after = note.after.clone();
    std::thread::scope(|scope| {
        // The channel has room for one batch, so that one batch is written while the next batch is read.
        let (sender, batches) = sync_channel(1);
        let reading = scope.spawn(move || read(source, target, &after, &sender));
        let mut done = Ok(());
        for batch in batches {
            done = take(batch, target, how, note, summary, tell);
            if done.is_err() {
                break;
            }
        }
        let read = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        done.and(read)
    })
}

/// Objects that are read together and written as one batch.
struct Batch<R> {
    ready: Vec<R>,
    counts: BTreeMap<String, u64>,
    unreadable: Vec<Unmovable>,
    /// The place in the source up to which all objects are in this batch or in earlier batches.
    after: String,
    /// How much of the source has been read at that place, from 0 to 1.
    part: f64,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        Batch { ready: Vec::new(), counts: BTreeMap::new(), unreadable: Vec::new(), after: String::new(), part: 0.0 }
    }
}

fn read<T: Destination>(
    source: &dyn Source,
    target: &T,
    after: &str,
    batches: &SyncSender<Batch<T::Ready>>,
) -> Result<(), Stopped> {
    let (mut batch, mut bytes) = (Batch::default(), 0);
    source.each(after, &mut |found| {
        batch.part = found.part;
        if !found.place.is_empty() {
            batch.after = found.place;
        }
        match found.object.and_then(|object| target.prepare(object)) {
            Ok(Some(prepared)) => {
                bytes += prepared.bytes;
                batch.ready.push(prepared.ready);
                *batch.counts.entry(found.resource).or_default() += 1;
            }
            Ok(None) => {}
            Err(cause) => batch.unreadable.push(cause),
        }
        if batch.ready.len() + batch.unreadable.len() >= BATCH_MAX || bytes >= BATCH_BYTES {
            bytes = 0;
            batches.send(std::mem::take(&mut batch)).map_err(|_| Stopped::Ended)?;
        }
        Ok(())
    })?;
    batches.send(batch).map_err(|_| Stopped::Ended)
}

fn take<T: Destination>(
    batch: Batch<T::Ready>,
    target: &T,
    how: MigrationOptions,
    note: &mut Note,
    summary: &mut Summary,
    tell: &mut dyn FnMut(MigrationProgress<'_>),
) -> Result<(), Stopped> {
    let Batch { ready, counts, unreadable, after, part } = batch;
    for cause in unreadable {
        if !how.is_dry && !how.skips {
            return Err(Stopped::Unreadable(cause));
        }
        summary.unreadable += 1;
        tell(MigrationProgress::Unreadable(&cause));
    }
    if !after.is_empty() {
        note.after = after;
        if !how.is_dry {
            target.write(ready, note)?;
        }
    }
    for (resource, count) in counts {
        *summary.moved.entry(resource).or_default() += count;
    }
    tell(MigrationProgress::At { objects: summary.objects(), part });
    Ok(())
}
