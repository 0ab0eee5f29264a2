//! Deliberate bugs of the scheduler, planted one at a time, to prove that the simulation finds each bug. Normal builds
//! do not contain these bugs.
//!
//! A bug is active in the thread that planted it. The code of the bug calls `planted(Bug::…)`, which is `false` at
//! compile time without the feature `planted`.

holdfast_planted::bugs! {
    /// A bug that tests can plant.
    pub enum Bug {
        /// The scheduler counts a node as free after it has chosen the node for a pod, until the pod's own events show
        /// the binding.
        NodeNotAssumed,
        /// If a pod's binding failed, its node stays reserved for the pod.
        AssumedPodKept,
        /// After a pod's binding has failed, the pod is never tried again.
        FailedPodDropped,
        /// A pod is bound while a write of its status is pending, so the two requests may arrive in either order.
        BoundBeforeStatus,
        /// A pod for which other pods are being evicted is never tried again.
        PreemptorDropped,
    }
}
