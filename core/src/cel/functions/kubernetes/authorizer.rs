//! What is asked of an authorizer. Only expressions of admission have one; elsewhere these functions are known, and no
//! value is there to call them with.

use super::{Cost, EvalError, Overload, Value, no_overload};
use crate::cel::functions::overload;

pub static TABLE: &[Overload] = &[
    overload(
        "<kubernetes.authorization.Authorizer>.path(string) -> kubernetes.authorization.PathCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Authorizer>.group(string) -> kubernetes.authorization.GroupCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.Authorizer>.serviceAccount(string, string) -> kubernetes.authorization.Authorizer",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.GroupCheck>.resource(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.subresource(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.namespace(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.name(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.fieldSelector(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload(
        "<kubernetes.authorization.ResourceCheck>.labelSelector(string) -> kubernetes.authorization.ResourceCheck",
        unasked,
        Cost::One,
    ),
    overload("<kubernetes.authorization.PathCheck>.check(string) -> kubernetes.authorization.Decision", unasked, CHECK),
    overload(
        "<kubernetes.authorization.ResourceCheck>.check(string) -> kubernetes.authorization.Decision",
        unasked,
        CHECK,
    ),
    overload("<kubernetes.authorization.Decision>.allowed() -> bool", unasked, Cost::One),
    overload("<kubernetes.authorization.Decision>.reason() -> string", unasked, Cost::One),
    overload("<kubernetes.authorization.Decision>.error() -> string", unasked, Cost::One),
    overload("<kubernetes.authorization.Decision>.errored() -> bool", unasked, Cost::One),
];

/// Of two checks an expression can afford no more.
const CHECK: Cost = Cost::Fixed(350_000);

fn unasked<'a>(_: &[Value<'a>]) -> Result<Value<'a>, EvalError> {
    no_overload()
}
