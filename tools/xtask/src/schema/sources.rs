//! Finds the sources of k8s-pb and k8s-openapi, in the versions that Cargo.lock pins, without compiling them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use serde_json::Value;

pub struct Sources {
    pub k8s_pb: PathBuf,
    pub k8s_openapi: PathBuf,
}

/// Finds the sources with cargo, which downloads missing sources.
pub fn find(root: &Path) -> anyhow::Result<Sources> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version=1", "--features=sources", "--manifest-path"])
        .arg(root.join("tools/xtask/Cargo.toml"))
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("read the answer of cargo metadata")?;
    Ok(Sources { k8s_pb: folder(&metadata, "k8s-pb")?, k8s_openapi: folder(&metadata, "k8s-openapi")? })
}

fn folder(metadata: &Value, name: &str) -> anyhow::Result<PathBuf> {
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == name)
        .and_then(|package| package["manifest_path"].as_str())
        .and_then(|manifest| Path::new(manifest).parent())
        .map(Path::to_path_buf)
        .with_context(|| format!("cargo metadata does not list {name}"))
}

/// Every Rust file below `folder` with its module path (`api.core.v1`), in a fixed order.
pub fn rust_files(folder: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    fn walk(folder: &Path, module: &str, found: &mut Vec<(String, PathBuf)>) -> anyhow::Result<()> {
        let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            if path.is_dir() {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let inner = if module.is_empty() { name.into_owned() } else { format!("{module}.{name}") };
                walk(&path, &inner, found)?;
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((module.to_string(), path));
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(folder, "", &mut found)?;
    Ok(found)
}
