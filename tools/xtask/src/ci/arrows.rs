//! Proves with `cargo tree` which packages a package does *not* depend on, directly or indirectly.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use serde_json::Value;

const SERVICE: &str = "holdfast-service";
const OUTBOUND: &str = "holdfast-outbound";
/// The crate of documents: every crate may use it, and it uses no other crate.
const VALUE: &str = "holdfast-value";

/// Packages on which the crates that only plan must not depend.
const PURE: [&str; 9] =
    ["tokio", "kube", "hyper", "h2", "rocksdb", "warp", "holdfast-engine", "holdfast-storage-*", SERVICE];

/// A package, and the packages that it must never depend on, even indirectly. A name that ends in `*` stands for all
/// packages with this prefix.
const NEVER: [(&str, &[&str]); 27] = [
    (VALUE, &["tokio", "hyper", "h2", "rocksdb", "warp", "holdfast-*"]),
    // Every crate that uses files may depend on this crate.
    ("holdfast-files", &["tokio", "hyper", "h2", "rocksdb", "warp", "holdfast-*"]),
    ("holdfast-core", &["tokio", "http", "hyper", "h2", "rocksdb", "warp", "holdfast-*"]),
    (
        "holdfast-engine",
        &["http", "hyper", "h2", "rocksdb", "warp", "holdfast-storage-*", "holdfast-transport-*", SERVICE],
    ),
    (SERVICE, &["http", "hyper", "h2", "warp", "rocksdb", "holdfast-storage-*", "holdfast-transport-*", OUTBOUND]),
    ("holdfast-storage-rocks", &["hyper", "warp", "holdfast-storage-etcd", "holdfast-transport-*"]),
    // This crate calls etcd over gRPC, and stores its copy of the events with `holdfast-storage-rocks`.
    ("holdfast-storage-etcd", &["warp", "holdfast-transport-*", SERVICE, OUTBOUND]),
    (OUTBOUND, &["rocksdb", "warp", "holdfast-storage-*", "holdfast-transport-*", "holdfast-chronicle", SERVICE]),
    ("holdfast-transport-*", &["rocksdb", "holdfast-storage-*", "holdfast-chronicle", "holdfast"]),
    // This crate is a protocol without I/O, and independent of its users.
    ("holdfast-http2", &["tokio", "hyper", "h2", "tower", "rocksdb", "warp", "futures-util", "holdfast-*"]),
    // This crate has the streams of upgraded connections, and is independent of the requests behind them.
    ("holdfast-streams", &["hyper", "h2", "tower", "rocksdb", "warp", "holdfast-*"]),
    // This crate makes calls over gRPC for the server, stores and components, and depends on none of them.
    (
        "holdfast-grpc",
        &["rocksdb", "warp", "holdfast-core", "holdfast-engine", "holdfast-storage-*", "holdfast-transport-*", SERVICE],
    ),
    // This crate is between the engine and any store, and depends on neither a store nor a server.
    (
        "holdfast-encryption",
        &["rocksdb", "warp", "holdfast-storage-*", "holdfast-transport-*", "holdfast-component", SERVICE, OUTBOUND],
    ),
    ("holdfast-tls", &["tokio", "hyper", "h2", "rocksdb", "warp", "holdfast-engine", "holdfast-component"]),
    // Components use the API, and do not depend on the server.
    (
        "holdfast-component",
        &["rocksdb", "warp", "holdfast-engine", "holdfast-storage-*", "holdfast-transport-*", SERVICE, OUTBOUND],
    ),
    // Plans are pure, and do not depend on the crates that carry them out.
    ("holdfast-world", &PURE),
    ("holdfast-scheduler", &PURE),
    ("holdfast-controllers", &PURE),
    ("holdfast-nodes", &PURE),
    ("holdfast-cloud", &PURE),
    // Clouds are called by whichever process runs the controllers, and do not depend on the server.
    (
        "holdfast-cloud-controller",
        &["rocksdb", "warp", "holdfast-engine", "holdfast-storage-*", "holdfast-transport-*", SERVICE, OUTBOUND],
    ),
    // The shell of simulated containers has no access to the machine.
    ("holdfast-shell", &["tokio", "kube", "hyper", "h2", "rocksdb", "warp", "holdfast-*"]),
    // Simulated nodes use the API, and do not depend on the server.
    (
        "holdfast-kubelet",
        &["rocksdb", "warp", "holdfast-engine", "holdfast-storage-*", "holdfast-transport-*", SERVICE, OUTBOUND],
    ),
    (
        "holdfast-runtime",
        &["rocksdb", "warp", "holdfast-engine", "holdfast-storage-*", "holdfast-transport-*", SERVICE, OUTBOUND],
    ),
    // This crate receives requests as data, and does not depend on the server.
    (
        "holdfast-audit",
        &[
            "hyper",
            "rocksdb",
            "warp",
            "holdfast-engine",
            "holdfast-storage-*",
            "holdfast-transport-*",
            SERVICE,
            OUTBOUND,
        ],
    ),
    ("holdfast-chronicle", &["holdfast", "holdfast-bench", "holdfast-sim"]),
    // Users of this crate wait for its compilation, so it must stay small.
    ("holdfast-testing", &["rocksdb", "clap", "holdfast-storage-*", "holdfast-chronicle", "holdfast"]),
];

