//! The decision about a new object relies on its namespace: admission checked that the namespace is active, so the
//! namespace must be unchanged when the object is written.

use super::{Context, Expectation};

/// Requires that the namespace still has the version of this snapshot when the object is written. Otherwise the new
/// object could be written after all objects of a terminating namespace were deleted, and would outlive the namespace.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}
