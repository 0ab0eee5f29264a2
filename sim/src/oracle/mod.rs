//! Invariants of the simulation. Each oracle checks events of the log, an answer, or a state, and describes what is
//! wrong.

mod linear;
mod record;
mod replay;
mod reply;
mod rules;

pub use linear::{History, Instant};
pub use record::check as check_record;
pub use replay::check as check_state;
pub use reply::{NODE_PORTS, Window, check_count, check_refusal, check_reply, check_rights, version_of};
pub use rules::{check_addresses, check_gone, check_rest};

/// `Ok`, or a description of the violation.
pub type CheckResult = Result<(), String>;

/// Fails unless the condition holds.
pub(crate) fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(wrong()) }
}
