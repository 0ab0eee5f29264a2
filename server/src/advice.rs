//! Advice on a log that failed, in terms of the command line. The faults themselves only describe the failure.

use holdfast_encryption::Locked;
use holdfast_engine::Fault;
use holdfast_storage_rocks::{FolderDamage, FolderFault, Making};

/// The advice for the first error among `error` and its causes that the operator can remedy.
pub fn advice(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(fault) => of_folder(fault),
        None => of_log(cause.downcast_ref()?),
    })
}

fn of_folder(fault: &FolderFault) -> Option<String> {
    Some(match fault {
        FolderFault::Unfinished { making: Making::Import, path } => {
            let path = path.display();
            format!("Continue with `holdfast log import --resume --data-dir {path} FILE`, or remove the folder")
        }
        FolderFault::Unfinished { making: Making::Fork, .. } => "Remove the folder, and fork again".into(),
        FolderFault::Unfinished { making: Making::Migration, .. } => {
            "Run the same `holdfast migrate` again to continue, or remove the folder".into()
        }
        FolderFault::Occupied { .. } => "Name a new folder".into(),
        FolderFault::NoLog { .. } => {
            "Name the data folder of a server with --data-dir, or a running server with --kubeconfig".into()
        }
        FolderFault::NotBegun { .. } => "Leave out --resume".into(),
        FolderFault::Restless => "Let the server make the fork itself, with --server".into(),
        FolderFault::InUse { .. } => return None,
        FolderFault::Log(fault) => return of_log(fault),
    })
}

fn of_log(fault: &Fault) -> Option<String> {
    if let Some(why) = Locked::of(fault) {
        return Some(of_encryption(why).into());
    }
    let damage = FolderDamage::of(fault)?;
    if damage.is_newer_format() {
        return Some("Start the release that wrote it, or a newer one.".into());
    }
    let path = damage.folder().display();
    Some(format!(
        "Restore the folder from a backup; or run `holdfast log repair --data-dir {path}`, which restores the damaged \
         objects to their last intact version and prints which"
    ))
}

fn of_encryption(why: &Locked) -> &'static str {
    match why {
        Locked::Unreachable(_) => "Start the KMS plug-in",
        Locked::Plain => "Add a provider `identity: {}` behind the others of its entry",
        Locked::NoConfiguration | Locked::NoProvider { .. } | Locked::Changed { .. } => {
            "Give the configuration that the log was encrypted with, old keys included: \
             --encryption-provider-config FILE"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::event::{Damage, Offset};
    use holdfast_encryption::LockedValue;
    use holdfast_engine::log::DamagedEvent;

    #[test]
    fn damage_is_told_with_a_way_out() {
        let damaged = |damage| {
            let event = DamagedEvent { offset: Offset(7), damage };
            FolderFault::Log(FolderDamage::Event { folder: "/data".into(), event }.into())
        };
        let store = FolderDamage::Store { folder: "/data".into(), after: Offset(7), what: "x".into() };
        let locked = LockedValue { offset: Offset(7), object: "secrets/a/b".into(), why: Locked::NoConfiguration };
        for (fault, expected) in [
            (damaged(Damage::TooShort { bytes: 1 }), Some("holdfast log repair --data-dir /data`")),
            (damaged(Damage::NewerFormat { found: 9 }), Some("Start the release that wrote it")),
            (FolderFault::Log(store.into()), Some("backup")),
            (
                FolderFault::Unfinished { making: Making::Import, path: "/data".into() },
                Some("--resume --data-dir /data FILE`"),
            ),
            (FolderFault::Unfinished { making: Making::Fork, path: "/data".into() }, Some("fork again")),
            (
                FolderFault::Unfinished { making: Making::Migration, path: "/data".into() },
                Some("`holdfast migrate` again"),
            ),
            (FolderFault::Occupied { path: "/data".into(), why: "is a file" }, Some("Name a new folder")),
            (FolderFault::NoLog { path: "/data".into() }, Some("--data-dir")),
            (FolderFault::Log(Fault::Sealed(Box::new(locked))), Some("--encryption-provider-config FILE")),
            (FolderFault::NotBegun { path: "/data".into() }, Some("Leave out --resume")),
            (FolderFault::Restless, Some("--server")),
            (FolderFault::Log(Fault::Full { operation: "append" }), None),
        ] {
            let told = fault.to_string();
            check(&told, fault.into(), expected);
        }
        // An open log returns this fault without a `FolderFault` around it. The advice is the same in either case.
        let store = FolderDamage::Store { folder: "/data".into(), after: Offset(7), what: "x".into() };
        check("of a log", Fault::from(store).into(), Some("backup"));
    }

    fn check(told: &str, error: anyhow::Error, expected: Option<&str>) {
        let advised = advice(&error.context("start"));
        match expected {
            Some(expected) => {
                assert!(advised.as_ref().is_some_and(|a| a.contains(expected)), "{told}: {advised:?}")
            }
            None => assert_eq!(advised, None, "{told}"),
        }
    }
}
