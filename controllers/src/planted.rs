//! Deliberate mistakes of controllers, one at a time, for proving that the simulation finds each. Never in a normal build.
//!
//! A mistake is made in the thread that planted it. Where one is planted the code asks `planted(Bug::…)`, which is
//! `false` at compile time without the feature `planted`, so that nothing of it is left.

/// A mistake that somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Of too many pods of a ReplicaSet, those that are worth most go first.
    KeepsTheWorst,
    /// A ReplicaSet counts pods that have ended, or are on their way out, as pods that run.
    CountsTheLeaving,
    /// New pods of a Deployment that are not available yet do not hold back the end of old ones.
    UnreadyCountsAsAvailable,
    /// A rolling update makes all new pods at once.
    SurgeUnbounded,
    /// A StatefulSet makes the next pod though the one before it is not ready.
    OrderIgnored,
    /// An update of a StatefulSet goes on below its partition.
    PartitionIgnored,
    /// A DaemonSet makes pods on nodes whose taints they do not tolerate.
    TaintsIgnored,
    /// An update of a DaemonSet replaces all pods at once.
    AllAtOnce,
}

impl Bug {
    pub const ALL: [Bug; 8] = [
        Bug::KeepsTheWorst,
        Bug::CountsTheLeaving,
        Bug::UnreadyCountsAsAvailable,
        Bug::SurgeUnbounded,
        Bug::OrderIgnored,
        Bug::PartitionIgnored,
        Bug::TaintsIgnored,
        Bug::AllAtOnce,
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
pub fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

#[cfg(not(feature = "planted"))]
pub const fn planted(_: Bug) -> bool {
    false
}
