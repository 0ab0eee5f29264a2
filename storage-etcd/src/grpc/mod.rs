//! An etcd cluster over gRPC.
//!
//! Calls are sent to one member until it fails, then to the next member. Each watch has a separate connection, so that
//! a large read does not delay events.

mod connect;
mod faults;
mod watch;

use crate::client::{Callback, Compare, Decided, Etcd, Expected, Fault, Header, KeyRange, KeyValue, Lease, Operation};
use crate::client::{Range, RangeContent, Ranged, Status, Txn, Watch};
use crate::wire;
pub use connect::{Address, BadAddress};
use faults::{fault_of_read, fault_of_write};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesOrdered;
use holdfast_grpc::unary;
use prost::Message;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tonic::transport::Channel;

/// The time limit of a call. etcd itself gives up a request after five seconds and two election timeouts, by default
/// seven seconds.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The time limit of a small call. When the limit has passed, the call is sent to another member, because the first
/// member may be cut off, or may have lost the write when the leader failed. The limit is short because a server's
/// state does not advance while its writes have no answer.
const SMALL_CALL_MAX: Duration = Duration::from_secs(2);
/// The maximum size of an answer, as in kube-apiserver. An answer contains as many keys as requested, and their values
/// may be large.
const ANSWER_BYTES_MAX: usize = i32::MAX as usize;

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

/// A cluster, whose members are called over gRPC.
pub struct Cluster {
    /// The async runtime that carries out the calls; `None` only while the cluster is dropped.
    runtime: Option<Runtime>,
    members: Arc<Members>,
}

struct Members {
    members: Vec<Member>,
    /// The index of the member to which the next call is sent first.
    asked: AtomicUsize,
}

/// The time limits of a call: for each member, and for the last member that can be tried.
#[derive(Clone, Copy)]
struct CallTimeouts {
    each: Duration,
    last: Duration,
}

const FULL: CallTimeouts = CallTimeouts { each: CALL_MAX, last: CALL_MAX };
/// Time limits for reads of one key. The last member has more time, because a slow answer is better than none.
const SMALL_READ: CallTimeouts = CallTimeouts { each: SMALL_CALL_MAX, last: CALL_MAX };
/// Time limits for transactions with a comparison. If an answer is missing, a read shows whether a transaction was
/// applied.
const SMALL_WRITE: CallTimeouts = CallTimeouts { each: SMALL_CALL_MAX, last: SMALL_CALL_MAX };

struct Member {
    address: Address,
    calls: Channel,
    watches: Channel,
}

impl Cluster {
    /// Connects at the first call. `https` addresses need a TLS configuration.
    pub fn new(addresses: Vec<Address>, tls: Option<Arc<rustls::ClientConfig>>) -> std::io::Result<Cluster> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("etcd").enable_all().build()?;
        let guard = runtime.enter();
        let member = |address: Address| Member {
            calls: connect::channel(&address, tls.clone()),
            watches: connect::channel(&address, tls.clone()),
            address,
        };
        let members = Members { members: addresses.into_iter().map(member).collect(), asked: AtomicUsize::new(0) };
        drop(guard);
        Ok(Cluster { runtime: Some(runtime), members: Arc::new(members) })
    }

    /// Blocks the calling thread until the work is done. The calling thread may belong to another runtime.
    fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let work = async move {
            // The caller may have stopped waiting, and then the answer is dropped.
            let _ = answer.send(work.await);
        };
        self.runtime().spawn(work);
        answered.recv().unwrap_or_else(|gone| Err(Fault::Unknown(gone.to_string())))
    }

    fn runtime(&self) -> &Runtime {
        match &self.runtime {
            Some(runtime) => runtime,
            None => unreachable!("the runtime goes with the cluster"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // This call does not block, so it works within an async runtime as well.
            runtime.shutdown_background();
        }
    }
}

impl Members {
    /// The members, in the order in which a call tries them.
    fn in_turn(&self) -> impl Iterator<Item = &Member> {
        let first = self.asked.load(Ordering::Relaxed);
        (0..self.members.len()).map(move |nth| &self.members[(first + nth) % self.members.len()])
    }

