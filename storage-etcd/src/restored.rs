//! Handles an etcd that was restored from a backup, so that its revisions or members no longer match the local log.
//!
//! Such an etcd is refused, unless the operator accepts it. Then a new epoch begins. Every object that differs from the
//! local log is written again in etcd with the value that it has in etcd, at revisions above all revisions of the log.
//! So versions do not decrease, no two events share a version, and other servers receive the restored objects as
//! ordinary events.

use crate::client::{self, Compare, Etcd, Expected, KeyRange, KeyValue, Operation, Range, Txn};
use crate::key_space::KeySpace;
use crate::local::{Local, Source};
use crate::planted::{Bug, planted};
use crate::raise::{RAISE_MAX, raise};
use crate::shared::{Placed, Shared, fault, now_ms, wrong_cluster};
use bytes::Bytes;
use holdfast_core::etcd::renumbered;
use holdfast_core::event::{Actor, Offset, Record};
use holdfast_engine::{Fault, LogRead};
use std::collections::HashSet;

/// The number of the log's last events that are compared with etcd.
const EVENTS_COMPARED: u64 = 16;
/// The number of objects that are read, and written again, at a time.
const PAGE: u64 = 500;
/// The verb of events that take over a restored etcd.
const VERB: &str = "restored";

/// The identity of an etcd, and its revision when it was read.
pub struct Standing {
    pub cluster: u64,
    pub revision: u64,
    /// The name of the epoch, which changes each time that a restored etcd is accepted; empty in the first epoch.
    pub epoch: String,
    /// The revision of the epoch's key; zero if there is none.
    epoch_revision: u64,
}

impl Standing {
    pub fn of(etcd: &dyn Etcd, places: &KeySpace) -> Result<Standing, client::Fault> {
        let answer = etcd.range(&Range::of(KeyRange::one(places.epoch())).limit(1))?;
        let found = answer.found.first();
        Ok(Standing {
            cluster: answer.header.cluster,
            revision: answer.header.revision,
            epoch: found.map(|found| String::from_utf8_lossy(&found.value).into_owned()).unwrap_or_default(),
            epoch_revision: found.map_or(0, |found| found.mod_revision),
        })
    }
}

/// The sign that this cannot be the etcd whose events the local log has, if there is one.
pub fn sign(shared: &Shared, source: &Source, now: &Standing) -> Result<Option<String>, Fault> {
    let through = known_through(shared.local.as_ref(), source)?;
    if source.cluster == 0 || planted(Bug::RestoreIgnored) {
        return Ok(None);
    }
    if now.cluster != source.cluster {
        return Ok(Some(wrong_cluster(now.cluster, source.cluster)));
    }
    if now.revision < through {
        return Ok(Some(format!(
            "etcd is at revision {}, and the data folder has its events up to {through}: etcd was restored from a backup",
            now.revision
        )));
    }
    if now.epoch != source.epoch {
        return Ok(Some(
            "etcd was restored from a backup since this server followed it, and another server has accepted it".into(),
        ));
    }
    // A restored etcd may already have grown beyond the log's revision. Then its copies of the last events differ from
    // the log's copies. After a change of `--etcd-servers-overrides` the copies differ in any case, so nothing is
    // compared.
    if source.kinds != shared.places.kinds.to_string() {
        return Ok(None);
    }
    let first = shared.local.last()?.0.saturating_sub(EVENTS_COMPARED).max(source.same_kinds_after);
    for record in shared.local.scan(None, Offset(first), EVENTS_COMPARED as usize)? {
        if !shared.places.kinds.have(&record.resource) {
            continue;
        }
        let key = shared.places.keys.at(&record.resource, &record.key);
        let found = shared.etcd.range(&Range::of(KeyRange::one(key.clone())).limit(1)).map_err(fault)?.found.pop();
        let Some(found) = found.filter(|found| found.mod_revision < record.offset) else { continue };
        // If a transaction wrote several objects, each object has its own version in the local log.
        let told = shared.placed(&found.key).and_then(|placed| shared.read(&placed, &found).ok());
        let kept = shared.log.read(record.offset()).ok().flatten();
        let as_there = kept.and_then(|kept| renumbered(&kept.key, &kept.object, Offset(found.mod_revision)).ok());
        if record.is_delete() || told.is_some_and(|(told, _)| as_there.is_some_and(|kept| kept != told)) {
            return Ok(Some(format!("etcd has an older {key} than the data folder: etcd was restored from a backup")));
        }
    }
    Ok(None)
}

/// The last revision up to which the local log has events.
pub fn known_through(local: &dyn Local, source: &Source) -> Result<u64, Fault> {
    Ok(source.through.max(local.last()?.0))
}

