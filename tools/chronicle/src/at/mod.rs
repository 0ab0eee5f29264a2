//! `holdfast at`: a kubeconfig context on the whole cluster as of a past version, for any client.

pub mod kubeconfig;

use crate::history::LogView;
use crate::out;
use crate::remote::RemoteServer;
use crate::remote::client::{Client, RequestFailure};
use crate::remote::log::RemoteLog;
use anyhow::{Context as _, Result, anyhow, bail};
use holdfast_core::event::Offset;
use jiff::Timestamp;
use kubeconfig::Context;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[derive(clap::Args)]
pub struct Args {
    /// A version (42), a time (2026-11-21T10:00:00Z) or how long ago (-15m, -2h, -3d).
    #[arg(allow_hyphen_values = true, value_name = "VERSION|TIME")]
    moment: String,
    #[command(flatten)]
    server: RemoteServer,
    /// File to which the context and its user are added [default: the file that has the original context]; - writes a
    /// separate kubeconfig to standard output.
    #[arg(short, long, value_name = "FILE", conflicts_with = "command")]
    output: Option<PathBuf>,
    /// Make the new context the current one.
    #[arg(long, conflicts_with_all = ["output", "command"])]
    set_current: bool,
    /// Run this command with the new context, and remove the context afterwards.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let base = Base::find(&args.server)?;
    let log = RemoteLog::open(args.server.connect()?)?;
    let view = LogView::new(&log, Timestamp::now(), false)?;
    let version = view.version(&args.moment)?;
    base.check(&args.server.connect()?, version)?;
    let name = base.name(version);
    if !args.command.is_empty() {
        let file = base.file(version)?;
        let status = command(&args.command, file.path(), version)
            .status()
            .with_context(|| format!("run {}", args.command[0].display()))?;
        // As in a shell, the exit code for a command that a signal ended is 128 plus the number of the signal.
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
    }
    let url = base.url(version);
    if args.output.as_ref().is_some_and(|file| file.as_os_str() == "-") {
        std::io::stdout().lock().write_all(base.context.alone(&name, &url)?.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = args.output.as_ref().unwrap_or(&base.context.file);
    base.context.add(file, &name, &url)?;
    if args.set_current {
        kubeconfig::set_current(&args.server, file, &name)?;
    }
    let time = view.time_of(version)?;
    out::line(&format!("{name} is the cluster as it was at version {version}, {time}: read-only"))?;
    let option = match (&args.output, &args.server.kubeconfig) {
        (Some(file), _) | (None, Some(file)) => format!("--kubeconfig {} ", file.display()),
        (None, None) => String::new(),
    };
    match args.set_current {
        true => out::line(&format!(
            "It is the current context now; back with: kubectl config use-context {}",
            base.context.name
        ))?,
        false => out::line(&format!("Look at it with: kubectl {option}--context {name} get all --all-namespaces"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The context of the cluster whose past is shown.
pub struct Base {
    context: Context,
}

impl Base {
    pub fn find(server: &RemoteServer) -> Result<Base> {
        let context = Context::find(server)?;
        let (_, path) = context.server.split_once("://").unwrap_or(("", &context.server));
        if path.contains("/at/") {
            bail!(
                "the context {} shows the past itself ({}): name the one of the present with --context",
                context.name,
                context.server
            );
        }
        Ok(Base { context })
    }

    /// Checks that the server shows its past.
    pub fn check(&self, client: &Client, version: Offset) -> Result<()> {
        match client.get(&format!("/at/{version}/api")) {
            Ok(_) => Ok(()),
            Err(RequestFailure::Refused(refused)) if refused.code == 404 && refused.reason != "Expired" => {
                Err(anyhow!("{} cannot show its past: it has no /at/{version}", client.server))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    fn name(&self, version: Offset) -> String {
        format!("{}@{version}", self.context.name)
    }

    fn url(&self, version: Offset) -> String {
        format!("{}/at/{version}", self.context.server)
    }

    /// Makes a temporary kubeconfig for the cluster at a version. The file is deleted when the returned value is
    /// dropped.
    pub fn file(&self, version: Offset) -> Result<tempfile::NamedTempFile> {
        let mut file = tempfile::Builder::new().prefix("holdfast-").suffix(".kubeconfig").tempfile()?;
        file.write_all(self.context.alone(&self.name(version), &self.url(version))?.as_bytes())?;
        Ok(file)
    }
}

/// A command with the environment for a kubeconfig and the version that it shows.
pub fn command(words: &[OsString], kubeconfig: &std::path::Path, version: Offset) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("KUBECONFIG", kubeconfig).env("HOLDFAST_VERSION", version.to_string());
    command
}
