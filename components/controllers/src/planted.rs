//! Deliberate bugs of controllers, planted one at a time, to prove that the simulation finds each bug. Normal builds do
//! not contain these bugs.
//!
//! A bug is active in the thread that planted it. The code of the bug calls `planted(Bug::…)`, which is `false` at
//! compile time without the feature `planted`, so no trace of the bug remains.

holdfast_planted::bugs! {
    /// A bug that tests can plant.
    pub enum Bug {
        /// A ReplicaSet that is scaled down deletes its pods in the reverse order, so it keeps the pods that are not
        /// ready.
        KeepsTheWorst,
        /// A ReplicaSet counts pods that have ended or are being deleted as running.
        CountsTheLeaving,
        /// A Deployment counts new pods that are not available as available when it scales down old sets.
        UnreadyCountsAsAvailable,
        /// A rolling update creates all new pods at once.
        SurgeUnbounded,
        /// A StatefulSet creates its next pod before the pod with the ordinal below is ready.
        OrderIgnored,
        /// An update of a StatefulSet also replaces pods below its partition.
        PartitionIgnored,
        /// A DaemonSet creates pods on nodes whose taints they do not tolerate.
        TaintsIgnored,
        /// An update of a DaemonSet replaces all pods at once.
        AllAtOnce,
        /// An update of a StatefulSet replaces the next pod before the pod with the ordinal above is healthy.
        UpdateUnordered,
        /// A Deployment never deletes its old ReplicaSets.
        HistoryForEver,
        /// A Job counts a pod before its finalizer is removed, and counts it again if the removal needs a second try.
        CountedTooEarly,
        /// A Job counts the pods of the world even if the world's pods are older than the Job's status.
        OldNewsCounted,
        /// A Job creates all pods that it needs at once.
        ParallelismIgnored,
        /// A Job creates further pods however often its pods have failed.
        LimitIgnored,
        /// An object with several owners is deleted as soon as one owner is deleted.
        OneOwnerIsEnough,
        /// In foreground deletion an owner does not wait for its dependents.
        OwnersGoFirst,
        /// Orphaned dependents keep the reference to their deleted owner.
        OrphansForgotten,
        /// A PodDisruptionBudget counts pods that are not ready as healthy.
        UnreadyCountsAsHealthy,
        /// A PodDisruptionBudget counts pods that are being deleted as healthy.
        EvictedPodsCount,
        /// A CronJob starts a Job while another Job runs, though `concurrencyPolicy` forbids it.
        ForbidIgnored,
        /// The endpoints of a Service include pods that are not ready as ready.
        LeadsToUnready,
        /// A finished Job is deleted before its time to live is over.
        TimeIgnored,
        /// A ResourceQuota continues to count deleted objects.
        UsedForEver,
        /// The pods of a deleted node are never deleted.
        LostPodsStay,
        /// A node counts as lost although its lease is renewed.
        LeasesIgnored,
        /// A node keeps its taints after it is ready again.
        TaintsStay,
        /// Pods on a lost node are never evicted.
        SilenceIsBorne,
        /// A deleted PersistentVolumeClaim is removed although pods use it.
        ClaimsUnprotected,
        /// A PersistentVolume with the reclaim policy `Delete` stays after its claim is deleted.
        VolumesStay,
        /// The status of a ResourceQuota never shows the quota's limits.
        LimitsForgotten,
        /// An autoscaler ignores its minimum and maximum.
        BoundsIgnored,
    }
}
