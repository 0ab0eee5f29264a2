//! Deliberate bugs of the log on etcd, one at a time, for proving that servers on the model show each. Never in a normal
//! build.

/// A mistake that somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A write that nobody answered is told as one that was not done.
    UnknownTakenForFailure,
    /// A write that nobody answered is told as done.
    UnknownTakenForDone,
    /// Before a write is read back, nothing keeps it from being done later.
    FenceNotRaised,
    /// Transactions do not look whether they come too late.
    FenceNotCompared,
    /// The last of two concurrent updates wins.
    VersionNotCompared,
    /// What else a decision counted on is not compared.
    ExpectationsNotCompared,
    /// A watch that is opened anew begins one revision too late.
    ResumeSkips,
    /// A write that was done though etcd was full is told as one that was not.
    FullTakenForFailure,
    /// What was deleted while nobody listened stays, once etcd has let go of the deletion.
    DeletionsMissed,
    /// An etcd that was restored from a backup is taken for the one that was there before.
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

/// Plants a bug in this thread, or takes it away.
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
