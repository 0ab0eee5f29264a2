//! How documents of kinds look, whether a table or a definition says it.

use super::Kind;
use crate::refusal::{Internal, Refusal};
use crate::schema::layout::Layout;
use crate::schema::schema;

/// How documents of a version look.
pub(crate) fn layout(kind: &Kind, version: usize) -> Result<Layout<'_>, Refusal> {
    match &kind.versions[version].custom {
        Some(custom) => Ok(Layout::Custom(custom.layout())),
        None => kind.message(version).map(Layout::of),
    }
}

/// How documents of a message of the built-in API look.
pub(crate) fn layout_of(message: &str) -> Result<Layout<'static>, Refusal> {
    let id = schema().id(message).ok_or_else(|| Refusal::Internal(Internal::NoMessage { message: message.into() }))?;
    Ok(Layout::of(id))
}
