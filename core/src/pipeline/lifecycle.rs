//! The decision about a new object relies on its namespace: admission checked that the namespace is active, so the
//! namespace must be unchanged when the object is written.

use super::{Context, Expectation};

/// Expects the namespace in the version of this snapshot. Otherwise a new object could be written after the namespace
/// was emptied, and would outlive it.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}
