//! Compaction as in kube-apiserver: in each round one of the servers on an etcd compacts up to the revision that etcd
//! had in the previous round.
//!
//! The servers coordinate by one key. Its value is the next revision to compact; the server that first raises the key's
//! version in a round compacts.

use crate::client::{Compare, Etcd, Expected, Fault, KeyRange, Operation, Txn};
use bytes::Bytes;

/// The key by which the servers coordinate. It is outside of all prefixes, so all clusters on one etcd share it.
pub const COMPACT_REV_KEY: &str = "compact_rev_key";

/// What one server remembers between two rounds. It is lost when the process ends.
#[derive(Debug, Default)]
pub struct Compactor {
    /// The version of the key when this server last read the key.
    time: u64,
    /// etcd's revision when this server last read the key.
    revision: u64,
    compacted: u64,
}

/// The result of a round of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Another server has raised the key's version first in this round.
    Overtaken,
    /// This is the first round in this store, so there is nothing to compact yet.
    Began,
    /// Versions replaced before this revision are discarded.
    Compacted(u64),
}

impl Compactor {
    /// The revision up to which the store is compacted, or is being compacted.
    pub fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Runs a round. Called once per interval, first after one interval.
    pub fn round(&mut self, etcd: &dyn Etcd) -> Result<Round, Fault> {
        let key = Bytes::from_static(COMPACT_REV_KEY.as_bytes());
        let mut decided = etcd.transact(vec![Txn {
            compares: vec![Compare { key: key.clone(), is: Expected::Version(self.time) }],
            operations: vec![Operation::Put { key: key.clone(), value: self.revision.to_string().into(), lease: 0 }],
            otherwise: Some(KeyRange::one(key)),
        }]);
        let decided = decided.pop().unwrap_or_else(|| Err(Fault::Unknown("there is no answer".into())))?;
        let known = self.revision;
        self.revision = decided.header.revision;
        if !decided.held {
            let Some(found) = decided.found.first() else { return Ok(Round::Overtaken) };
            self.time = found.version;
            // A value that is not a number was not written by an API server.
            let told = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
            self.compacted = self.compacted.max(told.unwrap_or(0));
            return Ok(Round::Overtaken);
        }
        self.time += 1;
        if known == 0 {
            return Ok(Round::Began);
        }
        match etcd.compact(known) {
            // Another server keeps less history and has compacted further.
            Ok(_) | Err(Fault::Compacted(_)) => {
                self.compacted = self.compacted.max(known);
                Ok(Round::Compacted(known))
            }
            Err(fault) => Err(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Range;
    use crate::model::{CallKind, Fate, Model, ModelClient};

    fn write(client: &ModelClient, value: u64) {
        let put = Operation::Put { key: Bytes::from_static(b"/a"), value: value.to_string().into(), lease: 0 };
        client.transact(vec![Txn { operations: vec![put], ..Txn::default() }]).remove(0).expect("a write");
    }

    fn shown(client: &ModelClient) -> String {
        let found = client.range(&Range::of(KeyRange::one(COMPACT_REV_KEY))).expect("a read").found;
        found.first().map_or_else(String::new, |found| String::from_utf8_lossy(&found.value).into_owned())
    }

    #[test]
    fn a_new_store_is_compacted_in_the_second_round_to_where_it_was_in_the_first() {
        let client = Model::default().plain_client(1);
        let mut compactor = Compactor::default();
        write(&client, 1);
        assert_eq!(compactor.round(&client), Ok(Round::Began));
        assert_eq!(shown(&client), "0");
        write(&client, 2);
        assert_eq!(compactor.round(&client), Ok(Round::Compacted(3)));
        assert_eq!(shown(&client), "3");
        assert_eq!(client.range(&Range::of(KeyRange::one("/a")).at(2)), Err(Fault::Compacted(3)));
        assert_eq!(compactor.round(&client), Ok(Round::Compacted(5)));
        assert_eq!(compactor.compacted(), 5);
    }

    #[test]
    fn of_many_servers_one_compacts_each_round() {
        let client = Model::default().plain_client(1);
        let mut servers: Vec<Compactor> = (0..3).map(|_| Compactor::default()).collect();
        let mut compacted = Vec::new();
        for nth in 0..12 {
            write(&client, nth);
            let mut rounds = Vec::new();
            for server in &mut servers {
                rounds.push(server.round(&client).expect("a round"));
            }
            let first = rounds.iter().filter(|round| **round != Round::Overtaken).count();
            assert_eq!(first, 1, "round {nth}: {rounds:?}");
            compacted.extend(rounds.into_iter().filter_map(|round| match round {
                Round::Compacted(revision) => Some(revision),
                _ => None,
            }));
            servers.rotate_left(1);
        }
        assert!(compacted.len() > 4 && compacted.is_sorted_by(|a, b| a < b), "{compacted:?}");
    }

    #[test]
    fn who_comes_late_learns_from_the_key_how_far_it_is() {
        let client = Model::default().plain_client(1);
        let (mut old, mut new) = (Compactor::default(), Compactor::default());
        for nth in 0..3 {
            write(&client, nth);
            old.round(&client).expect("a round");
        }
        assert_eq!(new.round(&client), Ok(Round::Overtaken));
        assert_eq!(new.compacted(), old.compacted());
    }

    #[test]
    fn a_round_that_fails_leaves_all_as_it_was() {
        let model = Model::default();
        let client = model.plain_client(1);
        let mut compactor = Compactor::default();
        write(&client, 1);
        compactor.round(&client).expect("a round");
        let gone = model.client(1, Box::new(|_| Fate::Unreachable));
        assert!(compactor.round(&gone).is_err());
        write(&client, 2);
        assert_eq!(compactor.round(&client), Ok(Round::Compacted(3)));
        // One compaction fails. One round later the server must compact again.
        let unlucky = model
            .client(1, Box::new(|call| if call == CallKind::Compact { Fate::Unreachable } else { Fate::Answered }));
        write(&client, 3);
        assert!(compactor.round(&unlucky).is_err());
        assert_eq!(compactor.compacted(), 3);
        write(&client, 4);
        assert_eq!(compactor.round(&client), Ok(Round::Compacted(7)));
    }

    #[test]
    fn a_strange_value_is_nothing() {
        let client = Model::default().plain_client(1);
        let put = Operation::Put { key: COMPACT_REV_KEY.into(), value: "no number".into(), lease: 0 };
        client.transact(vec![Txn { operations: vec![put], ..Txn::default() }]).remove(0).expect("a write");
        let mut compactor = Compactor::default();
        assert_eq!(compactor.round(&client), Ok(Round::Overtaken));
        assert_eq!(compactor.compacted(), 0);
        assert!(matches!(compactor.round(&client), Ok(Round::Compacted(2))));
    }
}
