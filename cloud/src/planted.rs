//! Deliberate mistakes of these controllers, one at a time, for proving that the simulation finds each. Never in a normal
//! build.
//!
//! As in the controllers' own `planted`: a mistake is made in the thread that planted it, and without the feature `planted`
//! nothing of it is left.

/// A mistake that somebody could have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A balancer is made before the Service has its finalizer.
    FinalizerAfterwards,
    /// The finalizer goes before the balancer.
    FinalizerFirst,
    /// A cloud that does not answer counts as one where the balancer is gone.
    DoubtDeletesBalancers,
    /// A finalizer stays when the Service is no longer of type LoadBalancer.
    FinalizerForEver,
    /// A node whose instance was not found once is deleted at once.
    OnceIsEnough,
    /// A cloud that does not answer counts as one where the instance is gone.
    DoubtDeletesNodes,
    /// Routes are made under another name each time.
    RoutesTwice,
    /// Routes of nodes that are gone stay.
    RoutesStay,
    /// A change of the nodes is told to no balancer.
    HostsForgotten,
}

impl Bug {
    pub const ALL: [Bug; 9] = [
        Bug::FinalizerAfterwards,
        Bug::FinalizerFirst,
        Bug::DoubtDeletesBalancers,
        Bug::FinalizerForEver,
        Bug::OnceIsEnough,
        Bug::DoubtDeletesNodes,
        Bug::RoutesTwice,
        Bug::RoutesStay,
        Bug::HostsForgotten,
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
