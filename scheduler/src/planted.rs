//! Deliberate bugs of the scheduler, planted one at a time, to prove that the simulation finds each. Never in a normal
//! build.
//!
//! A bug is active in the thread that planted it. The code at that point calls `planted(Bug::…)`, which is `false` at
//! compile time without the feature `planted`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The node of a decided pod counts as free until the binding is seen.
    NodeNotAssumed,
    /// The node stays reserved for a pod whose binding failed.
    AssumedPodKept,
    /// A pod that could not be bound is never tried again.
    FailedPodDropped,
    /// A pod is bound while the write of its status is under way; the two may arrive in either order.
    BoundBeforeStatus,
    /// A pod whose victims are being evicted is never tried again.
    PreemptorDropped,
}

impl Bug {
    pub const ALL: [Bug; 5] = [
        Bug::NodeNotAssumed,
        Bug::AssumedPodKept,
        Bug::FailedPodDropped,
        Bug::BoundBeforeStatus,
        Bug::PreemptorDropped,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread; `None` removes it.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted in this thread.
#[cfg(feature = "planted")]
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
