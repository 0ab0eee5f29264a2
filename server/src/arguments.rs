//! Reads the arguments of a command, and finds all that is wrong with them, where the parser stops at the first fault:
//! what it complains about is left out, and the rest is parsed again.

use crate::not_built;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command};
use std::ffi::OsString;

/// How many faults are told: each costs a look at all arguments.
const FAULTS_MAX: usize = 100;

/// What arguments come to.
pub struct Read {
    /// What they say but for those that are wrong; none if that cannot be told.
    pub matches: Option<ArgMatches>,
    pub faults: Vec<String>,
    /// The first of them that the parser complains of: no argument of the command, or one with a value that its form does
    /// not allow.
    pub misuse: Option<clap::Error>,
}

/// Reads `arguments`, of which those are refused that are `unbuilt`. Ends the process where they ask for help.
pub fn read(command: &mut Command, mut arguments: Vec<OsString>, unbuilt: &[not_built::Unbuilt]) -> Read {
    let refused = not_built::refused(arguments.get(2..).unwrap_or_default(), unbuilt);
    let (names, mut faults): (Vec<String>, Vec<String>) =
        refused.into_iter().map(|(name, why)| (format!("--{name}"), why)).unzip();
    names.iter().for_each(|name| _ = leave_out(&mut arguments, name, None));
    let mut first = None;
    while faults.len() < FAULTS_MAX {
        let error = match command.try_get_matches_from_mut(&arguments) {
            Ok(matches) => return Read { matches: Some(matches), faults, misuse: first },
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            error.exit();
        }
        faults.push(in_short(&error));
        let goes_on = offender(&error).is_some_and(|(name, value)| leave_out(&mut arguments, &name, value.as_deref()));
        first.get_or_insert(error);
        if !goes_on {
            break;
        }
    }
    Read { matches: None, faults, misuse: first }
}

/// The option that an error is about, and the value that it has there, if that is what is wrong.
fn offender(error: &clap::Error) -> Option<(String, Option<String>)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    let value = match error.kind() {
        ErrorKind::UnknownArgument => None,
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => text(ContextKind::InvalidValue),
        _ => return None,
    };
    let shown = text(ContextKind::InvalidArg)?;
    // `--name <VALUE>`, `--name=<VALUE>` or `--name[=<VALUE>]`.
    let name = shown.split([' ', '=', '[']).next().unwrap_or(&shown);
    name.starts_with('-').then(|| (name.to_owned(), value))
}

/// Takes an option away with the value that belongs to it: everywhere, or where it has this value. Tells whether it was
/// there.
fn leave_out(arguments: &mut Vec<OsString>, name: &str, value: Option<&str>) -> bool {
    let before = arguments.len();
    let mut kept = Vec::with_capacity(before);
    let mut rest = arguments.drain(..).peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            kept.push(argument);
            kept.extend(rest.by_ref());
            break;
        }
        let behind = argument.to_str().and_then(|text| text.strip_prefix(name)).map(str::to_owned);
        let is_wrong =
            |given: &str| value.is_none_or(|value| given.split(',').any(|part| part == value) || given == value);
        match behind.as_deref() {
            Some("") => {
                let next = rest.peek().and_then(|next| next.to_str()).filter(|next| !next.starts_with('-'));
                match next.map(str::to_owned) {
                    Some(next) if is_wrong(&next) => _ = rest.next(),
                    Some(_) => kept.push(argument),
                    None => {}
                }
            }
            Some(text) if text.strip_prefix('=').is_some_and(is_wrong) => {}
            _ => kept.push(argument),
        }
    }
    drop(rest);
    *arguments = kept;
    arguments.len() < before
}

/// What an error says, without the advice that follows.
fn in_short(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or(&text);
    text.strip_prefix("error: ").unwrap_or(text).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser, Subcommand};

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Cli {
        #[command(subcommand)]
        command: Sub,
    }

    #[derive(Subcommand)]
    enum Sub {
        Serve {
            #[arg(long)]
            port: Option<u16>,
            #[arg(long, value_delimiter = ',')]
            sizes: Vec<u8>,
            #[arg(long, value_parser = ["a", "b"])]
            mode: Option<String>,
        },
    }

    fn faults(arguments: &[&str]) -> Read {
        let arguments = ["holdfast", "serve"].iter().chain(arguments).map(OsString::from).collect();
        read(&mut Cli::command(), arguments, &[("etcd-prefix", "there is no etcd")])
    }

    #[test]
    fn all_that_is_wrong_is_told() {
        let read = faults(&["--etcd-prefix", "/x", "--no-such", "y", "--port=z", "--sizes=1,999", "--mode", "c", "-q"]);
        assert!(read.misuse.is_some() && read.matches.is_some());
        let parts = [
            "--etcd-prefix is not built",
            "'--no-such'",
            "'z' for '--port",
            "'999' for '--sizes",
            "'c' for '--mode",
            "'-q'",
        ];
        assert_eq!(read.faults.len(), parts.len(), "{:?}", read.faults);
        for part in parts {
            assert!(read.faults.iter().any(|fault| fault.contains(part)), "{part} in {:?}", read.faults);
        }
    }

    #[test]
    fn what_is_right_is_kept() {
        let read = faults(&["--port=1", "--etcd-prefix=/x", "--mode=c", "--mode", "a"]);
        let (_, serve) = read.matches.as_ref().and_then(ArgMatches::subcommand).expect("the rest is read");
        assert_eq!(serve.get_one::<u16>("port"), Some(&1));
        assert_eq!(serve.get_one::<String>("mode").map(String::as_str), Some("a"));
        assert_eq!(read.faults.len(), 2, "{:?}", read.faults);
        let read = faults(&["--port=1"]);
        assert!(read.faults.is_empty() && read.misuse.is_none());
        let read = faults(&["--etcd-prefix=/x"]);
        assert!(read.faults.len() == 1 && read.misuse.is_none(), "it is known, and not built");
    }
}
