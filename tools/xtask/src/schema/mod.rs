//! `xtask schema`: writes the schema table and the descriptions from the sources of two pinned crates.
//!
//! `protobuf` reads k8s-pb (field numbers, markers), `openapi` reads k8s-openapi (exact JSON names, `required`),
//! `names` restores names that prost has changed to snake case, `table` joins them with the facts about zero values,
//! `text` writes the result, and `agree` proves that both crates describe Kubernetes 1.35 consistently.

mod agree;
mod descriptions;
mod names;
mod openapi;
mod protobuf;
mod sources;
mod table;
mod text;
mod zero;

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};

/// The version of the built-in API that the table describes. Both crates have this version.
const CURRENT: &str = "v1_35";
/// Versions in which names that 1.35 lacks are looked up. The current version has precedence, then later versions.
const VERSIONS: [&str; 5] = ["v1_33", "v1_34", "v1_35", "v1_36", "v1_37"];

pub fn run(check: bool) -> anyhow::Result<()> {
    let root = crate::root();
    let sources = sources::find(&root)?;
    let messages = protobuf::read(&sources.k8s_pb.join("src"))?;
    let mut versions = Vec::new();
    for version in VERSIONS {
        let definitions = openapi::read(&sources.k8s_openapi.join("src").join(version))?;
        versions.push((version, definitions));
    }
    let definitions = names::Definitions::new(&versions, CURRENT);
    let zero = zero::read(&fs::read_to_string(root.join("tools/xtask/data/zero-values.txt"))?)?;
    let table = table::build(&messages, &definitions, &zero)?;
    agree::check(&table, definitions.current())?;

    let current = definitions.current();
    put(&root.join("core/schema/table.txt"), &text::write(&table), check)?;
    put(&root.join("core/schema/descriptions.txt"), &descriptions::write(current), check)
}

/// Writes a file, or, if `check` is true, fails unless the existing file has this text.
fn put(path: &Path, text: &str, check: bool) -> anyhow::Result<()> {
    let shown = path.display();
    if !check {
        fs::write(path, text).with_context(|| format!("write {shown}"))?;
        println!("{shown}: {} lines", text.lines().count());
        return Ok(());
    }
    let written = fs::read_to_string(path).with_context(|| format!("read {shown}"))?;
    if written != text {
        let line = written.lines().zip(text.lines()).take_while(|(a, b)| a == b).count() + 1;
        bail!("{shown} differs from its sources from line {line}: run `cargo xtask schema`");
    }
    println!("{shown} agrees with its sources");
    Ok(())
}
