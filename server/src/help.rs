//! Arranges the help: it begins with an example, `-h` shows common options only, and `--help` shows all of them in
//! groups.

use clap::{Arg, Command};

/// An example call of each command.
const EXAMPLES: &[(&str, &str)] = &[
    ("up", "holdfast up --data-dir ./holdfast-data --nodes 3"),
    (
        "apiserver",
        "holdfast apiserver --data-dir /var/lib/holdfast --client-ca-file ca.crt --authorization-mode RBAC \\\n  \
         --service-account-issuer https://cluster.example --service-account-signing-key-file sa.key \\\n  \
         --service-account-key-file sa.pub",
    ),
    ("scheduler", "holdfast scheduler --kubeconfig scheduler.kubeconfig --config scheduler.yaml"),
    ("controller-manager", "holdfast controller-manager --kubeconfig manager.kubeconfig --controllers '*,-ttl'"),
    (
        "cloud-controller-manager",
        "holdfast cloud-controller-manager --kubeconfig admin.kubeconfig --cloud-provider external --cloud-config cloud.yaml",
    ),
    ("nodes", "holdfast nodes --kubeconfig admin.kubeconfig --count 5000 --node-template nodes.yaml"),
    ("envtest", "KUBEBUILDER_ASSETS=$(holdfast envtest) go test ./..."),
    ("etcd", "holdfast etcd --listen-client-urls http://127.0.0.1:2379"),
    ("fork", "holdfast fork --from ./holdfast-data --at -1h --data-dir ./then"),
    (
        "migrate",
        "holdfast migrate --from /var/lib/holdfast --to https://10.0.0.1:2379,https://10.0.0.2:2379 \\\n  \
         --etcd-cafile ca.crt --etcd-certfile client.crt --etcd-keyfile client.key",
    ),
    ("run", "holdfast run -- python -m pytest"),
    ("log", "holdfast log tail --data-dir ./holdfast-data -n 20"),
    ("log tail", "holdfast log tail --data-dir ./holdfast-data -f"),
    ("log verify", "holdfast log verify --data-dir ./holdfast-data"),
    ("log export", "holdfast log export --data-dir ./holdfast-data -o events.jsonl"),
    ("log import", "holdfast log import events.jsonl --data-dir ./copy"),
    ("log stats", "holdfast log stats --data-dir ./holdfast-data --json"),
    ("log compact", "holdfast log compact --data-dir ./holdfast-data --history-retention 7d"),
    ("log repair", "holdfast log repair --data-dir ./holdfast-data"),
    ("history", "holdfast history deployment web -n shop -p"),
    ("blame", "holdfast blame deployment web -n shop"),
    ("diff", "holdfast diff -15m -n shop"),
    ("explain-scheduling", "holdfast explain-scheduling web-0 -n shop"),
    ("at", "holdfast at -15m -- kubectl get pods -A"),
    ("restore", "holdfast restore deployment web --to -1h --dry-run"),
    ("undo", "holdfast undo 227 --dry-run"),
    ("bisect", "holdfast bisect --good -1h --bad -1m -- ./healthy.sh"),
    ("replay", "holdfast replay events.jsonl --against admin.kubeconfig --speed 10"),
    ("bench", "holdfast bench --kubeconfig admin.kubeconfig create get list"),
    ("sim", "holdfast sim --seeds 1..1000"),
    ("sim meta", "holdfast sim meta --seeds 1..100"),
    ("sim scheduling", "holdfast sim scheduling --seeds 1..1000"),
    ("sim controllers", "holdfast sim controllers --seeds 1..1000"),
    ("sim admission", "holdfast sim admission --seeds 1..1000"),
    ("version", "holdfast version"),
];

/// The options that `-h` shows, for commands that have hundreds.
const COMMON: &[(&str, &[&str])] = &[
    (
        "up",
        &[
            "data-dir",
            "etcd-servers",
            "secure-port",
            "port",
            "bind-address",
            "advertise-address",
            "kubeconfig",
            "nodes",
            "node-template",
            "controllers",
            "history-retention",
            "history-max-bytes",
            "service-cluster-ip-range",
            "feature-gates",
            "v",
            "help",
        ],
    ),
    (
        "run",
        &["from", "at", "keep", "cluster", "for-parent", "data-dir", "nodes", "controllers", "feature-gates", "help"],
    ),
    (
        "apiserver",
        &[
            "data-dir",
            "etcd-servers",
            "secure-port",
            "bind-address",
            "advertise-address",
            "tls-cert-file",
            "tls-private-key-file",
            "client-ca-file",
            "authorization-mode",
            "service-account-issuer",
            "service-account-signing-key-file",
            "service-account-key-file",
            "service-cluster-ip-range",
            "feature-gates",
            "v",
            "help",
        ],
    ),
    (
        "scheduler",
        &[
            "config",
            "write-config-to",
            "kubeconfig",
            "master",
            "secure-port",
            "leader-elect",
            "feature-gates",
            "v",
            "help",
        ],
    ),
    (
        "controller-manager",
        &[
            "controllers",
            "kubeconfig",
            "master",
            "secure-port",
            "use-service-account-credentials",
            "root-ca-file",
            "service-account-private-key-file",
            "cluster-cidr",
            "allocate-node-cidrs",
            "leader-elect",
            "feature-gates",
            "v",
            "help",
        ],
    ),
    (
        "cloud-controller-manager",
        &[
            "cloud-provider",
            "cloud-config",
            "cluster-name",
            "kubeconfig",
            "master",
            "controllers",
            "secure-port",
            "leader-elect",
            "v",
            "help",
        ],
    ),
];

