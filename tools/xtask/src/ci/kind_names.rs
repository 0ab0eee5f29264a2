//! Proves that no module outside `core/src/kinds` refers to a kind by its name.
//!
//! The names are read from the definitions of the kinds. A string literal that equals a kind's name or plural is an
//! error anywhere else, except in tests and for the listed exceptions.

use super::sources::{production, sources};
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, bail};

/// The folder with the definitions of the kinds.
const KINDS: &str = "core/src/kinds";
/// The folders to check. The scheduler, the controllers and their shared views are not checked, because their subject
/// is certain kinds.
const LOOKED_AT: [&str; 10] = [
    "core/src",
    "engine/src",
    "api/src",
    "edge/outbound/src",
    "tools/chronicle/src",
    "server/src",
    "transport-http/src",
    "storage-etcd/src",
    "storage-rocks/src",
    "components/base/src",
];

/// Words that are allowed in files whose path contains `within`, and the reason. The list may only shrink: an unused
/// entry is an error.
struct Allowed {
    within: &'static str,
    words: &'static [&'static str],
    why: &'static str,
}

const ALLOWED: &[Allowed] = &[
    Allowed { within: "server/src/help.rs", words: &["nodes"], why: "a command and an option have this name" },
    Allowed {
        within: "core/src/authz/bootstrap",
        words: &[
            "ClusterRole",
            "ClusterRoleBinding",
            "Endpoints",
            "EndpointSlice",
            "Namespace",
            "PriorityClass",
            "Role",
            "RoleBinding",
            "Service",
            "ServiceAccount",
            "ServiceCIDR",
            "endpoints",
            "namespaces",
        ],
        why: "the objects that every cluster begins with are documents, and a document names its kind",
    },
    Allowed {
        within: "core/src/authz/role.rs",
        words: &[
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
            "ServiceAccount",
            "clusterrolebindings",
            "clusterroles",
            "rolebindings",
            "roles",
        ],
        why: "a binding calls the kinds of its role and subjects so in its document, and refusals say it",
    },
    Allowed { within: "core/src/presence.rs", words: &["endpoints"], why: "a field of an EndpointSlice" },
    Allowed {
        within: "api/src/metrics/admission.rs",
        words: &["namespaces", "pods"],
        why: "a metric tells pod security's resources apart by these labels",
    },
    Allowed {
        within: "api/src/fairness/dump.rs",
        words: &["Namespace", "namespaces"],
        why: "a column of a table, and a part of a path",
    },
    Allowed { within: "core/src/authz/chain.rs", words: &["Node"], why: "an authorization mode is called so" },
    Allowed {
        within: "core/src/admission/plugins/node_restriction.rs",
        words: &["clustertrustbundles", "configmaps", "persistentvolumeclaims", "resourceclaims", "secrets"],
        why: "refusals say what a pod must not name",
    },
    Allowed {
        within: "core/src/authz/nodes",
        words: &[
            "configmaps",
            "csinodes",
            "leases",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "podcertificaterequests",
            "pods",
            "resourceclaims",
            "resourceslices",
            "secrets",
            "serviceaccounts",
            "volumeattachments",
        ],
        why: "what a node may do is a table by resource, as a role is",
    },
    Allowed {
        within: "core/src/object/validate.rs",
        words: &["Event"],
        why: "an owner is named by version and kind, whether this server has such a kind or not",
    },
    Allowed {
        within: "core/src/wire/openapi/enums.rs",
        words: &[
            "EndpointSlice",
            "Ingress",
            "PriorityClass",
            "ServiceAccount",
            "StorageClass",
            "VolumeAttributesClass",
        ],
        why: "names of messages of the schema, and values of their enumerations",
    },
    Allowed { within: "core/src/apiservices/resolve.rs", words: &["endpoints"], why: "a field of an EndpointSlice" },
    Allowed {
        within: "transport-http/src/",
        words: &["namespaces"],
        why: "a part of every namespaced path, whatever its kind",
    },
    Allowed {
        within: "core/src/admission/plugins/pod_security",
        words: &["namespaces"],
        why: "the field of its configuration that lists exemptions",
    },
    Allowed {
        within: "core/src/admission/plugins/event_rate",
        words: &["Namespace"],
        why: "a type of limit in its configuration",
    },
    Allowed {
        within: "tools/chronicle/src/history/scheduling.rs",
        words: &["pods", "nodes"],
        why: "explains where pods lie on nodes",
    },
    Allowed {
        within: "server/src/inside.rs",
        words: &["subjectaccessreviews", "SubjectAccessReview"],
        why: "asks the API as a client",
    },
    Allowed {
        within: "components/base/src/authentication.rs",
        words: &["TokenReview"],
        why: "asks the API as a client",
    },
    Allowed {
        within: "components/base/src/authorization.rs",
        words: &["SubjectAccessReview"],
        why: "asks the API as a client",
    },
    Allowed { within: "components/base/src/options.rs", words: &["leases"], why: "a value of an option" },
    Allowed {
        within: "components/base/src/election/lock.rs",
        words: &["Lease", "leases", "Endpoints", "endpoints", "ConfigMap", "configmaps"],
        why: "what a component locks through the API, as a client",
    },
    Allowed { within: "components/base/src/election/run.rs", words: &["Event"], why: "asks the API as a client" },
    Allowed {
        within: "components/base/src/gates",
        words: &[
            "CSIStorageCapacity",
            "ClusterTrustBundle",
            "EndpointSlice",
            "MutatingAdmissionPolicy",
            "PodCertificateRequest",
            "PodDisruptionBudget",
            "RuntimeClass",
            "ValidatingAdmissionPolicy",
            "VolumeAttributesClass",
        ],
        why: "feature gates that are called so",
    },
    Allowed {
        within: "core/src/admission/plugins/mod.rs",
        words: &[
            "MutatingAdmissionPolicy",
            "ResourceQuota",
            "RuntimeClass",
            "ServiceAccount",
            "ValidatingAdmissionPolicy",
        ],
        why: "admission plug-ins that are called so",
    },
    Allowed {
        within: "core/src/admission/plugins/limit_range.rs",
        words: &["Pod"],
        why: "what a limit is for, as a LimitRange says it",
    },
    Allowed {
        within: "core/src/admission/plugins/service_account.rs",
        words: &["secrets"],
        why: "a field of an account",
    },
    Allowed { within: "transport-http/src/tokens/legacy.rs", words: &["secrets"], why: "a field of an account" },
    Allowed { within: "server/src/up.rs", words: &["ServiceAccount"], why: "an admission plug-in that is called so" },
    Allowed { within: "tools/chronicle/src/", words: &["events"], why: "a count of the log's events in a report" },
    Allowed {
        within: "engine/src/log/suite",
        words: &["configmaps", "events", "nodes", "pods", "podtemplates", "services"],
        why: "a test of logs, which writes events of kinds by their places in storage",
    },
    Allowed {
        within: "storage-rocks/src/key.rs",
        words: &["events"],
        why: "where the log's events stand in the store",
    },
];

