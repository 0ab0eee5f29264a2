//! The project's own tools, run as `cargo xtask COMMAND`. The tools are not part of the server.

mod ci;
mod schema;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Tools for working on Holdfast")]
struct Arguments {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Run all checks of continuous integration except the tests.
    Ci,
    /// Write core/schema/table.txt from the sources of k8s-pb and k8s-openapi.
    Schema {
        /// Write nothing, and fail if the table in the repository differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        XtaskCommand::Ci => ci::run(),
        XtaskCommand::Schema { check } => schema::run(check),
    }
}

/// The workspace's root folder.
fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).map(PathBuf::from).unwrap_or(own)
}
