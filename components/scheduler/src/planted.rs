//! Deliberate bugs of the scheduler, planted one at a time, to prove that the simulation finds each. Normal builds do
//! not contain these bugs.
//!
//! A bug is active in the thread that planted it. The code of the bug calls `planted(Bug::…)`, which is `false` at
//! compile time without the feature `planted`.

holdfast_planted::bugs! {
    /// A planted bug.
    pub enum Bug {
        /// The node chosen for a pod counts as free until the pod's own events show the binding.
        NodeNotAssumed,
        /// The node stays reserved for a pod whose binding failed.
        AssumedPodKept,
        /// A pod that could not be bound is never tried again.
        FailedPodDropped,
        /// A pod is bound while a write of its status is pending, so the two requests may arrive in either order.
        BoundBeforeStatus,
        /// A pod whose victims are being evicted is never tried again.
        PreemptorDropped,
    }
}
