//! A new object relies on its namespace: admission saw that it is active, and it must be unchanged when the object is
//! written.

use super::{Context, Expectation};

/// Expects the namespace in the version seen. Otherwise an object written after the namespace was emptied would outlive
/// it.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}