pub fn check() -> anyhow::Result<()> {
    let root = crate::root();
    let names = names(&root)?;
    let mut found = Vec::new();
    for folder in LOOKED_AT {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files)?;
        for file in files {
            let path = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            if path.starts_with(KINDS) {
                continue;
            }
            let text = std::fs::read_to_string(&file).with_context(|| format!("read {path}"))?;
            for (line, word) in named(&text, &names) {
                found.push((path.clone(), line, word));
            }
        }
    }
    let is_allowed =
        |path: &str, word: &str| ALLOWED.iter().any(|entry| path.contains(entry.within) && entry.words.contains(&word));
    let mut faults: Vec<String> = found
        .iter()
        .filter(|(path, _, word)| !is_allowed(path, word))
        .map(|(path, line, word)| format!("{path}:{line} names {word:?}: it belongs to the kind, as a value"))
        .collect();
    for Allowed { within, words, why } in ALLOWED {
        for word in *words {
            if !found.iter().any(|(path, _, named)| path.contains(within) && named == word) {
                faults.push(format!("{word:?} no longer stands in {within}: drop it from the list ({why})"));
            }
        }
    }
    if !faults.is_empty() {
        bail!("names of kinds outside {KINDS}:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// Every kind and plural with which a definition in the folder of kinds begins.
fn names(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut files = Vec::new();
    sources(&root.join(KINDS), &mut files)?;
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        for (_, line) in production(&text) {
            for start in ["Kind::namespaced(", "Kind::cluster("] {
                let arguments = line.split(start).skip(1);
                names.extend(
                    arguments.flat_map(|rest| literals(rest).into_iter().take(2)).filter(|name| !name.is_empty()),
                );
            }
        }
    }
    // If the syntax of definitions changes, this check must fail instead of finding no names.
    if names.len() < 100 {
        bail!("only {} names of kinds were found in {KINDS}", names.len());
    }
    Ok(names)
}

/// The names that are whole string literals, with their lines.
fn named(text: &str, names: &BTreeSet<String>) -> Vec<(usize, String)> {
    let literals =
        production(text).into_iter().flat_map(|(line, code)| literals(code).into_iter().map(move |word| (line, word)));
    literals.filter(|(_, word)| names.contains(word)).collect()
}

/// The string literals of one line.
fn literals(line: &str) -> Vec<String> {
    let (mut found, mut current, mut escaped) = (Vec::new(), None::<String>, false);
    for letter in line.chars() {
        match (&mut current, letter) {
            (Some(text), letter) if escaped => {
                text.push(letter);
                escaped = false;
            }
            (Some(_), '\\') => escaped = true,
            (Some(_), '"') => found.extend(current.take()),
            (Some(text), letter) => text.push(letter),
            (None, '"') => current = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_kinds_names_one() {
        check().expect("the sources of this checkout");
    }

    #[test]
    fn names_are_found_as_whole_literals_of_production_code() {
        let names = BTreeSet::from(["Pod".to_owned(), "pods".to_owned()]);
        let text = concat!(
            "// \"Pod\" in a comment\n",
            "if kind == \"Pod\" {}\n",
            "say(\"a Pod\"); find(\"\", \"v1\", \"pods\");\n",
            "#[cfg(test)]\n",
            "mod tests {\n",
            "    const A: &str = \"Pod\";\n",
            "}\n",
        );
        assert_eq!(named(text, &names), [(2, "Pod".to_owned()), (3, "pods".to_owned())]);
    }

    #[test]
    fn an_escaped_quote_ends_no_literal() {
        assert_eq!(literals(r#"a("x \"y\" z", "b")"#), [r#"x "y" z"#, "b"]);
    }

    #[test]
    fn the_names_of_the_table_are_read() {
        let names = names(&crate::root()).expect("the folder of kinds");
        for name in ["Pod", "pods", "CustomResourceDefinition", "SelfSubjectRulesReview", "endpointslices"] {
            assert!(names.contains(name), "{name}");
        }
    }
}
