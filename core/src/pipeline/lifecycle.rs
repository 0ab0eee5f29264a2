//! New content counts on its namespace: admission saw that it lives, and it must still do when the content is written.

use super::{Context, Expectation};

/// The namespace must still be as it was seen when the object is written, or content could outlive it.
pub(super) fn expect_namespace(context: &Context) -> Option<Expectation> {
    let namespace = context.request.namespace()?;
    let kind = context.state.registry.namespaces();
    Some(Expectation { kind, key: namespace.into(), version: context.state.version_of(kind, namespace) })
}
