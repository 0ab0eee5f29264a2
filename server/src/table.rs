//! `holdfast options`: prints the tables of docs/OPTIONS.md from the commands' own option definitions.

use crate::removed::{self, Removed};
use clap::{Arg, Command};
use holdfast_component::gates;
use std::collections::BTreeMap;

/// Kubernetes' components, each with its command in Holdfast and the options that the command refuses by name.
const COMPONENTS: [(&str, &str, &[Removed]); 4] = [
    ("API server", "apiserver", removed::API_SERVER),
    ("Cloud controller manager", "cloud-controller-manager", &[]),
    ("Controller manager", "controller-manager", &[]),
    ("Scheduler", "scheduler", &[]),
];

const SINCE: &str = include_str!("../data/since.txt");

const HEAD: &str = "# Options

All options of the components, with their defaults and what they do here.
The column `since` has the release of Kubernetes that added the option; 1.18 means 1.18 or older.
Some options have no effect here, or accept only values that match what the server does anyway; other values are refused.
Some of these are removed from Kubernetes, too: using one logs a warning at the start.
The options of SSH tunnels, which Kubernetes removed in 1.22, are refused with the reason.

This page is written by `holdfast options`.
";

const GATES: &str = "
## Feature gates: `--feature-gates`

All feature gates of Kubernetes 1.18 and 1.35, with their stage and default in these releases, and their effect in the \
API server.
A switch has the default of the release that the server emulates (`--emulated-version`); a value that the server does \
not support is refused.

| gate | 1.18 | 1.35 | what it does here |
| --- | --- | --- | --- |
";

/// The page with all its tables.
pub fn page(command: &Command) -> String {
    let mut page = HEAD.to_owned();
    for (name, subcommand, removed) in COMPONENTS {
        let Some(command) = command.find_subcommand(subcommand) else { continue };
        page.push_str(&format!(
            "\n## {name}: `holdfast {subcommand}`\n\n| option | default | since | what it does here |\n| --- | --- | --- | --- |\n"
        ));
        for (name, [default, effect]) in rows(command, removed) {
            page.push_str(&format!("| `--{name}` | {default} | {} | {effect} |\n", since(name)));
        }
    }
    page.push_str(GATES);
    for [name, then, now, effect] in gates::rows() {
        page.push_str(&format!("| `{name}` | {then} | {now} | {effect} |\n"));
    }
    page
}

fn rows<'a>(command: &'a Command, removed: &'a [Removed]) -> BTreeMap<&'a str, [String; 2]> {
    let taken = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, [default(arg), effect(arg)])));
    let refused = removed.iter().map(|(name, why)| (*name, [String::new(), format!("refused: {why}")]));
    refused.chain(taken).collect()
}

fn default(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let value = values.join(",");
    if value.is_empty() { String::new() } else { format!("`{value}`") }
}

/// The first paragraph of an option's help, on one line.
fn effect(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let text = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;");
    let others = arg.get_all_aliases().unwrap_or_default();
    let others: Vec<String> = others.iter().map(|name| format!("`--{name}`")).collect();
    match others.is_empty() {
        true => text,
        false => format!("{text}. Also {}", others.join(", ")),
    }
}

fn since(name: &str) -> &'static str {
    let known = SINCE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    known.into_iter().find(|(known, _)| *known == name).map_or("1.18", |(_, since)| since)
}
