//! CEL's extension that treats lists as sets, such as `sets.contains`.

use super::{Cost, CustomCost, Overload, overload};
use crate::cel::compare::{Fuel, equal};
use crate::cel::cost::{CallEstimate, Range};
use crate::cel::value::{EvalError, Value};

type EvalResult<'a> = Result<Value<'a>, EvalError>;

const PRODUCT: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| arguments[0].size().saturating_mul(arguments[1].size()).saturating_add(1),
    estimate: |arguments| CallEstimate { cost: arguments.size(0).mul(arguments.size(1)).add(Range::ONE), result: None },
});

const TWICE: Cost = Cost::Custom(CustomCost {
    actual: |arguments, _| arguments[0].size().saturating_mul(arguments[1].size()).saturating_mul(2).saturating_add(1),
    estimate: |arguments| {
        let product = arguments.size(0).mul(arguments.size(1));
        CallEstimate { cost: product.mul(Range::exactly(2)).add(Range::ONE), result: None }
    },
});

pub static TABLE: &[Overload] = &[
    overload("sets.contains(list(A), list(A)) -> bool", contains, PRODUCT),
    overload("sets.equivalent(list(A), list(A)) -> bool", equivalent, TWICE),
    overload("sets.intersects(list(A), list(A)) -> bool", intersects, PRODUCT),
];

/// Returns whether `list` contains all items of `wanted`, or with `any` at least one. Stops at the first item that
/// decides.
fn look_up<'a>(list: &Value<'a>, wanted: &Value<'a>, any: bool, fuel: &mut Fuel) -> Result<bool, EvalError> {
    let items: Vec<Value<'a>> = list.items().collect::<Result<_, _>>()?;
    for item in wanted.items() {
        let item = item?;
        let mut found = false;
        for other in &items {
            if equal(other, &item, fuel)? {
                found = true;
                break;
            }
        }
        if found == any {
            return Ok(any);
        }
    }
    Ok(!any)
}

fn contains<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    look_up(&arguments[0], &arguments[1], false, &mut fuel(arguments)).map(Value::Bool)
}

fn equivalent<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    let mut fuel = fuel(arguments);
    let same = look_up(&arguments[0], &arguments[1], false, &mut fuel)?
        && look_up(&arguments[1], &arguments[0], false, &mut fuel)?;
    Ok(Value::Bool(same))
}

fn intersects<'a>(arguments: &[Value<'a>]) -> EvalResult<'a> {
    look_up(&arguments[0], &arguments[1], true, &mut fuel(arguments)).map(Value::Bool)
}

/// The number of comparisons that a call may make: each pair of items may be compared. The cost of the call covers this
/// number.
fn fuel(arguments: &[Value<'_>]) -> Fuel {
    Fuel(arguments[0].size().saturating_mul(arguments[1].size()).saturating_mul(2).saturating_add(Fuel::PLENTY))
}
