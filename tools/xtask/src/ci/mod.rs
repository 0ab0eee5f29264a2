//! `xtask ci`: everything that continuous integration checks, except the tests.

mod architecture;
mod arrows;
mod circles;
mod dependencies;
mod imports;
mod kind_names;
mod layers;
mod layout;
mod profiles;
mod sources;
mod status_codes;
mod type_names;

use std::process::Command;

use anyhow::{Context, bail};

pub fn run() -> anyhow::Result<()> {
    step("formatting", || cargo(&["fmt", "--all", "--check"]))?;
    // The checks that take little time come first.
    step("schema table", || crate::schema::run(true))?;
    step("names of kinds", kind_names::check)?;
    step("layers of the core", layers::check)?;
    step("layout", layout::check)?;
    step("circles of files", circles::check)?;
    step("names of types", type_names::check)?;
    step("codes of outcomes", status_codes::check)?;
    step("names in docs/ARCHITECTURE.md", architecture::check)?;
    step("dependency arrows", arrows::check)?;
    step("profiles", profiles::check)?;
    step("sources and licences", dependencies::check)?;
    step("clippy", || {
        cargo(&["clippy", "--release", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
    })
}

/// The folders of the workspace's members.
fn members() -> anyhow::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(crate::root().join("Cargo.toml"))?;
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    let names = members.split('"').skip(1).step_by(2).map(str::to_owned);
    let found: Vec<String> = names.collect();
    if found.is_empty() {
        bail!("Cargo.toml names no members");
    }
    Ok(found)
}

fn step(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("== {name}");
    check().with_context(|| format!("{name} failed"))
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    let status = command(arguments).status().context("run cargo")?;
    if !status.success() {
        bail!("`cargo {}` ended with {status}", arguments.join(" "));
    }
    Ok(())
}

fn command(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(crate::root());
    command
}
