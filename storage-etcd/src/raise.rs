//! Raises etcd's revision, so that no client sees a version decrease.

use crate::client::{Etcd, Fault, Operation, Txn};
use bytes::Bytes;

/// The maximum number of revisions by which etcd's revision is raised. The number is limited because each revision
/// needs a write. The command `etcdutl snapshot restore --bump-revision` can raise the revision by more, in one step.
pub const RAISE_MAX: u64 = 1_000_000;
/// The maximum number of writes that are in progress at once.
const AT_ONCE: u64 = 256;

/// Raises etcd's revision above another revision by writes of a key that no server reads. Returns the new revision, or
/// `None` if that would take too many writes.
pub fn raise(etcd: &dyn Etcd, key: &Bytes, revision: u64, above: u64) -> Result<Option<u64>, Fault> {
    if above.saturating_sub(revision) > RAISE_MAX {
        return Ok(None);
    }
    let mut revision = revision;
    while revision <= above {
        let put = || Operation::Put { key: key.clone(), value: Bytes::new(), lease: 0 };
        let count = AT_ONCE.min(above - revision + 1);
        let txns = (0..count).map(|_| Txn { operations: vec![put()], ..Txn::default() }).collect();
        let answers = etcd.transact(txns);
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(decided) => revision = revision.max(decided.header.revision),
                Err(why) => failed = Some(why),
            }
        }
        if let Some(why) = failed {
            return Err(why);
        }
    }
    Ok(Some(revision))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{KeyRange, Range, Transactions};
    use crate::key_space::{KeySpace, Kinds};
    use crate::model::Model;

    #[test]
    fn the_revision_is_raised_above_another_and_no_further() {
        let client = Model::default().plain_client(1);
        let key = KeySpace::new("/registry", Kinds::All, Transactions::Full).tick("t");
        let now = || client.range(&Range::of(KeyRange::one("x"))).expect("a read").header.revision;
        let before = now();
        assert_eq!(raise(&client, &key, before, 1000), Ok(Some(1001)));
        assert_eq!(now(), 1001);
        assert_eq!(raise(&client, &key, 1001, 1000), Ok(Some(1001)));
        assert_eq!(raise(&client, &key, 1001, 1001), Ok(Some(1002)));
        assert_eq!(raise(&client, &key, 1002, 1003 + RAISE_MAX), Ok(None));
        assert_eq!(now(), 1002);
    }
}
