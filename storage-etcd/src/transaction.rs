//! What one decision becomes: a transaction that compares all that it counts on, and writes its objects and who did it.

use crate::key::Prefix;
use holdfast_core::event::Record;
use holdfast_engine::log::Decision;
use std::collections::{BTreeMap, BTreeSet};

/// How many comparisons, and how many operations, etcd takes in one transaction (`--max-txn-ops`).
pub const OPERATIONS_MAX: usize = 128;

/// One transaction of etcd: all of it, or nothing where one comparison fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// In the order of their keys.
    pub compares: Vec<Compare>,
    pub operations: Vec<Operation>,
}

/// That the newest write of a key has this revision; zero where there is to be no such key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    pub key: String,
    pub mod_revision: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    Put { key: String, value: Vec<u8> },
    Delete { key: String },
}

/// Why a decision fits into no transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unplannable {
    /// Who resumes a watch at the version of the one would never see the other.
    #[error("it writes {one} and {other}, two objects of {resource}, and one transaction gives both the same version")]
    SameResource { resource: String, one: String, other: String },
    #[error("it counts on {one} and on {other} as the version of {key}")]
    Contradiction { key: String, one: u64, other: u64 },
    /// What keeps claims across servers is yet to come.
    #[error("it claims {claim}, and no key of etcd holds claims")]
    Claim { claim: String },
    #[error("it takes {count} comparisons or operations, and etcd takes {OPERATIONS_MAX}")]
    TooLarge { count: usize },
}

impl Transaction {
    /// Of a decision whose records these are, each with the value that is stored for its object (of a deletion it is not
    /// looked at) and with who wrote it, where that is to be kept beside it.
    pub fn of(
        decision: &Decision,
        records: &[Record],
        prefix: &Prefix,
        mut value: impl FnMut(&Record) -> (Vec<u8>, Option<Vec<u8>>),
    ) -> Result<Transaction, Unplannable> {
        if let Some((_, claim)) = decision.claims.first() {
            return Err(Unplannable::Claim { claim: claim.to_string() });
        }
        let mut compares = BTreeMap::new();
        let mut count_on = |key: String, revision: u64| match compares.insert(key.clone(), revision) {
            Some(other) if other != revision => Err(Unplannable::Contradiction { key, one: other, other: revision }),
            _ => Ok(()),
        };
        let mut written: BTreeMap<&str, &str> = BTreeMap::new();
        let mut operations = Vec::with_capacity(2 * records.len());
        for record in records {
            if let Some(one) = written.insert(&record.resource, &record.key) {
                let (resource, one, other) = (record.resource.clone(), one.to_owned(), record.key.clone());
                return Err(Unplannable::SameResource { resource, one, other });
            }
            let key = prefix.key(&record.resource, &record.key);
            count_on(key.clone(), record.replaces)?;
            let (value, who) = value(record);
            operations.extend(who.map(|value| Operation::Put { key: Prefix::who(&key), value }));
            operations.push(match record.is_delete() {
                true => Operation::Delete { key },
                false => Operation::Put { key, value },
            });
        }
        for expected in &decision.expects {
            let version = expected.version.map_or(0, |version| version.0);
            count_on(prefix.key(&expected.resource, &expected.key), version)?;
        }
        let count = compares.len().max(operations.len());
        if count > OPERATIONS_MAX {
            return Err(Unplannable::TooLarge { count });
        }
        let compares = compares.into_iter().map(|(key, mod_revision)| Compare { key, mod_revision }).collect();
        Ok(Transaction { compares, operations })
    }

    /// Whether a store takes it that knows no transactions but Kubernetes' own: one comparison and one write, of one key.
    pub fn is_plain(&self) -> bool {
        let keys: BTreeSet<&str> = self.operations.iter().map(Operation::key).collect();
        self.operations.len() == 1 && self.compares.len() == 1 && keys.contains(self.compares[0].key.as_str())
    }
}

impl Operation {
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{self, Offset};
    use holdfast_engine::log::Expected;

    fn record(resource: &str, key: &str, replaces: u64, operation: event::Operation) -> Record {
        let (resource, key) = (resource.to_owned(), key.to_owned());
        Record { resource, key, replaces, operation: operation as i32, ..Record::default() }
    }

    fn put(resource: &str, key: &str, replaces: u64) -> Record {
        record(resource, key, replaces, event::Operation::Put)
    }