    fn range(self: Arc<Self>, asked: &Range) -> impl Future<Output = Result<Ranged, Fault>> + Send + use<> {
        let asked = wire::RangeRequest {
            limit: signed(asked.limit),
            revision: signed(asked.revision),
            keys_only: asked.content == RangeContent::WithoutValues,
            count_only: asked.content == RangeContent::Count,
            ..range_of(&asked.keys)
        };
        let patience = if asked.range_end.is_empty() { SMALL_READ } else { FULL };
        async move {
            let answer: wire::RangeResponse = self.call(RANGE, asked, patience, fault_of_read).await?;
            Ok(Ranged {
                header: header(answer.header),
                found: answer.kvs.into_iter().map(key_value).collect(),
                more: answer.more,
                count: unsigned(answer.count),
            })
        }
    }

    /// Makes later calls try another member before this member.
    fn leave(&self, member: &Member) {
        let at = self.asked.load(Ordering::Relaxed);
        if std::ptr::eq(&raw const self.members[at % self.members.len()], member) {
            let next = (at + 1) % self.members.len();
            // If another call has already switched to the next member, this exchange fails, which is intended.
            let _ = self.asked.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Tries members until one answers. If a member may have carried out the request, no other member is tried.
    async fn call<Q, A>(
        &self,
        path: &'static str,
        asked: Q,
        patience: CallTimeouts,
        fault: fn(&tonic::Status) -> Fault,
    ) -> Result<A, Fault>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut last = Fault::Unreachable("it has no addresses".into());
        for (nth, member) in self.in_turn().enumerate() {
            let most = if nth + 1 < self.members.len() { patience.each } else { patience.last };
            let called = match timeout(most, unary(&member.calls, path, asked.clone(), ANSWER_BYTES_MAX)).await {
                Ok(called) => called.map_err(|status| fault(&status)),
                Err(_) => {
                    let seconds = most.as_secs();
                    let late = tonic::Status::deadline_exceeded(format!("there was no answer in {seconds} s"));
                    Err(fault(&late))
                }
            };
            match called {
                Err(Fault::Unreachable(why)) => {
                    self.leave(member);
                    last = Fault::Unreachable(format!("{}: {why}", member.address));
                }
                Err(Fault::Unknown(why)) => {
                    self.leave(member);
                    return Err(Fault::Unknown(format!("{}: {why}", member.address)));
                }
                called => return called,
            }
        }
        Err(last)
    }
}

impl Etcd for Cluster {
    fn range(&self, asked: &Range) -> Result<Ranged, Fault> {
        self.wait(self.members.clone().range(asked))
    }

    fn range_later(&self, asked: &Range, done: Callback<Ranged>) {
        let answer = self.members.clone().range(asked);
        self.runtime().spawn(async move { done(answer.await) });
    }

    fn transact(&self, transactions: Vec<Txn>) -> Vec<Result<Decided, Fault>> {
        let (members, count) = (self.members.clone(), transactions.len());
        let call = move |asked: Txn| {
            let members = members.clone();
            let patience = if asked.compares.is_empty() { FULL } else { SMALL_WRITE };
            async move { members.call(TXN, transaction(asked), patience, fault_of_write).await }
        };
        // Unlike `join_all`, this polls only the calls that were woken.
        let calls: FuturesOrdered<_> = transactions.into_iter().map(call).collect();
        let all = async move { Ok(calls.collect::<Vec<_>>().await) };
        match self.wait(all) {
            Ok(answers) => answers.into_iter().map(|answer| answer.map(decided)).collect(),
            Err(fault) => vec![Err(fault); count],
        }
    }

    fn watch(&self, keys: &KeyRange, from_revision: u64) -> Result<Box<dyn Watch>, Fault> {
        let asked = wire::WatchCreateRequest {
            key: keys.from.clone(),
            range_end: keys.to.clone(),
            start_revision: signed(from_revision),
            progress_notify: true,
            prev_kv: true,
        };
        let members = self.members.clone();
        let watch = self.wait(async move {
            let mut last = Fault::Unreachable("it has no addresses".into());
            for member in members.in_turn() {
                match timeout(CALL_MAX, watch::open(&member.watches, asked.clone())).await {
                    Ok(Ok(watch)) => return Ok(watch),
                    Ok(Err(fault)) => last = fault,
                    Err(_) => last = Fault::Unreachable(format!("{}: it opened no watch", member.address)),
                }
                members.leave(member);
            }
            Err(last)
        })?;
        Ok(Box::new(watch))
    }

