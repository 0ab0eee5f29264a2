//! Converts etcd's errors to faults.

use crate::client::Fault;
use std::error::Error;
use tonic::{Code, Status};

/// Errors that prove that the write is not in the raft log and will never be.
const NOT_PROPOSED: [&str; 6] = [
    "etcdserver: no leader",
    "etcdserver: leader changed",
    "etcdserver: not leader",
    "raft proposal dropped",
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
];

/// The fault of a failed read, which can be repeated safely.
pub fn fault_of_read(status: &Status) -> Fault {
    match fault_of_write(status) {
        Fault::Unknown(why) => Fault::Unreachable(why),
        fault => fault,
    }
}

/// The fault of a write. Unless the error proves the opposite, the write may have been carried out.
pub fn fault_of_write(status: &Status) -> Fault {
    let said = status.message();
    if said.contains("database space exceeded") {
        return Fault::NoSpace(said.to_owned());
    }
    if said.contains("has been compacted") {
        return Fault::Compacted(0);
    }
    if said.contains("requested lease not found") {
        return Fault::NoLease(said.to_owned());
    }
    if NOT_PROPOSED.iter().any(|words| said.contains(words)) || was_not_connected(status) {
        return Fault::Unreachable(words(status));
    }
    match status.code() {
        Code::Unavailable
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unknown
        | Code::Internal
        | Code::Aborted
        | Code::DataLoss
        | Code::Ok => Fault::Unknown(words(status)),
        _ => Fault::Refused(said.to_owned()),
    }
}

/// Whether the connection could not be made at all.
fn was_not_connected(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The message with its innermost cause, which is the most specific cause.
fn words(status: &Status) -> String {
    let mut said = status.message().to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        cause = error.source();
        if cause.is_none() && !said.contains(&error.to_string()) {
            said = format!("{said}: {error}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_done_is_told_from_what_was_not() {
        for said in ["etcdserver: no leader", "etcdserver: leader changed", "etcdserver: too many requests"] {
            let fault = fault_of_write(&Status::unavailable(said));
            assert_eq!(fault, Fault::Unreachable(said.into()));
        }
        for said in ["etcdserver: request timed out", "etcdserver: server stopped", "broken pipe"] {
            assert_eq!(fault_of_write(&Status::unavailable(said)), Fault::Unknown(said.into()));
            assert_eq!(fault_of_read(&Status::unavailable(said)), Fault::Unreachable(said.into()));
        }
        let full = Status::resource_exhausted("etcdserver: mvcc: database space exceeded");
        assert!(matches!(fault_of_write(&full), Fault::NoSpace(_)));
        let old = Status::out_of_range("etcdserver: mvcc: required revision has been compacted");
        assert_eq!(fault_of_read(&old), Fault::Compacted(0));
        let large = Status::invalid_argument("etcdserver: request is too large");
        assert!(matches!(fault_of_write(&large), Fault::Refused(_)));
        assert!(matches!(
            fault_of_write(&Status::not_found("etcdserver: requested lease not found")),
            Fault::NoLease(_)
        ));
    }
}
