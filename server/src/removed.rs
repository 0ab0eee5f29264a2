//! Options of features that Kubernetes has removed.
//!
//! They are refused by name, with the reason: ignoring them silently would mislead, and "unexpected argument" would
//! suggest a misspelling.

use std::ffi::OsString;

/// The arguments that name a removed option, each with the reason why the server cannot start with it.
pub fn refused<'a>(args: &'a [OsString], removed: &[Removed]) -> Vec<(&'a str, String)> {
    let options = args.iter().take_while(|arg| *arg != "--").filter_map(|arg| arg.to_str());
    let named = options.filter_map(|option| {
        let name = option.strip_prefix("--")?.split('=').next()?;
        let at = removed.binary_search_by(|(removed, _)| (*removed).cmp(canonical(name).as_str())).ok()?;
        Some((name, format!("the option --{name} was removed: {}", removed[at].1)))
    });
    named.collect()
}

/// The name as Kubernetes spells it: with dashes, and with the names that placeholders stand for.
fn canonical(name: &str) -> String {
    let mut name = name.replace('_', "-");
    for (placeholder, real) in PLACEHOLDERS {
        name = name.replace(placeholder, real);
    }
    name
}

const PLACEHOLDERS: &[(&str, &str)] = &[
    ("<vendor>-", "kubernetes-"),
    ("<cloud>", "gce"),
    ("nodeagent-", "kubelet-"),
    ("coreconfig", "kubeconfig"),
    ("core-api-", "kube-api-"),
];

/// An option and the reason why it is refused.
pub type Removed = (&'static str, &'static str);

const SSH: &str = "Kubernetes removed SSH tunnels to nodes in 1.22; use proxies, with --egress-selector-config-file";

/// The removed options of the API server, sorted.
pub const API_SERVER: &[Removed] = &[("ssh-keyfile", SSH), ("ssh-user", SSH)];

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(args: &[&str]) -> Option<String> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        refused(&args, API_SERVER).into_iter().next().map(|(_, why)| why)
    }

    #[test]
    fn the_table_is_sorted() {
        assert!(API_SERVER.is_sorted_by(|a, b| a.0 < b.0), "the search needs it, and none twice");
    }

    #[test]
    fn options_are_refused_in_the_spelling_that_was_used() {
        for (option, name) in
            [("--ssh-user=c", "ssh-user"), ("--ssh-keyfile", "ssh-keyfile"), ("--ssh_keyfile=c", "ssh_keyfile")]
        {
            let expected = format!("the option --{name} was removed: ");
            let found = refusal(&["holdfast", "apiserver", "--secure-port=0", option]).expect(option);
            assert!(found.starts_with(&expected), "{found}");
        }
    }

    #[test]
    fn what_is_there_or_unknown_or_no_option_passes() {
        for args in [
            &["holdfast", "up"][..],
            &["--etcd-servers-overrides=/events#http://a:1"],
            &["--no-such-option"],
            &["--ssh-userx"],
            &["ssh-user", "-ssh-user"],
            &["--", "--ssh-user"],
            &["--data-dir=--ssh-user"],
            &[],
        ] {
            assert_eq!(refusal(args), None, "{args:?}");
        }
    }
}
