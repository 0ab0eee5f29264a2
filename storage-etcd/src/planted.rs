//! Planted bugs of the log on etcd, one at a time, to prove that the simulation finds each. Not compiled into normal
//! builds.

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A write without an answer is reported as failed.
    UnknownTakenForFailure,
    /// A write without an answer is reported as done.
    UnknownTakenForDone,
    /// A write is read back without raising the fence, so it may still happen later.
    FenceNotRaised,
    /// Transactions do not compare the fence, so they may succeed too late.
    FenceNotCompared,
    /// The last of two concurrent updates wins.
    VersionNotCompared,
    /// The other versions on which a decision depends are not compared.
    ExpectationsNotCompared,
    /// A watch that is opened again starts one revision too late.
    ResumeSkips,
    /// A write that succeeded although etcd was full is reported as failed.
    FullTakenForFailure,
    /// Objects that were deleted while no watch was open stay, if etcd has compacted the deletions.
    DeletionsMissed,
    /// An etcd restored from a backup is mistaken for the original.
    RestoreIgnored,
}

impl Bug {
    pub const ALL: [Bug; 10] = [
        Bug::UnknownTakenForFailure,
        Bug::UnknownTakenForDone,
        Bug::FenceNotRaised,
        Bug::FenceNotCompared,
        Bug::VersionNotCompared,
        Bug::ExpectationsNotCompared,
        Bug::ResumeSkips,
        Bug::FullTakenForFailure,
        Bug::DeletionsMissed,
        Bug::RestoreIgnored,
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in this thread, or removes it.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted in this thread.
#[cfg(feature = "planted")]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
