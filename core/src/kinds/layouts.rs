//! The layouts of documents of built-in and custom kinds.

use super::Kind;
use crate::refusal::{Internal, Refusal};
use crate::schema::layout::Layout;
use crate::schema::schema;

/// The layout of a version's documents.
pub(crate) fn layout(kind: &Kind, version: usize) -> Result<Layout<'_>, Refusal> {
    match &kind.versions[version].custom {
        Some(custom) => Ok(Layout::Custom(custom.layout())),
        None => kind.message(version).map(Layout::of),
    }
}

/// The layout of a built-in message's documents.
pub(crate) fn layout_of(message: &str) -> Result<Layout<'static>, Refusal> {
    let id = schema().id(message).ok_or_else(|| Refusal::Internal(Internal::NoMessage { message: message.into() }))?;
    Ok(Layout::of(id))
}
