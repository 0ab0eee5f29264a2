//! Reads the arguments of a command, and finds all faults in the arguments.
//!
//! The parser stops at the first fault; so the argument that it rejects is removed, and the rest is parsed again.
//!
//! The arguments of Kubernetes' components are read as Go's flags are ([`go`]), and errors have the wording of these
//! components ([`words`]).

mod go;
mod words;

pub use go::is_optional;

use crate::removed;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};
use std::ffi::OsString;

/// The maximum number of faults that are reported: each costs one parse of all arguments.
const FAULTS_MAX: usize = 100;

/// The result of reading arguments.
pub struct Read {
    /// The matches without the faulty arguments; `None` if the faulty arguments could not be found.
    pub matches: Option<ArgMatches>,
    pub faults: Vec<String>,
    /// Whether the command is one of Kubernetes' components.
    pub is_component: bool,
    /// The parser's first error: an argument that the command does not have, or a value that the option does not
    /// accept.
    pub misuse: Option<clap::Error>,
}

/// The commands that are components of Kubernetes, with the component's name in messages.
const COMPONENTS: [(&str, &str); 5] = [
    ("apiserver", "kube-apiserver"),
    ("cloud-controller-manager", "cloud-controller-manager"),
    ("controller-manager", "kube-controller-manager"),
    ("scheduler", "kube-scheduler"),
    ("up", "holdfast up"),
];

/// Reads `arguments`; options in `removed` are refused. Prints the help or the version and ends the process if the
/// arguments ask for it.
pub fn read(command: &mut Command, mut arguments: Vec<OsString>, removed: &[removed::Removed]) -> Read {
    let refused = removed::refused(arguments.get(2..).unwrap_or_default(), removed);
    let (names, mut faults): (Vec<String>, Vec<String>) =
        refused.into_iter().map(|(name, why)| (format!("--{name}"), why)).unzip();
    names.iter().for_each(|name| _ = leave_out(&mut arguments, name, None));
    let name = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let component = COMPONENTS.into_iter().find(|(called, _)| *called == name);
    let called = component.and_then(|(name, _)| command.find_subcommand(name).cloned());
    if let (Some((name, program)), Some(called)) = (component, &called) {
        let prepared = go::prepare(arguments, called, program);
        arguments = prepared.arguments;
        faults.extend(prepared.faults);
        go::split_lists(command, name);
    }
    let is_component = called.is_some();
    let mut first = None;
    while faults.len() < FAULTS_MAX {
        let error = match command.try_get_matches_from_mut(&arguments) {
            Ok(matches) => return Read { matches: Some(matches), faults, is_component, misuse: first },
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            error.exit();
        }
        faults.push(called.as_ref().map_or_else(|| words::in_short(&error), |called| words::of(&error, called)));
        let goes_on = offender(&error).is_some_and(|(name, value)| leave_out(&mut arguments, &name, value.as_deref()));
        first.get_or_insert(error);
        if !goes_on {
            break;
        }
    }
    Read { matches: None, faults, is_component, misuse: first }
}

/// The option that an error is about, and its value if the value is the fault.
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
    // The parser shows an option as `--name <VALUE>`, `--name=<VALUE>` or `--name[=<VALUE>]`.
    let name = shown.split([' ', '=', '[']).next().unwrap_or(&shown);
    name.starts_with('-').then(|| (name.to_owned(), value))
}

/// Removes an option together with its value: every occurrence, or only the occurrences with the given value. Returns
/// whether anything was removed.
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
        let is_wrong = |given: &str| {
            value.is_none_or(|value| given.split([',', go::SEPARATOR]).any(|part| part == value) || given == value)
        };
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