    fn expected(resource: &str, key: &str, version: Option<u64>) -> Expected {
        Expected { resource: resource.into(), key: key.into(), version: version.map(Offset) }
    }

    fn plan(records: &[Record], expects: Vec<Expected>, tells_who: bool) -> Result<Transaction, Unplannable> {
        let decision = Decision { records: 0..records.len(), expects, claims: Vec::new() };
        let value = |record: &Record| (record.key.clone().into_bytes(), tells_who.then(|| b"jane".to_vec()));
        Transaction::of(&decision, records, &Prefix::new("/registry").unwrap(), value)
    }

    fn compares(transaction: &Transaction) -> Vec<(&str, u64)> {
        transaction.compares.iter().map(|compare| (compare.key.as_str(), compare.mod_revision)).collect()
    }

    #[test]
    fn a_decision_compares_what_it_counts_on_and_writes_what_it_decides() {
        let records = [put("services/specs", "a/s", 0), put("ipaddresses", "10.0.0.1", 0)];
        let transaction = plan(&records, vec![expected("namespaces", "a", Some(7))], true).unwrap();
        assert_eq!(
            compares(&transaction),
            [("/registry/ipaddresses/10.0.0.1", 0), ("/registry/namespaces/a", 7), ("/registry/services/specs/a/s", 0)]
        );
        let keys: Vec<&str> = transaction.operations.iter().map(Operation::key).collect();
        assert_eq!(
            keys,
            [
                "/holdfast/who/registry/services/specs/a/s",
                "/registry/services/specs/a/s",
                "/holdfast/who/registry/ipaddresses/10.0.0.1",
                "/registry/ipaddresses/10.0.0.1"
            ]
        );
        assert!(!transaction.is_plain());
    }

    #[test]
    fn updates_and_deletions_of_one_key_are_kubernetes_own_transactions() {
        let updated = plan(&[put("pods", "a/p", 41)], Vec::new(), false).unwrap();
        assert_eq!(compares(&updated), [("/registry/pods/a/p", 41)]);
        let key = "/registry/pods/a/p".to_owned();
        assert_eq!(updated.operations, [Operation::Put { key: key.clone(), value: b"a/p".to_vec() }]);
        let gone = plan(&[record("pods", "a/p", 41, event::Operation::Delete)], Vec::new(), false).unwrap();
        assert_eq!(gone.operations, [Operation::Delete { key }]);
        assert!(updated.is_plain() && gone.is_plain());
        // What a plain store cannot compare, and where it cannot keep who wrote it.
        assert!(
            !plan(&[put("pods", "a/p", 41)], vec![expected("namespaces", "a", Some(7))], false).unwrap().is_plain()
        );
        assert!(!plan(&[put("pods", "a/p", 41)], Vec::new(), true).unwrap().is_plain());
    }

    #[test]
    fn what_fits_into_no_transaction_is_refused() {
        let two = plan(&[put("pods", "a/p", 0), put("pods", "a/q", 0)], Vec::new(), false);
        assert!(matches!(two, Err(Unplannable::SameResource { .. })), "{two:?}");
        let torn = plan(&[put("pods", "a/p", 5)], vec![expected("pods", "a/p", Some(6))], false);
        assert_eq!(torn, Err(Unplannable::Contradiction { key: "/registry/pods/a/p".into(), one: 5, other: 6 }));
        let same = plan(&[put("pods", "a/p", 5)], vec![expected("pods", "a/p", Some(5))], false).unwrap();
        assert_eq!(same.compares.len(), 1);
        let claims = Decision { records: 0..1, expects: Vec::new(), claims: vec![(0, "ip/10.0.0.1".into())] };
        let prefix = Prefix::new("/registry").unwrap();
        let claimed = Transaction::of(&claims, &[put("services/specs", "a/s", 0)], &prefix, |_| (Vec::new(), None));
        assert_eq!(claimed, Err(Unplannable::Claim { claim: "ip/10.0.0.1".into() }));
        let many = |count: usize| (1..count).map(|nth| expected("configmaps", &format!("a/{nth}"), Some(9))).collect();
        assert!(plan(&[put("pods", "a/p", 0)], many(OPERATIONS_MAX), false).is_ok());
        let large = plan(&[put("pods", "a/p", 0)], many(OPERATIONS_MAX + 1), false);
        assert_eq!(large, Err(Unplannable::TooLarge { count: OPERATIONS_MAX + 1 }));
    }
}
