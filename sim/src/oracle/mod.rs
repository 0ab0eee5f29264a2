//! The invariants of the simulation. Each oracle checks events of the log, an answer, or a state. If an invariant is
//! violated, the oracle describes the violation.

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

/// The result of a check: `Ok`, or a description of the violation.
pub type CheckResult = Result<(), String>;

/// Returns the violation that `wrong` describes, unless the condition holds.
pub(crate) fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(wrong()) }
}
