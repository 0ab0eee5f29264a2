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
    /// An update of a StatefulSet goes on though the pod above is not ready.
    UpdateUnordered,
    /// Old sets of a Deployment are never forgotten.
    HistoryForEver,
    /// A Job counts a pod before its finalizer is off, and once more when that takes a second try.
    CountedTooEarly,
    /// A Job counts pods by what is known of them, older though it be than what is known of the job.
    OldNewsCounted,
    /// A Job makes all pods that it needs at once.
    ParallelismIgnored,
    /// A Job goes on however often its pods fail.
    LimitIgnored,
    /// What several own goes with the first of them.
    OneOwnerIsEnough,
    /// An owner does not wait for what it owns, though it was to go last.
    OwnersGoFirst,
    /// What is to be left behind still names its owner when that goes.
    OrphansForgotten,
    /// A budget counts pods that are not ready as healthy.
    UnreadyCountsAsHealthy,
    /// A budget counts pods that are on their way out as healthy.
    EvictedPodsCount,
    /// A CronJob starts a job beside another, though that is forbidden.
    ForbidIgnored,
    /// A Service leads to pods that are not ready.
    LeadsToUnready,
    /// A job that has finished goes before its time.
    TimeIgnored,
    /// A quota goes on counting what is gone.
    UsedForEver,
    /// Pods of a node that is gone stay.
    LostPodsStay,
    /// A node whose lease is renewed counts as silent all the same.
    LeasesIgnored,
    /// A node that was silent goes on repelling pods when it is back.
    TaintsStay,
    /// Pods of a node that is silent are waited for.
    SilenceIsBorne,
    /// A claim that is deleted goes though pods have it.
    ClaimsUnprotected,
    /// A volume stays when its claim is gone.
    VolumesStay,
    /// A quota never says what its limits are.
    LimitsForgotten,
    /// An autoscaler makes as many pods as the load takes.
    BoundsIgnored,
}

impl Bug {
    pub const ALL: [Bug; 31] = [
        Bug::KeepsTheWorst,
        Bug::CountsTheLeaving,
        Bug::UnreadyCountsAsAvailable,
        Bug::SurgeUnbounded,
        Bug::OrderIgnored,
        Bug::PartitionIgnored,
        Bug::TaintsIgnored,
        Bug::AllAtOnce,
        Bug::UpdateUnordered,
        Bug::HistoryForEver,
        Bug::CountedTooEarly,
        Bug::OldNewsCounted,
        Bug::ParallelismIgnored,
        Bug::LimitIgnored,
        Bug::OneOwnerIsEnough,
        Bug::OwnersGoFirst,
        Bug::OrphansForgotten,
        Bug::UnreadyCountsAsHealthy,
        Bug::EvictedPodsCount,
        Bug::ForbidIgnored,
        Bug::LeadsToUnready,
        Bug::TimeIgnored,
        Bug::UsedForEver,
        Bug::LostPodsStay,
        Bug::LeasesIgnored,
        Bug::TaintsStay,
        Bug::SilenceIsBorne,
        Bug::ClaimsUnprotected,
        Bug::VolumesStay,
        Bug::LimitsForgotten,
        Bug::BoundsIgnored,
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