/// The option of a command by its name or by one of its aliases.
fn long_of<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command.get_arguments().find(|arg| {
        let others = arg.get_all_aliases().unwrap_or_default();
        arg.get_long() == Some(name) || others.contains(&name)
    })
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
            "--etcd-prefix was removed",
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
        assert!(read.faults.len() == 1 && read.misuse.is_none(), "it is known, and removed");
    }

    #[derive(Parser)]
    #[command(args_override_self = true)]
    struct Components {
        #[command(subcommand)]
        command: Component,
    }

    #[derive(Subcommand)]
    enum Component {
        Apiserver {
            #[arg(long)]
            secure_port: Option<u16>,
            #[arg(long)]
            max_requests_inflight: Option<u32>,
            #[arg(short = 'v', long = "v")]
            v: Option<i32>,
            #[arg(long, value_delimiter = ',')]
            cors_allowed_origins: Vec<String>,
            #[arg(long, value_parser = holdfast_component::values::parse_duration)]
            event_ttl: Option<std::time::Duration>,
            #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = holdfast_component::values::parse_bool)]
            profiling: Option<bool>,
        },
    }

    fn component(arguments: &[&str]) -> Read {
        let arguments = ["holdfast", "apiserver"].iter().chain(arguments).map(OsString::from).collect();
        read(&mut Components::command(), arguments, &[])
    }

    #[test]
    fn components_complain_in_words_of_go() {
        for (arguments, expected) in [
            (&["--x"][..], &["unknown flag: --x"][..]),
            (&["-q"], &["unknown shorthand flag: 'q' in -q"]),
            (&["--event-ttl"], &["flag needs an argument: --event-ttl"]),
            (&["a", "--profiling", "b"], &["\"kube-apiserver\" does not take any arguments, got [\"a\" \"b\"]"]),
            (
                &["--profiling=maybe"],
                &[
                    "invalid argument \"maybe\" for \"--profiling\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
                ],
            ),
            (
                &["--event-ttl", "5"],
                &["invalid argument \"5\" for \"--event-ttl\" flag: time: missing unit in duration \"5\""],
            ),
            (
                &["-v", "x"],
                &["invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseInt: parsing \"x\": invalid syntax"],
            ),
            (
                &["--max-requests-inflight", "-1", "--secure-port=70000"],
                &[
                    "--max-requests-inflight can not be negative value",
                    "--secure-port 70000 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
                ],
            ),
            (
                &["--cors-allowed-origins=a\"b"],
                &[
                    "invalid argument \"a\\\"b\" for \"--cors-allowed-origins\" flag: parse error on line 1, column 2: bare \" in non-quoted field",
                ],
            ),
        ] {
            let read = component(arguments);
            let mut expected: Vec<String> = expected.iter().map(|text| (*text).to_owned()).collect();
            let mut faults = read.faults;
            faults.sort();
            expected.sort();
            assert_eq!(faults, expected, "{arguments:?}");
            assert!(read.is_component);
        }
    }

    #[test]
    fn components_read_lists_as_csv() {
        let read = component(&["--cors-allowed-origins=\"^a{1,2}$\",b", "--cors-allowed-origins", "c", "-v", "4"]);
        assert_eq!(read.faults, [""; 0]);
        let (_, called) = read.matches.as_ref().and_then(ArgMatches::subcommand).expect("a command");
        let origins: Vec<&String> = called.get_many("cors_allowed_origins").expect("a list").collect();
        assert_eq!(origins, ["^a{1,2}$", "b", "c"]);
        assert_eq!(called.get_one::<i32>("v"), Some(&4));
    }

    #[test]
    fn every_switch_takes_the_booleans_of_go() {
        let mut command = crate::Cli::command();
        command.build();
        for name in ["up", "run", "apiserver", "scheduler", "controller-manager", "etcd", "nodes"] {
            let called = command.find_subcommand(name).expect("a command").clone();
            let is_switch = |arg: &&clap::Arg| arg.get_value_parser().type_id() == std::any::TypeId::of::<bool>();
            for arg in called.get_arguments().filter(is_switch).filter(|arg| arg.get_action().takes_values()) {
                let option = format!("--{}=T", arg.get_long().expect("a name"));
                let read = called.clone().try_get_matches_from([name, &option]);
                let is_refused = read
                    .err()
                    .is_some_and(|error| matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation));
                assert!(!is_refused, "{name} {option}");
            }
        }
    }
}
