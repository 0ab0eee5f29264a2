//! Finds out which transactions a store supports.

use crate::client::{Compare, Etcd, Expected, Fault, Operation, Transactions, Txn};
use crate::key_space::{KeySpace, Kinds};
use bytes::Bytes;

impl Transactions {
    /// Sends a transaction of two keys whose comparisons cannot hold, so it writes nothing.
    pub fn of(etcd: &dyn Etcd, prefix: &str) -> Result<Transactions, Fault> {
        let places = KeySpace::new(prefix, Kinds::All, Transactions::Full);
        let keys = [places.secret(), places.claims()];
        let never = |key: &Bytes| Compare { key: key.clone(), is: Expected::ModRevision(i64::MAX.unsigned_abs()) };
        let put = |key: &Bytes| Operation::Put { key: key.clone(), value: Bytes::new(), lease: 0 };
        let asked = Txn {
            compares: keys.iter().map(never).collect(),
            operations: keys.iter().map(put).collect(),
            otherwise: None,
        };
        match etcd.transact(vec![asked]).pop() {
            Some(Ok(_)) => Ok(Transactions::Full),
            Some(Err(Fault::Refused(_))) => Ok(Transactions::Plain),
            // Some stores refuse the transaction with an unspecific error, which only its text distinguishes.
            Some(Err(Fault::Unknown(why))) if ["unsupported", "not supported"].iter().any(|no| why.contains(no)) => {
                Ok(Transactions::Plain)
            }
            Some(Err(fault)) => Err(fault),
            None => Err(Fault::Unreachable("there is no answer".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_asked_which_transactions_it_takes_without_writing_anything() {
        let model = crate::model::Model::default();
        assert_eq!(Transactions::of(&model.plain_client(1), "/registry"), Ok(Transactions::Full));
        model.be_plain();
        assert_eq!(Transactions::of(&model.plain_client(1), "/registry"), Ok(Transactions::Plain));
        assert!(model.events().is_empty());
        let gone = crate::model::Model::default().client(1, Box::new(|_| crate::model::Fate::Unreachable));
        assert!(Transactions::of(&gone, "/registry").is_err());
    }
}
