//! Converts a decision to transactions of one object each. The order of the transactions is such that no harm is done
//! if the server stops after any of them.
//!
//! All keys of a transaction in etcd have one revision, and clients of Kubernetes expect one event per version. So no
//! transaction writes two objects, as in kube-apiserver. Each transaction compares every key on which the decision
//! depends.

use crate::client::{Compare, Expected, KeyRange as Range, Operation, Txn};
use crate::planted::{Bug, planted};
use bytes::Bytes;
use holdfast_core::etcd::Keys;
use holdfast_core::event::Record;
use holdfast_engine::log::Decision;
use std::collections::BTreeMap;

/// The maximum number of comparisons, and the maximum number of operations, of an etcd transaction (`--max-txn-ops`).
pub const OPERATIONS_MAX: usize = 128;

/// Writes one key if the key has this revision; zero means that the key must not exist. Kubernetes' own transactions
/// have this form. If the comparison fails, the transaction returns the value of the key, except for a creation.
pub fn plain(replaces: u64, write: Operation) -> Txn {
    let key = write.key().clone();
    let otherwise = (replaces > 0).then(|| Range::one(key.clone()));
    Txn { compares: vec![Compare { key, is: Expected::ModRevision(replaces) }], operations: vec![write], otherwise }
}

/// Why a decision cannot be written as transactions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unplannable {
    #[error("the write requires two different versions of {key}: {one} and {other}")]
    Contradiction { key: String, one: u64, other: u64 },
    #[error("the write needs {count} comparisons, and a transaction of etcd may have {OPERATIONS_MAX}")]
    TooLarge { count: usize },
}

/// The order in which the records of a decision are written, as a list of positions.
///
/// The object of the decision is written last, with all its records one after another. Resources that are reserved for
/// this object, such as addresses, ports and quota, are written before it, so that no other object gets them. If the
/// object is never written, the resources are released later.
pub fn order(records: &[Record]) -> Vec<usize> {
    let is_subject = |nth: &usize| {
        let (record, subject) = (&records[*nth], &records[0]);
        (&record.resource, &record.key) == (&subject.resource, &subject.key)
    };
    let (subject, besides): (Vec<usize>, Vec<usize>) = (0..records.len()).partition(is_subject);
    besides.into_iter().chain(subject).collect()
}

/// An object with all keys that are written in the same transaction.
pub struct ObjectWrite<'a> {
    pub record: &'a Record,
    /// The revision of the object that this write replaces; zero for a creation.
    pub replaces: u64,
    /// The new value of the object; `None` for a deletion.
    pub value: Option<Bytes>,
    /// The id of the object's lease; zero if the object does not expire.
    pub lease: u64,
    /// The record of the author: a key outside the prefix, and its value.
    pub who: (Bytes, Bytes),
    /// The fence key, with the revision that it must still have.
    pub fence: (Bytes, u64),
    /// The claims key, with the revision that it must still have; `None` for a decision without claims.
    pub claims: Option<(Bytes, u64)>,
}

