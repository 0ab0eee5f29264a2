//! An etcd whose calls are counted and timed, in metrics with the names that kube-apiserver uses.

use crate::client::{
    Callback, Decided, Etcd, Expected, Fault, Header, KeyRange, Lease, Operation, Range, Ranged, Status, Txn,
};
use crate::client::{RangeContent, Watch};
use bytes::Bytes;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Instant;

/// The group and resource of the kind stored under a key. All other keys share one name, because their number is not
/// bounded.
pub type Named = Box<dyn Fn(&[u8]) -> (String, String) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    operation: &'static str,
    group: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Member {
    storage_cluster_id: String,
}

/// An etcd that passes all calls to `etcd` and measures them.
pub struct Measured {
    etcd: Arc<dyn Etcd>,
    named: Named,
    registry: Registry,
    calls: Calls,
    sizes: Family<Member, Gauge>,
    /// In metrics, members are named by numbers. This many members of other etcds have lower numbers than the members
    /// of this etcd.
    before: usize,
}

/// The metrics of calls to etcd. Clones share them.
#[derive(Clone)]
struct Calls {
    durations: Family<Asked, Histogram>,
    requests: Family<Asked, Counter>,
    errors: Family<Asked, Counter>,
}

impl Calls {
    fn count<T>(&self, asked: &Asked, began: Instant, outcome: &Result<T, Fault>) {
        self.durations.get_or_create(asked).observe(began.elapsed().as_secs_f64());
        self.requests.get_or_create(asked).inc();
        if outcome.is_err() {
            self.errors.get_or_create(asked).inc();
        }
    }
}

impl Measured {
    pub fn new(etcd: Arc<dyn Etcd>, named: Named) -> Measured {
        let buckets = || {
            Histogram::new([
                0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
                20.0, 30.0, 45.0, 60.0,
            ])
        };
        let mut measured = Measured {
            etcd,
            named,
            registry: Registry::default(),
            calls: Calls {
                durations: Family::new_with_constructor(buckets),
                requests: Family::default(),
                errors: Family::default(),
            },
            sizes: Family::default(),
            before: 0,
        };
        let registry = &mut measured.registry;
        let help = "Time from a request to etcd until its answer";
        registry.register("etcd_request_duration_seconds", help, measured.calls.durations.clone());
        registry.register("etcd_requests", "Requests to etcd", measured.calls.requests.clone());
        registry.register("etcd_request_errors", "Requests to etcd that failed", measured.calls.errors.clone());
        let help =
            "Size of the database file of a member, in the order of --etcd-servers and of the overrides' servers";
        registry.register("apiserver_storage_size_bytes", help, measured.sizes.clone());
        measured
    }

    /// Measures another etcd in the same metrics. `before` is the number of members that have lower numbers.
    pub fn beside(&self, etcd: Arc<dyn Etcd>, named: Named, before: usize) -> Measured {
        Measured {
            etcd,
            named,
            registry: Registry::default(),
            calls: self.calls.clone(),
            sizes: self.sizes.clone(),
            before,
        }
    }

    /// The metrics as text, without the final line `# EOF`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode_registry(&mut text, &self.registry);
        text
    }

    /// Requests the size of the database from each member. Called once per `--etcd-db-metric-poll-interval`.
    pub fn measure_sizes(&self) {
        for (nth, (_, status)) in self.etcd.status().into_iter().enumerate() {
            let member = Member { storage_cluster_id: format!("etcd-{}", self.before + nth) };
            match status {
                Ok(status) => {
                    let bytes = i64::try_from(status.db_bytes).unwrap_or(i64::MAX);
                    self.sizes.get_or_create(&member).set(bytes);
                }
                // The size is removed, because an old size would look like the current size.
                Err(_) => drop(self.sizes.remove(&member)),
            }
        }
    }

    fn asked(&self, operation: &'static str, key: &[u8]) -> Asked {
        let (group, resource) = (self.named)(key);
        Asked { operation, group, resource }
    }

    fn asked_range(&self, asked: &Range) -> Asked {
        let operation = match asked.content {
            RangeContent::Count => "count",
            _ if asked.keys.to.is_empty() => "get",
            _ => "list",
        };
        self.asked(operation, &asked.keys.from)
    }

    fn call<T>(&self, asked: Asked, call: impl FnOnce(&dyn Etcd) -> Result<T, Fault>) -> Result<T, Fault> {
        let began = Instant::now();
        let outcome = call(self.etcd.as_ref());
        self.calls.count(&asked, began, &outcome);
        outcome
    }

    /// A transaction is labelled by its first object. The transaction also writes the key with the author, which
    /// belongs to no kind.
    fn asked_of(&self, transaction: &Txn) -> Asked {
        let is_object = |operation: &&Operation| !(self.named)(operation.key()).1.is_empty();
        let first = transaction.operations.iter().find(is_object).or(transaction.operations.first());
        let Some(first) = first else { return self.asked("txn", b"") };
        let is_new = |key: &Bytes| {
            let of = transaction.compares.iter().find(|compare| compare.key == *key);
            of.is_some_and(|compare| compare.is == Expected::ModRevision(0))
        };
        let operation = match first {
            Operation::Delete { .. } => "delete",
            Operation::Put { key, .. } if is_new(key) => "create",
            Operation::Put { .. } => "update",
        };
        self.asked(operation, first.key())
    }
}