/// Groups of options by the prefixes of their names. An option is in the first group with a matching prefix.
const GROUPS: &[(&str, &[&str])] = &[
    ("Log and history", &["history-", "disk-reserve", "etcd-", "forks-max"]),
    ("Audit", &["audit-"]),
    ("Nodes and their kubelets", &["kubelet-", "max-connection-bytes-per-sec", "node-template", "nodes"]),
    (
        "Limits",
        &[
            "max-requests-inflight",
            "max-mutating-requests-inflight",
            "enable-priority-and-fairness",
            "read-memory",
            "namespace-bytes",
            "controller-bytes-per-second",
            "delete-collection-workers",
        ],
    ),
    ("Aggregated API servers", &["requestheader-", "proxy-client-", "enable-aggregator-routing", "aggregator-"]),
    ("TLS", &["tls-", "cert-dir"]),
    ("Authentication", &["client-ca-file", "anonymous-auth", "token-auth-file", "service-account-", "api-audiences"]),
    ("Services and Events", &["service-cluster-ip-range", "service-node-port-range", "event-ttl"]),
];

/// The server commands, whose options are grouped by [`GROUPS`].
const SERVERS: [&str; 3] = ["up", "run", "apiserver"];

/// Adds examples to the commands, and sorts their options into groups.
pub fn arranged(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|called| called.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(&name, |called| with_example(placed(called, &name), &name))
    })
}

fn with_example(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|called| called.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(&name, |called| with_example(called, &path))
    });
    match EXAMPLES.iter().find(|(called, _)| *called == path) {
        Some((_, example)) => command.before_help(format!("Example:\n  {example}")),
        None => command,
    }
}

fn placed(command: Command, name: &str) -> Command {
    let common = COMMON.iter().find(|(called, _)| *called == name).map(|(_, options)| *options);
    let is_server = SERVERS.contains(&name);
    let is_shortened = common.is_some();
    let command = command.mut_args(|arg| {
        let Some(long) = arg.get_long().map(str::to_owned) else { return arg };
        let arg = if is_server { grouped(arg, &long) } else { arg };
        match common {
            Some(common) if common.contains(&long.as_str()) => arg.help_heading(None),
            Some(_) => arg.hide_short_help(true),
            None => arg,
        }
    });
    match is_shortened {
        true => command.after_help(format!("`holdfast {name} --help` shows all options.")).after_long_help(""),
        false => command,
    }
}

fn grouped(arg: Arg, long: &str) -> Arg {
    let begins = |begin: &&str| match begin.ends_with('-') {
        true => long.starts_with(*begin),
        false => long == *begin,
    };
    match GROUPS.iter().find(|(_, options)| options.iter().any(begins)) {
        Some((heading, _)) => arg.help_heading(*heading),
        None => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    const LINES_OF_A_SCREEN: usize = 50;

    fn help(command: &mut Command, is_long: bool) -> String {
        match is_long {
            true => command.render_long_help().to_string(),
            false => command.render_help().to_string(),
        }
    }

    #[test]
    fn every_commands_help_begins_with_an_example() {
        fn check(command: &mut Command, path: &str) {
            let shown: Vec<String> = command.get_subcommands().map(|called| called.get_name().to_owned()).collect();
            for name in shown.into_iter().filter(|name| name != "help") {
                let path = format!("{path} {name}").trim().to_owned();
                let Some(called) = command.find_subcommand_mut(&name).filter(|called| !called.is_hide_set()) else {
                    continue;
                };
                for is_long in [false, true] {
                    let text = help(called, is_long);
                    assert!(text.starts_with("Example:\n  "), "holdfast {path}: {text:.80}");
                }
                check(called, &path);
            }
        }
        let mut command = arranged(Cli::command());
        check(&mut command, "");
        for (path, _) in EXAMPLES {
            let found = path.split(' ').try_fold(&command, |command, name| command.find_subcommand(name));
            assert!(found.is_some(), "there is no command {path}");
        }
    }

    #[test]
    fn short_help_fits_a_screen_and_long_help_shows_everything() {
        let mut command = arranged(Cli::command());
        for (name, options) in COMMON {
            let called = command.find_subcommand_mut(name).expect("a command");
            let (short, long) = (help(called, false), help(called, true));
            assert!(short.lines().count() <= LINES_OF_A_SCREEN, "{name}: {} lines", short.lines().count());
            for option in *options {
                assert!(short.contains(&format!("--{option}")), "{name}: {option}");
            }
            let arguments: Vec<String> = called
                .get_arguments()
                .filter(|arg| !arg.is_hide_set())
                .filter_map(|arg| arg.get_long().map(str::to_owned))
                .collect();
            assert!(arguments.iter().all(|option| long.contains(&format!("--{option}"))), "{name}");
        }
    }
}
