//! The binary `holdfast`: options and wiring only. The servers are wired here; the tools that read a log are in the
//! crate `holdfast-chronicle`, and the tools that measure and simulate are crates of their own.

mod admission;
mod advice;
mod aggregation;
mod apiserver;
mod arguments;
mod audit;
mod authentication;
mod authorization;
mod checks;
mod cloud_controller_manager;
mod clouds;
mod cluster;
mod component_process;
mod components;
mod controller_manager;
mod controllers;
mod disk;
mod elected;
mod encryption;
mod envtest;
mod etcd;
mod etcd_options;
mod etcd_repair;
mod etcd_upkeep;
mod faults;
mod files;
mod flags;
mod help;
mod host;
mod image_policy;
mod inside;
mod kubelets;
mod leader_migration;
mod limits;
mod migrate;
mod nodes;
mod offered;
mod on_etcd;
mod otlp;
mod pages;
mod pki;
mod read_memory;
mod removed;
mod run;
mod scheduler;
mod scheduling;
mod serving;
mod settled;
mod shared_keys;
mod signing;
mod simulated_kubelets;
mod simulated_metrics;
mod table;
mod tls;
mod tracing_config;
mod up;
mod values;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use holdfast_chronicle::{at, bisect, fork, history, log, replay};
use holdfast_core::visible;

// mimalloc is linked as the process's `malloc`, so RocksDB uses it as well. Rust's default allocator calls `malloc`,
// except for large alignments. A call of `malloc` takes half the instructions of a call of mimalloc that passes an
// alignment.
use mimalloc as _;

/// The release of Holdfast, and the release of Kubernetes whose API it serves.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (Kubernetes v1.35.0)");

/// A Kubernetes control plane on an event log.
#[derive(Parser)]
#[command(name = "holdfast", version = VERSION, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a complete control plane on this machine: certificates, API server, scheduler, controllers, kubeconfig.
    Up(Box<up::Args>),
    /// Start the API server alone.
    Apiserver(Box<flags::Args>),
    /// Start the scheduler for any Kubernetes API server.
    Scheduler(Box<scheduler::Args>),
    /// Start the controllers for any Kubernetes API server.
    ControllerManager(Box<controller_manager::Args>),
    /// Start the controllers that manage nodes, load balancers and routes in a cloud, for any Kubernetes API server.
    CloudControllerManager(Box<cloud_controller_manager::Args>),
    /// Simulate nodes for any Kubernetes API server: their pods become ready, fail and end, but no container runs.
    Nodes(Box<nodes::Args>),
    /// Make a folder for KUBEBUILDER_ASSETS and print its path, so that envtest suites of Go operators run against
    /// Holdfast.
    Envtest(envtest::Args),
    /// Run in the place of the etcd that envtest starts. This process stores nothing.
    Etcd(etcd::Args),
    /// Make a new cluster with the state that another cluster has now, or had at any moment of its history.
    Fork(Box<fork::Args>),
    /// Move all objects of a cluster from a data folder to an etcd, or back, or from one etcd to another.
    Migrate(Box<migrate::Args>),
    /// Start a cluster for one command, run the command, and remove the cluster.
    Run(Box<run::Args>),
    /// Read, check, export, import and compact event logs.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Show the versions of an object: the time, the user and the changes of each.
    History(Box<history::versions::Args>),
    /// Show every field of an object with the version, time and actor that set it last.
    Blame(Box<history::blame::Args>),
    /// Show what changed in the cluster between two moments.
    Diff(Box<history::diff::Args>),
    /// Explain, node by node, why a pod was scheduled to its node or to none.
    ExplainScheduling(Box<history::scheduling::Args>),
    /// Add a kubeconfig context for the cluster as it was at a moment, or run a command against it.
    At(Box<at::Args>),
    /// Restore an object to an earlier version, by a new write.
    Restore(Box<history::restore::Args>),
    /// Undo the change of one event, by a new write.
    Undo(Box<history::undo::Args>),
    /// Find the event after which a command begins to fail.
    Bisect(Box<bisect::Args>),
    /// Repeat the writes of a recorded log against any Kubernetes API server.
    Replay(Box<replay::Args>),
    /// Measure the performance of any Kubernetes API server.
    Bench(Box<holdfast_bench::Args>),
    /// Test this program by simulation: racing clients, crashes and failing disks.
    Sim(Box<holdfast_sim::SimulationArgs>),
    /// Print the page of all options, docs/OPTIONS.md.
    #[command(hide = true)]
    Options,
    /// Print the version.
    Version,
}

impl Command {
    /// The faults of a server's options that parsing them does not show.
    fn faults(&self) -> Vec<String> {
        match self {
            Command::Up(args) => args.faults(),
            Command::Apiserver(args) => args.faults(),
            Command::Scheduler(args) => args.faults(),
            Command::ControllerManager(args) => args.faults(),
            Command::CloudControllerManager(args) => args.faults(),
            _ => Vec::new(),
        }
    }

    /// Whether the command runs for long, so that the owner and permissions of the files that it is given matter.
    fn is_component(&self) -> bool {
        use Command::{Apiserver, CloudControllerManager, ControllerManager, Nodes, Run, Scheduler, Up};
        let serves = matches!(self, Up(_) | Apiserver(_) | Run(_) | Nodes(_));
        serves || matches!(self, Scheduler(_) | ControllerManager(_) | CloudControllerManager(_))
    }
}

