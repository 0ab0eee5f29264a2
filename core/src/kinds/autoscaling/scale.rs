//! The columns of Scale, the body of the `scale` subresource.

use super::columns;
use crate::kinds::Shown;
use std::sync::LazyLock;

pub static SHOWN: LazyLock<Shown> = LazyLock::new(|| Shown {
    columns: columns::of("Scale"),
    message: "io.k8s.api.autoscaling.v1.Scale".into(),
    ..Shown::default()
});