impl Etcd for Measured {
    fn range(&self, asked: &Range) -> Result<Ranged, Fault> {
        self.call(self.asked_range(asked), |etcd| etcd.range(asked))
    }

    fn range_later(&self, asked: &Range, done: Callback<Ranged>) {
        let (labels, calls, began) = (self.asked_range(asked), self.calls.clone(), Instant::now());
        let counted = move |outcome| {
            calls.count(&labels, began, &outcome);
            done(outcome);
        };
        self.etcd.range_later(asked, Box::new(counted));
    }

    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>> {
        let asked: Vec<Asked> = transactions.iter().map(|transaction| self.asked_of(transaction)).collect();
        let began = Instant::now();
        let outcomes = self.etcd.transact(transactions);
        asked.iter().zip(&outcomes).for_each(|(asked, outcome)| self.calls.count(asked, began, outcome));
        outcomes
    }

    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, Fault> {
        self.etcd.watch(keys, from_revision)
    }

    fn compact(&self, revision: u64) -> Result<Header, Fault> {
        self.call(self.asked("compact", b""), |etcd| etcd.compact(revision))
    }

    fn grant(&self, seconds: u64) -> Result<Lease, Fault> {
        self.call(self.asked("grant", b""), |etcd| etcd.grant(seconds))
    }

    fn status(&self) -> Vec<(String, Result<Status, Fault>)> {
        self.etcd.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Compare;
    use crate::model::{CallKind, Fate, Model};

    fn named(key: &[u8]) -> (String, String) {
        let resource = if key.starts_with(b"/registry/pods/") { "pods" } else { "" };
        (String::new(), resource.to_owned())
    }

    fn write(operation: Operation, replaces: u64) -> Txn {
        let compare = Compare { key: operation.key().clone(), is: Expected::ModRevision(replaces) };
        let key: Bytes = [b"/registry.holdfast/who", &operation.key()[..]].concat().into();
        let who = Operation::Put { key, value: Bytes::new(), lease: 0 };
        Txn { compares: vec![compare], operations: vec![who, operation], otherwise: None }
    }

    #[test]
    fn requests_are_counted_as_kube_apiserver_counts_them() {
        let key = Bytes::from_static(b"/registry/pods/a/p");
        let put = || Operation::Put { key: key.clone(), value: Bytes::new(), lease: 0 };
        let client = Model::default()
            .client(1, Box::new(|call| if call == CallKind::Grant { Fate::Unreachable } else { Fate::Answered }));
        let measured = Measured::new(Arc::new(client), Box::new(named));
        let decided =
            measured.transact(vec![write(put(), 0), write(put(), 2), write(Operation::Delete { key: key.clone() }, 3)]);
        assert!(decided.iter().all(|decided| decided.as_ref().is_ok_and(|decided| decided.held)));
        measured.range(&Range::of(KeyRange::one(key.clone()))).expect("a get");
        measured.range(&Range::of(KeyRange::between("/registry/pods/", "/registry/pods0"))).expect("a list");
        measured
            .range(&Range::of(KeyRange::between("/\u{1b}/", "/\u{1b}0")).only(RangeContent::Count))
            .expect("a count");
        measured.compact(3).expect("a compaction");
        measured.grant(1).expect_err("no lease");
        measured.measure_sizes();
        let text = measured.text();
        for (operation, resource) in [
            ("create", "pods"),
            ("update", "pods"),
            ("delete", "pods"),
            ("get", "pods"),
            ("list", "pods"),
            ("count", ""),
            ("compact", ""),
        ] {
            let labels = format!("{{operation=\"{operation}\",group=\"\",resource=\"{resource}\"}} 1\n");
            assert!(text.contains(&format!("etcd_requests_total{labels}")), "{operation}: {text}");
            assert!(text.contains(&format!("etcd_request_duration_seconds_count{labels}")), "{operation}: {text}");
        }
        let failed = "etcd_request_errors_total{operation=\"grant\",group=\"\",resource=\"\"} 1\n";
        assert!(text.contains(failed) && text.matches("etcd_request_errors_total").count() == 1, "{text}");
        assert!(text.contains("apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} 0\n"), "{text}");
    }
}
