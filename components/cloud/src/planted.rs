//! Planted bugs of the cloud controllers. A test plants one bug at a time, to prove that the simulation finds it.
//! Normal builds do not contain these bugs.
//!
//! As in the module `planted` of `holdfast-controllers`, a bug is active in the thread that planted it; without the
//! feature `planted` no code of the bug remains.

holdfast_planted::bugs! {
    /// A planted bug of a cloud controller.
    pub enum Bug {
        /// The balancer is created before the Service has its finalizer.
        FinalizerAfterwards,
        /// The finalizer is removed before the balancer is deleted.
        FinalizerFirst,
        /// A cloud that does not answer counts as having deleted the balancer.
        DoubtDeletesBalancers,
        /// The finalizer stays on a Service that is no longer of type LoadBalancer.
        FinalizerForEver,
        /// A node is deleted after a single answer that its instance does not exist.
        OnceIsEnough,
        /// A cloud that does not answer about an instance counts as having answered that the instance does not exist.
        DoubtDeletesNodes,
        /// Each attempt to create a route uses another name.
        RoutesTwice,
        /// Routes of deleted nodes are not deleted.
        RoutesStay,
        /// The hosts of balancers are not updated after nodes have changed.
        HostsForgotten,
    }
}