/// Takes over a restored etcd: writes objects that differ from the local log again, at revisions above the last
/// revision of the log. The caller then compares all objects. Returns the revisions of these writes.
///
/// The take-over can be interrupted at any point; the next start of the server begins the take-over again.
pub fn accept(shared: &Shared, source: &mut Source, now: &Standing) -> Result<HashSet<u64>, Fault> {
    let (etcd, local) = (shared.etcd.as_ref(), &shared.local);
    let through = known_through(local.as_ref(), source)?;
    let epoch = new_epoch(shared, source, now)?;
    let tick = shared.places.tick(&shared.server);
    let raised = raise(etcd, &tick, now.revision, through).map_err(fault)?;
    let Some(raised) = raised else {
        let what = format!(
            "etcd is at revision {}, and this server has seen revision {through}: that is more than {RAISE_MAX} behind. \
             Restore it with `etcdutl snapshot restore --bump-revision`, or use another data folder",
            now.revision
        );
        return Err(Fault::Unreadable { what });
    };
    tracing::warn!(
        revision = now.revision,
        known_through = through,
        raised,
        "accepted an etcd that was restored from a backup: this server's objects are set to etcd's state"
    );
    let (written, kept) = write_again(shared, through)?;
    let mut known = 0u64;
    local.current(&mut |_| {
        known += 1;
        Ok(())
    })?;
    // Each object that etcd no longer has needs a revision for its deletion. No other event may have this revision.
    let gone = known.saturating_sub(kept);
    let newest = Standing::of(etcd, &shared.places).map_err(fault)?.revision;
    raise(etcd, &tick, newest, newest + gone).map_err(fault)?;
    (source.cluster, source.epoch) = (now.cluster, epoch);
    Ok(written)
}

/// The actor of the events that the take-over of a restored etcd causes.
pub fn actor() -> Actor {
    Actor { manager: "etcd".into(), verb: VERB.into(), ..Actor::default() }
}

/// The epoch that another server has begun, or a new epoch if no server has begun one.
fn new_epoch(shared: &Shared, source: &Source, now: &Standing) -> Result<String, Fault> {
    if now.epoch != source.epoch {
        return Ok(now.epoch.clone());
    }
    let key = shared.places.epoch();
    let epoch = format!("{}/{}", shared.server, now.revision);
    let txn = Txn {
        compares: vec![Compare { key: key.clone(), is: Expected::ModRevision(now.epoch_revision) }],
        operations: vec![Operation::Put { key, value: epoch.clone().into(), lease: 0 }],
        otherwise: None,
    };
    let answer = shared.etcd.transact(vec![txn]).pop();
    let decided = answer.unwrap_or_else(|| Err(client::Fault::Unknown("there is no answer".into()))).map_err(fault)?;
    match decided.held {
        true => Ok(epoch),
        false => Ok(Standing::of(shared.etcd.as_ref(), &shared.places).map_err(fault)?.epoch),
    }
}

/// Writes objects again in etcd if they differ from the local log and their version is not above `through`. Returns the
/// revisions of the writes, and the number of the log's objects that etcd has.
fn write_again(shared: &Shared, through: u64) -> Result<(HashSet<u64>, u64), Fault> {
    let (mut written, mut kept) = (HashSet::new(), 0);
    let (mut keys, mut revision) = (shared.places.objects(), 0);
    loop {
        let page = shared.etcd.range(&Range::of(keys.clone()).at(revision).limit(PAGE)).map_err(fault)?;
        shared.check(&page.header)?;
        revision = revision.max(page.header.revision);
        let mut txns = Vec::new();
        for found in &page.found {
            let Some(placed) = shared.placed(&found.key).filter(|placed| !placed.is_stray) else { continue };
            let known = shared.local.version_at(&placed.resource, &placed.key, Offset(through))?;
            kept += u64::from(known.is_some());
            if found.mod_revision <= through && !is_same(shared, &placed, found, known) {
                txns.push(again(shared, placed, found));
            }
        }
        for answer in shared.etcd.transact(txns) {
            match answer {
                // If another server wrote the object first, the revision of its write is above `through` as well.
                Ok(decided) if decided.held => drop(written.insert(decided.header.revision)),
                // The object was written in the meantime, or its lease has expired and the object no longer exists.
                Ok(_) | Err(client::Fault::NoLease(_)) => {}
                Err(why) => return Err(fault(why)),
            }
        }
        let Some(last) = page.found.last().filter(|_| page.more) else { return Ok((written, kept)) };
        keys.from = [&last.key[..], &[0]].concat().into();
    }
}

/// Whether the local log has this object in the same state as etcd. Events of two epochs may share a version, so the
/// values are compared as well.
fn is_same(shared: &Shared, placed: &Placed, found: &KeyValue, known: Option<Offset>) -> bool {
    // An unreadable value is not rewritten, unless the log has a readable value of the object.
    let Ok((told, _)) = shared.read(placed, found) else { return known.is_none() };
    let Some(known) = known.filter(|known| known.0 == found.mod_revision) else { return false };
    let kept = shared.log.read(known).ok().flatten();
    kept.is_some_and(|kept| kept.object == told && kept.key == placed.key && kept.resource == placed.resource)
}

fn again(shared: &Shared, placed: Placed, found: &KeyValue) -> Txn {
    let Placed { resource, key, .. } = placed;
    let who = Record { time_ms: now_ms(), resource, key, actor: actor(), ..Record::default() };
    let put = |key: Bytes, value: Bytes, lease| Operation::Put { key, value, lease };
    Txn {
        compares: vec![Compare { key: found.key.clone(), is: Expected::ModRevision(found.mod_revision) }],
        operations: vec![
            put(shared.places.who(&shared.server), who.encode_record().into(), 0),
            put(found.key.clone(), found.value.clone(), found.lease),
        ],
        otherwise: None,
    }
}
