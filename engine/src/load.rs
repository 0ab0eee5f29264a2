//! Loads the state of a log when the log is opened.

use crate::log::{Fault, LogRead};
use crate::planted::{Bug, planted};
use holdfast_core::apply::hold;
use holdfast_core::event::Record;
use holdfast_core::kinds::Registry;
use holdfast_core::kinds::custom::is_storage;
use holdfast_core::object::Packer;
use holdfast_core::state::{Change, State};
use std::sync::Arc;

/// The number of bytes of objects that the reading thread sends to the decoding thread at once.
const TOGETHER_BYTES: usize = 1 << 20;
/// The maximum number of batches of `TOGETHER_BYTES` that wait for the decoding thread.
const AHEAD: usize = 4;

/// The decoded records of a log, in the order in which they were read.
#[derive(Default)]
struct Loaded {
    packer: Packer,
    changes: Vec<Change>,
    /// Records of custom resources. They are decoded after the CustomResourceDefinitions, which may be read later.
    custom: Vec<Record>,
}

impl Loaded {
    fn take_in(&mut self, registry: &Registry, record: Record) -> Result<(), Fault> {
        match Change::from_record(registry, &record) {
            Ok(change) => {
                // Each object is packed as soon as it is decoded, so that the unpacked objects are never all in memory
                // at once.
                self.packer.pack(change.entry.body());
                self.changes.push(change);
            }
            Err(_) if is_storage(&record.resource) => self.custom.push(record),
            Err(unknown) => return Err(Fault::Unreadable { what: unknown.to_string() }),
        }
        Ok(())
    }
}

/// Reads the log on this thread and decodes its records on another thread. Reading and decoding each take about half of
/// the time of a start.
fn read_all(log: &dyn LogRead, registry: &Registry) -> Result<Loaded, Fault> {
    let (records, received) = crossbeam::channel::bounded::<Vec<Record>>(AHEAD);
    std::thread::scope(|scope| {
        let understanding = scope.spawn(move || {
            let mut loaded = Loaded::default();
            for record in received.into_iter().flatten() {
                loaded.take_in(registry, record)?;
            }
            Ok(loaded)
        });
        let (mut together, mut bytes) = (Vec::new(), 0);
        let read = log.current(&mut |record| {
            bytes += record.object.len();
            together.push(record);
            if bytes >= TOGETHER_BYTES {
                bytes = 0;
                // If a record could not be decoded, the receiver no longer exists, and the fault is returned below.
                let _ = records.send(std::mem::take(&mut together));
            }
            Ok(())
        });
        let _ = records.send(together);
        drop(records);
        let loaded = understanding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        read.and(loaded)
    })
}

/// Folds the newest record of every object in the log into a state.
pub fn load(log: &dyn LogRead, registry: Arc<Registry>) -> Result<State, Fault> {
    let Loaded { mut changes, mut custom, packer: _ } = read_all(log, &registry)?;
    changes.sort_unstable_by_key(|change| change.offset);
    if planted(Bug::LoadMissesLast) {
        changes.pop();
    }
    let mut state = State::new(registry);
    for change in &changes {
        hold(&mut state, change);
    }
    let mut orphans = 0;
    custom.sort_unstable_by_key(|record| record.offset);
    for record in &custom {
        match Change::from_record(&state.registry, record) {
            Ok(change) => {
                hold(&mut state, &change);
            }
            Err(_) => {
                orphans += 1;
                state.hold_orphan(record);
            }
        }
    }
    if orphans > 0 {
        tracing::warn!(
            orphans,
            "the log has custom resources without a CustomResourceDefinition: they are kept, and served once it exists"
        );
    }
    state.offset = log.last()?;
    Ok(state)
}
