//! `holdfast run`: passes a server in this process to [`holdfast_chronicle::run`], which runs a command against it.

use crate::apiserver::{Lasting, Signals};
use crate::up;
use anyhow::{Result, anyhow};
use holdfast_chronicle::run::{self, Access, Cluster};
use holdfast_component::logging;
use std::path::Path;
use std::process::ExitCode;

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    #[command(flatten)]
    run: run::Args,
    #[command(flatten)]
    up: up::Args,
    /// Also run the controllers, the scheduler and a simulated node, as `holdfast up` does.
    #[arg(long)]
    cluster: bool,
}

pub fn run(args: Args, flags: Vec<(String, String)>) -> ExitCode {
    run::exit_code(try_run(args, flags))
}

fn try_run(args: Args, flags: Vec<(String, String)>) -> Result<u8> {
    let Args { run, mut up, cluster } = args;
    let _log = log_to_files(&mut up.server.logging)?;
    run::run(run, up.server.storage.data_dir.take(), OnThisMachine { up, cluster, flags })
}

/// The cluster that `holdfast run` starts in this process.
struct OnThisMachine {
    up: up::Args,
    cluster: bool,
    flags: Vec<(String, String)>,
}

impl Cluster for OnThisMachine {
    fn serve(self, data: &Path, keep: bool, work: impl AsyncFnOnce(Access) -> Result<u8>) -> Result<u8> {
        let OnThisMachine { mut up, cluster, flags } = self;
        up.server.storage.data_dir = Some(data.to_owned());
        // The default is a free port, so that several clusters can run at the same time.
        up.server.network.secure_port.get_or_insert(0);
        let lasting = if keep { Lasting::Kept } else { Lasting::Fleeting };
        let (server, admin) = up::prepare(up, flags, lasting, if cluster { "*" } else { "-*" })?;
        server.serve(async |address, _: &mut Signals| {
            let url = admin.welcome(address)?;
            work(Access { url, kubeconfig: admin.kubeconfig }).await
        })
    }
}

/// Logs to files, or to the destination in the options. Without such an option nothing is logged, because the output
/// belongs to the command.
fn log_to_files(options: &mut logging::LoggingArgs) -> Result<Option<logging::LogGuard>> {
    let to_files = options.log_file.is_some() || options.log_dir.is_some();
    let wanted = options.v > 0 || options.vmodule != logging::Modules::default() || options.alsologtostderr;
    if !to_files && !wanted {
        return Ok(None);
    }
    if to_files {
        options.logtostderr = false;
        if !options.alsologtostderr {
            options.stderrthreshold = logging::Severity::Fatal;
        }
    }
    logging::init(options).map(Some).map_err(|why| anyhow!(why))
}
