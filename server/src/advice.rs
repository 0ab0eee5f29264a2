//! What to do about a log that failed, in words of the command line. Faults tell only what happened.

use holdfast_core::event::Damage;
use holdfast_engine::Fault;
use holdfast_engine::log::{Locked, Unfinished};

/// What is advised, where an error comes of a fault that one can do something about.
pub fn advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| of_fault(cause.downcast_ref()?))
}

fn of_fault(fault: &Fault) -> Option<String> {
    let path = match fault {
        Fault::Damaged { damage: Damage::NewerFormat { .. }, .. } => {
            return Some("Start the release that wrote it, or a newer one.".into());
        }
        Fault::Damaged { path: Some(path), .. } | Fault::DamagedStore { path, .. } => path.display(),
        Fault::Unfinished { what: Unfinished::Import, path } => {
            let path = path.display();
            return Some(format!(
                "Go on with `holdfast log import --resume --data-dir {path} FILE`, or remove the folder"
            ));
        }
        Fault::Unfinished { what: Unfinished::Fork, .. } => return Some("Remove the folder, and fork again".into()),
        Fault::Occupied { .. } => return Some("Name a new folder".into()),
        Fault::NoLog { .. } => {
            let advice = "Name the data folder of a server with --data-dir, or a running server with --kubeconfig";
            return Some(advice.into());
        }
        Fault::Locked { why: Locked::Unreachable(_), .. } => return Some("Start the KMS plug-in".into()),
        Fault::Locked { why: Locked::Plain, .. } => {
            return Some("Add a provider `identity: {}` behind the others of its entry".into());
        }
        Fault::Locked { .. } => {
            let advice = "Give the configuration that the log was encrypted with, old keys included: \
                          --encryption-provider-config FILE";
            return Some(advice.into());
        }
        Fault::NotBegun { .. } => return Some("Leave out --resume".into()),
        Fault::Restless => return Some("Have the server make the fork itself, with --server".into()),
        _ => return None,
    };
    Some(format!(
        "The way out: restore the folder from a backup; or run `holdfast log repair --data-dir {path}`, which puts the \
         objects concerned back to their last intact version and tells which"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::Offset;

    #[test]
    fn damage_is_told_with_a_way_out() {
        let damaged = |damage| Fault::Damaged { offset: Offset(7), damage, path: Some("/data".into()) };
        for (fault, expected) in [
            (damaged(Damage::TooShort { bytes: 1 }), Some("holdfast log repair --data-dir /data`")),
            (damaged(Damage::NewerFormat { found: 9 }), Some("Start the release that wrote it")),
            (Fault::DamagedStore { after: Offset(7), what: "x".into(), path: "/data".into() }, Some("backup")),
            (
                Fault::Unfinished { what: Unfinished::Import, path: "/data".into() },
                Some("--resume --data-dir /data FILE`"),
            ),
            (Fault::Unfinished { what: Unfinished::Fork, path: "/data".into() }, Some("fork again")),
            (Fault::Occupied { path: "/data".into(), why: "is a file" }, Some("Name a new folder")),
            (Fault::NoLog { path: "/data".into() }, Some("--data-dir")),
            (
                Fault::Locked { offset: Offset(7), object: "secrets/a/b".into(), why: Locked::NoConfiguration },
                Some("--encryption-provider-config FILE"),
            ),
            (Fault::NotBegun { path: "/data".into() }, Some("Leave out --resume")),
            (Fault::Restless, Some("--server")),
            (Fault::Full { operation: "append" }, None),
        ] {
            let told = fault.to_string();
            let advised = advice(&anyhow::Error::from(fault).context("start"));
            match expected {
                Some(expected) => {
                    assert!(advised.as_ref().is_some_and(|a| a.contains(expected)), "{told}: {advised:?}")
                }
                None => assert_eq!(advised, None, "{told}"),
            }
        }
    }
}
