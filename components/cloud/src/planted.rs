//! Planted bugs of these controllers, one at a time, to prove that the simulation finds each. Normal builds do not
//! contain these bugs.
//!
//! As in the module `planted` of `holdfast-controllers`, a bug is active in the thread that planted it; without the
//! feature `planted` no code of the bug remains.

holdfast_planted::bugs! {
    /// A planted bug.
    pub enum Bug {
        /// The balancer is created before the Service has its finalizer.
        FinalizerAfterwards,
        /// The finalizer is removed before the balancer is deleted.
        FinalizerFirst,
        /// A cloud that does not answer counts as having deleted the balancer.
        DoubtDeletesBalancers,
        /// The finalizer stays when the Service is no longer of type LoadBalancer.
        FinalizerForEver,
        /// A node is deleted after a single answer that its instance does not exist.
        OnceIsEnough,
        /// A cloud that does not answer counts as having no such instance.
        DoubtDeletesNodes,
        /// Each attempt to create a route uses another name.
        RoutesTwice,
        /// Routes of deleted nodes stay.
        RoutesStay,
        /// Balancers are not updated after changes of nodes.
        HostsForgotten,
    }
}