    fn compact(&self, revision: u64) -> Result<Header, Fault> {
        let members = self.members.clone();
        let asked = wire::CompactionRequest { revision: signed(revision) };
        let answer: wire::HeaderResponse =
            self.wait(async move { members.call(COMPACT, asked, FULL, fault_of_write).await })?;
        Ok(header(answer.header))
    }

    fn grant(&self, seconds: u64) -> Result<Lease, Fault> {
        let members = self.members.clone();
        let asked = wire::LeaseGrantRequest { ttl: signed(seconds) };
        let answer: wire::LeaseGrantResponse =
            self.wait(async move { members.call(GRANT, asked, FULL, fault_of_write).await })?;
        match answer.error.is_empty() {
            true => {
                let (id, seconds) = (unsigned(answer.id), unsigned(answer.ttl));
                Ok(Lease { header: header(answer.header), id, seconds })
            }
            false => Err(Fault::Refused(answer.error)),
        }
    }

    fn status(&self) -> Vec<(String, Result<Status, Fault>)> {
        let members = self.members.clone();
        let asked = self.wait(async move {
            let ask = |member| async move {
                let channel = Member::calls(member);
                let asking = unary(&channel, STATUS, wire::StatusRequest {}, ANSWER_BYTES_MAX);
                let called = timeout(CALL_MAX, asking).await;
                let late = |_| tonic::Status::deadline_exceeded("there was no answer");
                let answer = called.map_err(late).and_then(|called| called).map_err(|status| fault_of_read(&status));
                (member.address.to_string(), answer.map(status))
            };
            Ok(join_all(members.members.iter().map(ask)).await)
        });
        asked.unwrap_or_default()
    }
}

impl Member {
    fn calls(&self) -> Channel {
        self.calls.clone()
    }
}

fn range_of(keys: &KeyRange) -> wire::RangeRequest {
    wire::RangeRequest { key: keys.from.clone(), range_end: keys.to.clone(), ..wire::RangeRequest::default() }
}

fn transaction(asked: Txn) -> wire::TxnRequest {
    let operation = |request| wire::RequestOp { request: Some(request) };
    wire::TxnRequest {
        compare: asked.compares.into_iter().map(compare).collect(),
        success: asked.operations.into_iter().map(|asked| operation(write(asked))).collect(),
        failure: asked.otherwise.iter().map(|keys| operation(wire::Request::Range(range_of(keys)))).collect(),
    }
}

fn compare(Compare { key, is }: Compare) -> wire::Compare {
    let (target, value) = match is {
        Expected::ModRevision(revision) => (wire::CompareTarget::Mod, wire::TargetUnion::ModRevision(signed(revision))),
        Expected::Version(version) => (wire::CompareTarget::Version, wire::TargetUnion::Version(signed(version))),
    };
    wire::Compare { result: 0, target: target.into(), key, target_union: Some(value) }
}

fn write(operation: Operation) -> wire::Request {
    match operation {
        Operation::Put { key, value, lease } => {
            wire::Request::Put(wire::PutRequest { key, value, lease: lease.cast_signed() })
        }
        Operation::Delete { key } => wire::Request::DeleteRange(wire::DeleteRangeRequest { key }),
    }
}

fn decided(answer: wire::TxnResponse) -> Decided {
    let found = answer.responses.into_iter().filter_map(|response| response.response_range);
    Decided {
        header: header(answer.header),
        held: answer.succeeded,
        found: found.flat_map(|range| range.kvs).map(key_value).collect(),
    }
}

fn status(answer: wire::StatusResponse) -> Status {
    Status {
        header: header(answer.header),
        version: answer.version,
        db_bytes: unsigned(answer.db_size),
        db_bytes_in_use: unsigned(answer.db_size_in_use),
        leader: answer.leader,
        is_learner: answer.is_learner,
        errors: answer.errors,
    }
}

fn header(header: Option<wire::ResponseHeader>) -> Header {
    let header = header.unwrap_or_default();
    let revision = unsigned(header.revision);
    Header { cluster: header.cluster_id, member: header.member_id, revision, term: header.raft_term }
}

fn key_value(found: wire::KeyValue) -> KeyValue {
    KeyValue {
        key: found.key,
        value: found.value,
        mod_revision: unsigned(found.mod_revision),
        create_revision: unsigned(found.create_revision),
        version: unsigned(found.version),
        lease: found.lease.cast_unsigned(),
    }
}

/// Converts a number to the signed type of etcd's protocol, in which these numbers are never negative.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