/// The packages of the workspace that may depend on HTTP: transports, clients of the API, and packages that connect the
/// parts.
const MAY_REACH_HTTP: [&str; 18] = [
    "holdfast-authentication",
    "holdfast-authorization",
    "holdfast",
    "holdfast-transport-*",
    "holdfast-outbound",
    "holdfast-grpc",
    // This crate calls KMS plug-ins over gRPC.
    "holdfast-encryption",
    "holdfast-storage-etcd",
    "holdfast-chronicle",
    "holdfast-component",
    "holdfast-bench",
    "holdfast-sim",
    "holdfast-tests",
    "holdfast-testing",
    "holdfast-runtime",
    "holdfast-kubelet",
    "holdfast-cloud-controller",
    // This crate has no code: it enables `kube`'s WebSockets, which tests use.
    "holdfast-features",
];
const HTTP: [&str; 2] = ["hyper", "warp"];

pub fn check() -> anyhow::Result<()> {
    let members = members()?;
    let mut broken = Vec::new();
    for member in &members {
        broken.extend(complaints(member, &reached(member)?));
    }
    // A rule about a package that does not exist would prove nothing.
    for (package, _) in NEVER {
        if !members.iter().any(|member| matches(package, member)) {
            broken.push(format!("the rule about {package} finds no package"));
        }
    }
    if !broken.is_empty() {
        bail!("arrows that must not be:\n{}", broken.join("\n"));
    }
    Ok(())
}

/// Describes each forbidden dependency of `member`.
fn complaints(member: &str, reached: &BTreeSet<String>) -> Vec<String> {
    let forbidden = |name: &str| {
        let by_rule = NEVER.iter().filter(|(package, _)| matches(package, member)).flat_map(|(_, names)| *names);
        let by_default: &[&str] =
            if MAY_REACH_HTTP.iter().any(|package| matches(package, member)) { &[] } else { &HTTP };
        by_rule.chain(by_default).any(|pattern| matches(pattern, name))
    };
    let wrong = reached.iter().filter(|name| *name != member && *name != VALUE && forbidden(name));
    wrong.map(|name| format!("{member} reaches {name}")).collect()
}

/// The names of the workspace's packages.
pub(super) fn members() -> anyhow::Result<Vec<String>> {
    let metadata = output(&["metadata", "--locked", "--no-deps", "--format-version=1"])?;
    let metadata: Value = serde_json::from_str(&metadata).context("read the answer of cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    Ok(packages.iter().filter_map(|package| package["name"].as_str().map(str::to_string)).collect())
}

/// The normal and build dependencies of `package`, including itself. Dev-dependencies are omitted, because tests may
/// use more packages.
fn reached(package: &str) -> anyhow::Result<BTreeSet<String>> {
    let tree =
        output(&["tree", "--locked", "--package", package, "--edges=normal,build", "--prefix=none", "--format={p}"])?;
    Ok(tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_string).collect())
}

pub(super) fn output(arguments: &[&str]) -> anyhow::Result<String> {
    let output = super::command(arguments).output().context("run cargo")?;
    if !output.status.success() {
        bail!("`cargo {}` failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("cargo answered in bytes that are no text")
}

/// Whether `name` equals `pattern`, or starts with it if `pattern` ends in `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(matches("holdfast-storage-*", "holdfast-storage-rocks"));
        assert!(!matches("holdfast-storage-*", "holdfast-core"));
        assert!(matches("hyper", "hyper"));
        assert!(!matches("hyper", "hyper-util"));
    }

    #[test]
    fn wrong_arrows_are_found() {
        let cases = [
            ("holdfast-core", "tokio", 1),
            ("holdfast-core", "holdfast-engine", 1),
            ("holdfast-core", "serde_json", 0),
            ("holdfast-core", VALUE, 0),
            (VALUE, "holdfast-core", 1),
            ("holdfast-engine", "tokio", 0),
            ("holdfast-engine", "rocksdb", 1),
            ("holdfast-storage-rocks", "rocksdb", 0),
            ("holdfast-storage-rocks", "holdfast-transport-http", 1),
            ("holdfast-transport-http", "hyper", 0),
            ("holdfast-transport-http", "holdfast-outbound", 0),
            ("holdfast-outbound", "holdfast-transport-http", 1),
            ("holdfast-transport-http", "holdfast-chronicle", 1),
            ("holdfast-chronicle", "holdfast-storage-rocks", 0),
            ("holdfast-chronicle", "holdfast", 1),
            ("holdfast", "hyper", 0),
            ("xtask", "hyper", 1),
        ];
        for (member, name, expected) in cases {
            let reached = BTreeSet::from([member.to_string(), name.to_string()]);
            assert_eq!(complaints(member, &reached).len(), expected, "{member} to {name}");
        }
    }

    #[test]
    fn trees_show_what_is_reached() {
        let reached = reached("xtask").expect("cargo tree works");
        assert!(reached.contains("clap_builder") && reached.contains("xtask"), "{reached:?}");
        assert!(!reached.contains("k8s-pb"), "the sources are read, never compiled");
    }
}