/// An instruction set that RocksDB is built for, by `.cargo/config.toml`, and that this processor lacks.
fn missing_instructions() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    for (name, is_there) in [
        ("SSE4.2", std::arch::is_x86_feature_detected!("sse4.2")),
        ("PCLMULQDQ", std::arch::is_x86_feature_detected!("pclmulqdq")),
    ] {
        if !is_there {
            return Some(name);
        }
    }
    None
}

fn main() -> std::process::ExitCode {
    if let Some(instructions) = missing_instructions() {
        eprintln!("holdfast: this processor lacks {instructions}, for which the event log's checksums are built");
        return std::process::ExitCode::FAILURE;
    }
    let arguments = flags::normalized(envtest::called(std::env::args_os()).into_iter());
    let removed: &[removed::Removed] = match arguments.get(1).and_then(|command| command.to_str()) {
        Some("up" | "apiserver" | "run") => removed::API_SERVER,
        _ => &[],
    };
    let mut command = help::arranged(Cli::command());
    let called = arguments.get(1).and_then(|name| command.find_subcommand(name.to_str()?)).cloned();
    let arguments = match called {
        Some(called) => flags::without_empty(arguments, &called),
        None => arguments,
    };
    let arguments::Read { matches, mut faults, is_component, misuse } =
        arguments::read(&mut command, arguments, removed);
    let cli = matches
        .as_ref()
        .map(|matches| Cli::from_arg_matches(matches).unwrap_or_else(|error| error.format(&mut command).exit()));
    if let (Some(cli), false) = (&cli, faults.is_empty()) {
        faults.extend(cli.command.faults());
    }
    if let (Some(cli), Some(matches)) = (&cli, &matches)
        && cli.command.is_component()
    {
        faults.extend(untrusted(&command, matches));
    }
    let (Some(cli), Some(matches), true) = (cli, matches, faults.is_empty()) else {
        match misuse {
            _ if is_component => {
                faults.iter().for_each(|fault| eprintln!("Error: {}", visible::line(fault)));
                return std::process::ExitCode::FAILURE;
            }
            // A single misuse is printed as the parser words it, with its advice.
            Some(misuse) if faults.len() == 1 && misuse.use_stderr() => {
                eprint!("{}", visible::lines(&misuse.to_string()));
                return u8::try_from(misuse.exit_code()).unwrap_or(1).into();
            }
            Some(misuse) if faults.len() == 1 => misuse.exit(),
            misuse => {
                faults.iter().for_each(|fault| eprintln!("holdfast: {}", visible::line(fault)));
                let code = misuse.map_or(1, |misuse| misuse.exit_code());
                return u8::try_from(code).unwrap_or(1).into();
            }
        }
    };
    if matches!(cli.command, Command::Up(_) | Command::Apiserver(_)) {
        use_small_pages();
        limits::take_files();
    }
    let outcome = match cli.command {
        Command::Up(args) => up::run(*args, options(&command, &matches)),
        Command::Apiserver(args) => apiserver::run(*args, options(&command, &matches)),
        Command::ControllerManager(args) => controller_manager::run(*args, options(&command, &matches)),
        Command::CloudControllerManager(args) => cloud_controller_manager::run(*args, options(&command, &matches)),
        Command::Scheduler(args) => scheduler::run(*args, options(&command, &matches)),
        Command::Nodes(args) => nodes::run(*args),
        Command::Envtest(args) => envtest::run(&args),
        Command::Etcd(args) => etcd::run(args),
        Command::Fork(args) => fork::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        // The process exits with the status of the command that was run.
        Command::Run(args) => return run::run(*args, options(&command, &matches)),
        Command::Log(command) => log::run(command),
        Command::History(args) => history::versions::run(&args),
        Command::Blame(args) => history::blame::run(&args),
        Command::Diff(args) => history::diff::run(&args),
        Command::ExplainScheduling(args) => history::scheduling::run(&args),
        Command::At(args) => match at::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Bisect(args) => bisect::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Restore(args) => history::restore::run(&args),
        Command::Undo(args) => history::undo::run(&args),
        Command::Bench(args) => bench(*args),
        Command::Sim(args) => holdfast_sim::run(*args),
        Command::Options => {
            print!("{}", table::page(&command));
            Ok(())
        }
        Command::Version => {
            println!(
                "holdfast {} (Kubernetes {})",
                env!("CARGO_PKG_VERSION"),
                holdfast_transport_http::paths::API_VERSION
            );
            Ok(())
        }
    };
    match outcome {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let advice = advice::advice(&error).map(|advice| format!(". {advice}")).unwrap_or_default();
            eprintln!("holdfast: {}{advice}", visible::line(&format!("{error:#}")));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Turns off transparent huge pages: with them, a server that has just started uses a third more memory than it needs,
/// without measurable gain in speed. Commands that run other programs must not call this function, because those
/// programs would inherit the setting.
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        // If the system refuses, the server only uses more memory.
        tracing::debug!(%error, "huge pages stay");
    }
}

/// The files that the subcommand's options name and that other users could change.
fn untrusted(command: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let called = matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    called.map(|(command, matches)| holdfast_component::options::untrusted(command, matches)).unwrap_or_default()
}

/// The options of the subcommand with their values.
fn options(command: &clap::Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let called = matches.subcommand().and_then(|(name, matches)| Some((command.find_subcommand(name)?, matches)));
    called.map(|(command, matches)| holdfast_component::options::values(command, matches)).unwrap_or_default()
}

fn bench(args: holdfast_bench::Args) -> anyhow::Result<()> {
    holdfast_chronicle::runtime()?.block_on(holdfast_bench::run(args))
}
