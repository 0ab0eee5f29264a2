//! Simulated nodes: they register, renew their leases, and take pods through their life. No container runs.
