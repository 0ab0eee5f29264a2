//! The function `jsonpatch.escapeKey`, which escapes a key for the path of a JSON patch operation.

use super::{Cost, CustomCost, Overload, text};
use crate::cel::cost::{CallEstimate, Range, traversal};
use crate::cel::functions::overload;
use crate::cel::value::{EvalError, Value};

pub static TABLE: &[Overload] = &[overload("jsonpatch.escapeKey(string) -> string", escape, ESCAPE)];

/// The cost of escaping a key. Each character of the key may become two characters.
const ESCAPE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| traversal(arguments[0].size()),
    estimate: |arguments| {
        let size = arguments.size(0);
        let result = Range { min: size.min, max: size.max.saturating_mul(2) };
        CallEstimate { cost: size.traversal(), result: Some(result) }
    },
});

/// Escapes a key as one step of a JSON pointer.
fn escape<'a>(arguments: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    Ok(Value::text(text(arguments)?.replace('~', "~0").replace('/', "~1")))
}
