//! Reads arguments as the flags of Kubernetes' components do, and rewrites them for the parser used here.
//!
//! As in Go, the argument after an option that takes a value is the option's value, even if it looks like an option;
//! lists are lines of CSV; and only options are allowed.

use super::{long_of, words};
use clap::{Arg, ArgAction, Command};
use holdfast_core::object::csv;
use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;

/// Separates the items of a list; no argument contains it.
pub const SEPARATOR: char = '\u{1f}';

pub struct Prepared {
    pub arguments: Vec<OsString>,
    pub faults: Vec<String>,
}

/// Makes the parser split lists where [`prepare`] has separated them.
pub fn split_lists(command: &mut Command, called: &str) {
    *command = std::mem::take(command).mut_subcommand(called, |called| {
        called.mut_args(|arg| if arg.get_value_delimiter().is_some() { arg.value_delimiter(SEPARATOR) } else { arg })
    });
}

/// Joins each option with its value into one argument. `program` is the component's name in messages.
pub fn prepare(arguments: Vec<OsString>, called: &Command, program: &str) -> Prepared {
    let (mut prepared, mut others) = (Vec::with_capacity(arguments.len()), Vec::new());
    let (mut faults, mut rest) = (Vec::new(), arguments.into_iter());
    prepared.extend(rest.by_ref().take(2));
    while let Some(argument) = rest.next() {
        let Some(text) = argument.to_str() else {
            prepared.push(argument);
            continue;
        };
        if text == "--" {
            others.extend(rest.by_ref());
            break;
        }
        let Some(option) = text.strip_prefix("--") else {
            match text.strip_prefix('-').filter(|short| !short.is_empty()) {
                None => others.push(argument),
                Some(short) => {
                    let takes_next = short_of(called, short).is_some_and(takes_value);
                    prepared.push(argument);
                    prepared.extend(takes_next.then(|| rest.next()).flatten());
                }
            }
            continue;
        };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let Some(arg) = long_of(called, name) else {
            prepared.push(argument);
            continue;
        };
        let value = match value {
            Some(value) => OsString::from(value),
            None if !takes_value(arg) => {
                prepared.push(argument);
                continue;
            }
            None => match rest.next() {
                Some(value) => value,
                None => {
                    faults.push(format!("flag needs an argument: --{name}"));
                    continue;
                }
            },
        };
        if value.is_empty() && is_optional(arg) {
            continue;
        }
        match split(arg, value) {
            Ok(value) => {
                let mut whole = OsString::from(format!("--{name}="));
                whole.push(value);
                prepared.push(whole);
            }
            Err((value, why)) => faults.push(words::invalid(arg, &value, &why)),
        }
    }
    if others.iter().any(|other| !other.is_empty()) {
        let shown: Vec<String> = others.iter().map(|other| format!("{:?}", other.to_string_lossy())).collect();
        faults.push(format!("{program:?} does not take any arguments, got [{}]", shown.join(" ")));
    }
    Prepared { arguments: prepared, faults }
}

fn short_of<'c>(command: &'c Command, short: &str) -> Option<&'c Arg> {
    let mut letters = short.chars();
    let letter = letters.next().filter(|_| letters.next().is_none())?;
    command.get_arguments().find(|arg| arg.get_short() == Some(letter))
}

/// Whether the next argument is the option's value, if no value is joined to the option's name.
fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

/// Whether an option with an empty value counts as not given: scripts pass empty files and texts to mean the default.
pub fn is_optional(arg: &Arg) -> bool {
    let kind = arg.get_value_parser().type_id();
    let is_text = kind == TypeId::of::<String>() || kind == TypeId::of::<PathBuf>();
    let is_one_or_list = matches!(arg.get_action(), ArgAction::Set) || arg.get_value_delimiter().is_some();
    is_text && is_one_or_list && arg.get_default_values().is_empty()
}

/// Separates the items of a list by [`SEPARATOR`]. Returns any other value unchanged. Fails for malformed CSV, with the
/// value and the reason.
fn split(arg: &Arg, value: OsString) -> Result<OsString, (String, String)> {
    match value.to_str() {
        Some(text) if arg.get_value_delimiter().is_some() => {
            let records = csv::records(text).map_err(|why| (text.to_owned(), why))?;
            let items = records.into_iter().next().map(|(_, items)| items).unwrap_or_default();
            Ok(items.join(&SEPARATOR.to_string()).into())
        }
        _ => Ok(value),
    }
}
