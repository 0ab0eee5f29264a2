//! Gives errors about arguments the wording of Kubernetes' components.

use super::long_of;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use std::any::TypeId;
use std::error::Error;

/// Options that are refused with a message of their own if their value is negative.
const NEGATIVE: [(&str, &str); 6] = [
    ("livez-grace-period", "--livez-grace-period can not be a negative value"),
    ("max-mutating-requests-inflight", "--max-mutating-requests-inflight can not be negative value"),
    ("max-requests-inflight", "--max-requests-inflight can not be negative value"),
    ("request-timeout", "--request-timeout can not be negative value"),
    ("shutdown-delay-duration", "--shutdown-delay-duration can not be negative value"),
    (
        "shutdown-watch-termination-grace-period",
        "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
    ),
];

/// The text of a parser's error, in the wording of Kubernetes' components.
pub fn of(error: &clap::Error, called: &Command) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument => match argument.strip_prefix('-') {
            Some(long) if long.starts_with('-') => format!("unknown flag: {argument}"),
            Some(short) => format!("unknown shorthand flag: {:?} in {argument}", short.chars().next().unwrap_or('-')),
            None => in_short(error),
        },
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let name = argument.split([' ', '=', '[']).next().unwrap_or(&argument).trim_start_matches('-');
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let Some(arg) = long_of(called, name) else { return in_short(error) };
            let reason = error.source().map(ToString::to_string);
            let reason = reason.or_else(|| one_of(error)).unwrap_or_else(|| in_short(error));
            after_reading(name, &value).unwrap_or_else(|| invalid(arg, &value, &reason))
        }
        _ => in_short(error),
    }
}

/// The text for a value that cannot be parsed.
pub fn invalid(arg: &Arg, value: &str, reason: &str) -> String {
    let long = arg.get_long().unwrap_or_default();
    let shown = match arg.get_short() {
        Some(short) => format!("-{short}, --{long}"),
        None => format!("--{long}"),
    };
    let reason = of_number(arg, value).unwrap_or_else(|| reason.to_owned());
    format!("invalid argument {value:?} for {shown:?} flag: {reason}")
}

/// The text for a value that can be parsed but is out of the option's range.
fn after_reading(name: &str, value: &str) -> Option<String> {
    if name == "secure-port"
        && let Ok(port) = value.parse::<i64>()
    {
        let why = "must be between 1 and 65535, inclusive. It cannot be turned off with 0";
        return Some(format!("--secure-port {port} {why}"));
    }
    let positive = value.strip_prefix('-')?;
    let is_read = positive.parse::<u64>().is_ok() || holdfast_component::values::parse_duration(positive).is_ok();
    let (_, words) = NEGATIVE.iter().find(|(option, _)| *option == name)?;
    is_read.then(|| (*words).to_owned())
}

/// Why a value is not a number that the option accepts.
fn of_number(arg: &Arg, value: &str) -> Option<String> {
    let kind = arg.get_value_parser().type_id();
    let is = |kinds: &[TypeId]| kinds.iter().any(|known| kind == *known);
    let whole =
        [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<i32>(), TypeId::of::<i64>()];
    let (parser, is_read) = match () {
        () if is(&whole) => ("ParseInt", value.parse::<i128>().is_ok()),
        () if is(&[TypeId::of::<f32>(), TypeId::of::<f64>()]) => ("ParseFloat", value.parse::<f64>().is_ok()),
        () => return None,
    };
    let why = if is_read { "value out of range" } else { "invalid syntax" };
    Some(format!("strconv.{parser}: parsing {value:?}: {why}"))
}

/// The possible values of an option; `None` if the option has no fixed set of values.
fn one_of(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue) else { return None };
    Some(format!("must be one of {}", values.join(", "))).filter(|_| !values.is_empty())
}

/// The text of an error without the parser's advice.
pub fn in_short(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or(&text);
    text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned()
}