impl ObjectWrite<'_> {
    /// One transaction of etcd, which writes nothing if a comparison fails. `written` returns whether the decision's
    /// record of an object (its resource and key) is already written.
    pub fn transaction(
        self,
        decision: &Decision,
        keys: &Keys,
        written: impl Fn(&str, &str) -> bool,
    ) -> Result<Txn, Unplannable> {
        let mut compares: BTreeMap<String, u64> = BTreeMap::new();
        let key = keys.at(&self.record.resource, &self.record.key);
        compares.insert(key.clone(), self.replaces);
        for expected in decision.expects.iter().filter(|_| !planted(Bug::ExpectationsNotCompared)) {
            if written(&expected.resource, &expected.key) {
                continue;
            }
            let other = expected.version.map_or(0, |version| version.0);
            let counted_on = keys.at(&expected.resource, &expected.key);
            if let Some(one) = compares.insert(counted_on.clone(), other).filter(|one| *one != other) {
                return Err(Unplannable::Contradiction { key: counted_on, one, other });
            }
        }
        let count = compares.len() + 2;
        if count > OPERATIONS_MAX {
            return Err(Unplannable::TooLarge { count });
        }
        let compare = |(key, revision): (String, u64)| Compare { key: key.into(), is: Expected::ModRevision(revision) };
        if planted(Bug::VersionNotCompared) {
            compares.remove(&key);
        }
        let still = |(key, revision): (Bytes, u64)| Compare { key, is: Expected::ModRevision(revision) };
        let write = self.write(key.into());
        let fence = Some(self.fence).filter(|_| !planted(Bug::FenceNotCompared));
        let claimed = self.claims.as_ref().map(|(key, _)| key.clone());
        let put = |(key, value): (Bytes, Bytes)| Operation::Put { key, value, lease: 0 };
        Ok(Txn {
            compares: compares.into_iter().map(compare).chain(fence.map(still)).chain(self.claims.map(still)).collect(),
            // The author record is written before the object, so that a watch has received it when the object arrives.
            operations: claimed.map(|key| put((key, Bytes::new()))).into_iter().chain([put(self.who), write]).collect(),
            otherwise: None,
        })
    }

    /// The transaction for a store with plain transactions: it writes only the object, and compares only the object's
    /// revision.
    pub fn plain(&self, keys: &Keys) -> Txn {
        plain(self.replaces, self.write(keys.at(&self.record.resource, &self.record.key).into()))
    }

    fn write(&self, key: Bytes) -> Operation {
        match &self.value {
            Some(value) => Operation::Put { key, value: value.clone(), lease: self.lease },
            None => Operation::Delete { key },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{self, Offset};
    use holdfast_engine::log;

    fn record(resource: &str, key: &str, operation: event::Operation) -> Record {
        let (resource, key) = (resource.to_owned(), key.to_owned());
        Record { resource, key, operation: operation as i32, ..Record::default() }
    }

    fn plan(replaces: u64, expects: Vec<log::Expected>) -> Result<Txn, Unplannable> {
        let record = record("pods", "a/p", event::Operation::Put);
        let decision = Decision { records: 0..1, expects, claims: Vec::new(), had: Vec::new() };
        let value = Some(Bytes::from_static(b"pod"));
        let (who, fence) = (("who".into(), "jane".into()), ("fence".into(), 3));
        let step = ObjectWrite { record: &record, replaces, value, lease: 0, who, fence, claims: None };
        step.transaction(&decision, &Keys::new("/registry"), |resource, _| resource == "written")
    }

    fn expected(resource: &str, key: &str, version: Option<u64>) -> log::Expected {
        log::Expected { resource: resource.into(), key: key.into(), version: version.map(Offset) }
    }

    #[test]
    fn what_an_object_is_given_is_taken_before_it_comes() {
        use event::Operation::{Delete, Put};
        let records = [
            record("pods", "a/p", Put),
            record("pods", "a/p", Delete),
            record("resourcequotas", "a/q", Put),
            record("pods", "a/other", Put),
        ];
        assert_eq!(order(&records), [2, 3, 0, 1]);
        assert_eq!(order(&records[..1]), [0]);
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn a_transaction_compares_what_the_decision_counts_on_and_writes_one_object_and_who_did_it() {
        let txn = plan(41, vec![expected("namespaces", "a", Some(7)), expected("written", "x", Some(9))]).unwrap();
        let compares: Vec<(&[u8], Expected)> = txn.compares.iter().map(|compare| (&*compare.key, compare.is)).collect();
        let is = Expected::ModRevision;
        let expected: [(&[u8], Expected); 3] =
            [(b"/registry/namespaces/a", is(7)), (b"/registry/pods/a/p", is(41)), (b"fence", is(3))];
        assert_eq!(compares, expected);
        let keys: Vec<&[u8]> = txn.operations.iter().map(|operation| &**operation.key()).collect();
        assert_eq!(keys, [&b"who"[..], b"/registry/pods/a/p"]);
    }

    #[test]
    fn a_plain_transaction_is_one_of_kubernetes_four() {
        let (put, key) = (Operation::Put { key: "k".into(), value: "v".into(), lease: 7 }, Bytes::from("k"));
        let delete = Operation::Delete { key: key.clone() };
        let is = |revision| vec![Compare { key: key.clone(), is: Expected::ModRevision(revision) }];
        let read = || Some(Range::one("k"));
        for (replaces, write, otherwise) in [(0, &put, None), (4, &put, read()), (4, &delete, read())] {
            let expected = Txn { compares: is(replaces), operations: vec![write.clone()], otherwise };
            assert_eq!(plain(replaces, write.clone()), expected);
        }
    }

    #[test]
    fn what_fits_into_no_transaction_is_refused() {
        let torn = plan(5, vec![expected("pods", "a/p", Some(6))]);
        assert_eq!(torn, Err(Unplannable::Contradiction { key: "/registry/pods/a/p".into(), one: 5, other: 6 }));
        assert_eq!(plan(5, vec![expected("pods", "a/p", Some(5))]).unwrap().compares.len(), 2);
        let many = |count: usize| (0..count).map(|nth| expected("configmaps", &format!("a/{nth}"), Some(9))).collect();
        assert!(plan(0, many(OPERATIONS_MAX - 3)).is_ok());
        assert_eq!(plan(0, many(OPERATIONS_MAX - 2)), Err(Unplannable::TooLarge { count: OPERATIONS_MAX + 1 }));
    }
}
