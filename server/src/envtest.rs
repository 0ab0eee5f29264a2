//! `holdfast envtest`: makes a folder with the programs that controller-runtime's envtest starts, for
//! `KUBEBUILDER_ASSETS`.
//!
//! `kube-apiserver` and `etcd` are links to this program, which chooses the command by the name under which it is
//! called; see [`called`].

use anyhow::{Context, Result, bail};
use holdfast_storage_rocks::folder::make_private;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[group(skip)]
pub struct Args {
    /// The folder, created if missing [default: a folder in the user's cache].
    #[arg(long, value_name = "DIR")]
    assets_dir: Option<PathBuf>,
}

/// The names of the links, each with the command that the program then runs.
const NAMES: &[(&str, &str)] = &[("kube-apiserver", "apiserver"), ("etcd", "etcd")];
const KUBECTL: &str = "kubectl";

/// If the program was called by a link's name, replaces this name by the program and the link's command.
pub fn called(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    if let Some((_, command)) = NAMES.iter().find(|(known, _)| name == Some(OsStr::new(known))) {
        arguments.splice(..1, ["holdfast".into(), (*command).into()]);
    }
    arguments
}

pub fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let folder = match &args.assets_dir {
        Some(folder) => folder.clone(),
        None => own_folder(&program)?,
    };
    let folder = std::path::absolute(&folder).with_context(|| format!("find {}", folder.display()))?;
    make_private(&folder).with_context(|| format!("make the folder of assets {}", folder.display()))?;
    for (name, _) in NAMES {
        link(&folder, name, &program)?;
    }
    match kubectl(&folder) {
        Some(kubectl) => link(&folder, KUBECTL, &kubectl)?,
        // A dangling link would make envtest fail with a worse error than a missing link.
        None if !folder.join(KUBECTL).exists() => drop(std::fs::remove_file(folder.join(KUBECTL))),
        None => {}
    }
    println!("{}", folder.display());
    Ok(())
}

/// A folder in the user's cache. Each path of this program has its own folder, so that two releases do not share a
/// folder.
fn own_folder(program: &Path) -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(cache) = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache"))) else {
        bail!("neither XDG_CACHE_HOME nor HOME is set: name a folder by --assets-dir");
    };
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    let own = format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish());
    Ok(cache.join("holdfast/envtest").join(own))
}

/// Makes a link in one atomic step, so that suites starting at the same time find the old link or the new one. A file
/// in this place is never replaced.
fn link(folder: &Path, name: &str, target: &Path) -> Result<()> {
    let path = folder.join(name);
    match std::fs::symlink_metadata(&path) {
        Ok(found) if !found.is_symlink() => {
            bail!("{} is there and no link: name another folder by --assets-dir", path.display())
        }
        Ok(_) if std::fs::read_link(&path).is_ok_and(|linked| linked == target) => return Ok(()),
        _ => {}
    }
    let new = folder.join(format!(".{name}-{}", std::process::id()));
    let made = symlink(target, &new).and_then(|()| std::fs::rename(&new, &path));
    if made.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    made.with_context(|| format!("link {}", path.display()))
}

/// The kubectl in `PATH`, unless it is a link in `folder` itself.
fn kubectl(folder: &Path) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).filter(|entry| entry.is_absolute() && entry != folder);
    folders.map(|entry| entry.join(KUBECTL)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_says_what_to_be() {
        for (given, expected) in [
            (&["/a/kube-apiserver", "--help"][..], &["holdfast", "apiserver", "--help"][..]),
            (&["etcd"], &["holdfast", "etcd"]),
            (&["/a/holdfast", "up"], &["/a/holdfast", "up"]),
            (&["/kube-apiserver/holdfast"], &["/kube-apiserver/holdfast"]),
            (&["my-etcd", "x"], &["my-etcd", "x"]),
            (&[], &[]),
        ] {
            let found = called(given.iter().map(OsString::from));
            assert_eq!(found, expected.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }
}
