//! Deletes an object whose value cannot be read. The value is not read, and the object is deleted only if it still has
//! the value that could not be read.

use crate::client::{self, Transactions};
use crate::log::EtcdLog;
use crate::shared::fault;
use crate::transaction::ObjectWrite;
use holdfast_core::event::{Actor, Operation, Record};
use holdfast_engine::Fault;
use holdfast_engine::log::{Decision, Unreadable};

impl EtcdLog {
    /// See [`holdfast_engine::Log::delete_unreadable`].
    pub(crate) fn delete_unread(&self, object: &Unreadable, actor: Actor, time_ms: i64) -> Result<bool, Fault> {
        self.shared.check_epoch()?;
        // The key may belong to no object, so it is looked up under the name with which it was recorded.
        let is_noted = self.shared.unread.of(&object.resource, &object.key, 1).first() == Some(object);
        if !is_noted || self.shared.places.keys.at(&object.resource, &object.key) != object.place {
            return Ok(false);
        }
        let record = Record {
            time_ms,
            resource: object.resource.clone(),
            key: object.key.clone(),
            replaces: object.version.0,
            operation: Operation::Delete as i32,
            actor,
            ..Record::default()
        };
        let txn = match (self.step(&record, object.version.0), self.shared.transactions) {
            (step, Transactions::Plain) => step.plain(&self.shared.places.keys),
            (step, Transactions::Full) => step
                .transaction(&nothing_else(), &self.shared.places.keys, |_, _| false)
                .map_err(|why| Fault::Unreadable { what: why.to_string() })?,
        };
        let answer = self.shared.etcd.transact(vec![txn.clone()]).pop();
        let answer = match answer.unwrap_or_else(|| Err(client::Fault::Unknown("there is no answer".into()))) {
            Err(client::Fault::NoSpace(why)) => self.without_space(&txn, why),
            answer => answer,
        };
        let decided = answer.map_err(fault)?;
        self.shared.check(&decided.header)?;
        self.wait_through(decided.header.revision)?;
        Ok(decided.held)
    }

    /// The deletion of the object of a record, without its value.
    fn step<'r>(&self, record: &'r Record, replaces: u64) -> ObjectWrite<'r> {
        let (who, fence) = self.author_and_fence(record);
        ObjectWrite { record, replaces, value: None, lease: 0, who, fence, claims: None }
    }
}

/// A decision without expectations, claims or other conditions.
fn nothing_else() -> Decision {
    Decision { records: 0..1, expects: Vec::new(), claims: Vec::new(), had: Vec::new() }
}
