//! Deliberate bugs of the scheduler, one at a time, for proving that the simulation finds each. Never in a normal build.
//!
//! A bug is active in the thread that planted it. Where one is planted the code asks `planted(Bug::…)`, which is `false`
//! at compile time without the feature `planted`.

/// A mistake that somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A place that was given is still free to others until it is seen to be taken.
    PlaceNotTaken,
    /// A place is kept for a pod that could not be bound.
    PlaceKept,
    /// A pod that could not be bound is never tried again.
    RefusedForgotten,
    /// A pod is bound while its status is being written, which may come later.
    BoundBeforeTold,
    /// A pod for which others go is never tried again.
    EvictionNeverEnds,
}

impl Bug {
    pub const ALL: [Bug; 5] =
        [Bug::PlaceNotTaken, Bug::PlaceKept, Bug::RefusedForgotten, Bug::BoundBeforeTold, Bug::EvictionNeverEnds];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or takes it away.
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
