//! Values that the first server of a cluster writes and all other servers read, such as the secret that they share.

use crate::client::{Compare, Etcd, Expected, Fault, KeyRange, Operation, Range, Transactions, Txn};
use crate::key_space::{KeySpace, Kinds};
use bytes::Bytes;

/// The maximum number of attempts to write a value or to read the value of another server.
const TRIES_MAX: usize = 10;

/// A value that all servers of a cluster share. The first server writes it.
pub struct Cluster<'e> {
    etcd: &'e dyn Etcd,
    key: Bytes,
}

impl<'e> Cluster<'e> {
    /// `prefix` is the prefix of the cluster's keys: the option `--etcd-prefix`.
    pub fn new(etcd: &'e dyn Etcd, prefix: &str) -> Cluster<'e> {
        Cluster { etcd, key: KeySpace::new(prefix, Kinds::All, Transactions::Full).cluster() }
    }

    pub fn key(&self) -> &str {
        // The key is made from a string, so it is valid UTF-8.
        std::str::from_utf8(&self.key).unwrap_or_default()
    }

    /// The shared value; `None` if no server has written it.
    pub fn read(&self) -> Result<Option<Bytes>, Fault> {
        read(self.etcd, &self.key)
    }

    /// The shared value. Writes `own` if no server has written a value yet.
    pub fn agree(&self, own: Bytes) -> Result<Bytes, Fault> {
        agree(self.etcd, &self.key, own)
    }
}

/// The value of a key. Writes `own` if the key does not exist. If several servers write at once, one write succeeds,
/// and all servers read the value of that write.
pub(crate) fn agree(etcd: &dyn Etcd, key: &Bytes, own: Bytes) -> Result<Bytes, Fault> {
    for _ in 0..TRIES_MAX {
        if let Some(found) = read(etcd, key)? {
            return Ok(found);
        }
        let txn = Txn {
            compares: vec![Compare { key: key.clone(), is: Expected::ModRevision(0) }],
            operations: vec![Operation::Put { key: key.clone(), value: own.clone(), lease: 0 }],
            otherwise: None,
        };
        // The key is read afterwards, whether or not the write succeeded.
        for answer in etcd.transact(vec![txn]) {
            if let Err(other @ (Fault::NoSpace(_) | Fault::Refused(_))) = answer {
                return Err(other);
            }
        }
    }
    Err(Fault::Unreachable(format!("{} can be neither read nor written", String::from_utf8_lossy(key))))
}

fn read(etcd: &dyn Etcd, key: &Bytes) -> Result<Option<Bytes>, Fault> {
    Ok(etcd.range(&Range::of(KeyRange::one(key.clone())))?.found.pop().map(|found| found.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallKind, Fate, Model};

    #[test]
    fn the_first_value_counts_whoever_comes_later() {
        let model = Model::default();
        let (one, other) = (model.plain_client(1), model.plain_client(2));
        let (one, other) = (Cluster::new(&one, "/registry"), Cluster::new(&other, "/registry"));
        assert_eq!(one.key(), "/registry.holdfast/cluster");
        assert_eq!(one.read().expect("a read"), None);
        assert_eq!(one.agree("first".into()).expect("agreed"), "first");
        assert_eq!(other.agree("second".into()).expect("agreed"), "first");
        assert_eq!(other.read().expect("a read"), Some("first".into()));
    }

    #[test]
    fn lost_answers_do_not_make_two_values() {
        for fate in [Fate::DoneUnanswered, Fate::LostUnanswered, Fate::Unreachable] {
            let model = Model::default();
            let mut first = true;
            let chance = move |call| match call {
                CallKind::Transact if std::mem::take(&mut first) => fate,
                _ => Fate::Answered,
            };
            let (one, other) = (model.client(1, Box::new(chance)), model.plain_client(2));
            let told = Cluster::new(&one, "/registry").agree("first".into()).expect("agreed");
            assert_eq!(
                (told, Cluster::new(&other, "/registry").agree("second".into())),
                ("first".into(), Ok("first".into())),
                "{fate:?}"
            );
        }
    }
}
