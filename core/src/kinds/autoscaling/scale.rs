//! Scale: the body of a subresource, which tables show, too.

use crate::kinds::Shown;
use crate::kinds::cells::{age_column, column, number, text};
use std::sync::LazyLock;

pub static SHOWN: LazyLock<Shown> = LazyLock::new(|| Shown {
    columns: vec![
        column("Name", "string", 0, "Name of the object that is scaled.", |doc, _| text(doc, "metadata.name").into()),
        column("Desired", "integer", 0, "How many replicas there should be.", |doc, _| {
            number(doc, "spec.replicas").into()
        }),
        column("Available", "integer", 0, "How many replicas there are.", |doc, _| {
            number(doc, "status.replicas").into()
        }),
        age_column(),
    ],
    ..Shown::default()
});
