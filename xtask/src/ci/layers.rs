//! Proves that the modules of `holdfast-core` use each other downwards only.
//!
//! They stand in [`LAYERS`] from low to high, and a use of a higher one is an arrow that must not be. So no circle of
//! imports grows between them: whoever reads a module needs to know only what stands below it.

use super::imports;

use anyhow::bail;

const CORE: &str = "core/src";

/// From low to high. A file, and what it uses, belongs to the longest entry that its path begins with.
const LAYERS: [&str; 45] = [
    "event",
    "stamp",
    "visible",
    "refusal",
    "ranked",
    "object",
    "select",
    "cel",
    "schema",
    "merge",
    "quota",
    // The bytes of a document, by the schema alone: the state keeps both forms of an object.
    "wire/protobuf",
    "wire/yaml",
    "authz",
    "kinds",
    // Documents of kinds, as a store that is shared with Kubernetes has them.
    "etcd",
    // Documents of kinds, that every cluster begins with.
    "authz/bootstrap_objects",
    // Names kinds that are users.
    "authz/impersonation",
    // Answers kinds that are only asked.
    "authz/reviews",
    "request",
    // Who is registered to look at writes is a projection of the log, as the state is.
    "admission/rules",
    "admission/expressions",
    "admission/registered",
    "state",
    "apply",
    "digest",
    "list",
    "namespace",
    "expiry",
    // Plans writes, which the rest of `authz` knows nothing of.
    "authz/upkeep",
    "apiservices",
    "presence",
    "election",
    "flowcontrol",
    "flowcontrol/upkeep",
    "history",
    // What admission asks for and leads to are effects and writes like all others.
    "admission/call",
    "pipeline/decision",
    "admission/outcome",
    "pipeline/claims",
    "pipeline/effect",
    "admission",
    "pipeline",
    "wire",
    "lib",
];

/// Uses of a higher module that stay, and why.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    ("cel", "schema", "rules of a schema are expressions, and expressions have the formats of schemas as functions"),
    (
        "kinds",
        "authz/bootstrap_objects",
        "what flow control cannot do without is refused any other spec than its first",
    ),
];

pub fn check() -> anyhow::Result<()> {
    let mut faults = Vec::new();
    let mut excused = [false; EXCEPTIONS.len()];
    for source in imports::read(&crate::root().join(CORE))? {
        let module = &source.module;
        let Some(own) = layer(module) else {
            faults.push(format!("{module} stands in no layer: say where in xtask/src/ci/layers.rs"));
            continue;
        };
        for used in &source.uses {
            // A module may hand on what a part of its own has.
            if used.starts_with(&format!("{module}/")) {
                continue;
            }
            let Some(other) = layer(used).filter(|other| *other > own) else { continue };
            let excuse = EXCEPTIONS.iter().position(|(from, to, _)| *from == LAYERS[own] && *to == LAYERS[other]);
            match excuse {
                Some(excuse) => excused[excuse] = true,
                None => faults.push(format!("{module} uses {used}: {} stands above it", LAYERS[other])),
            }
        }
    }
    for ((from, to, why), _) in EXCEPTIONS.iter().zip(excused).filter(|(_, excused)| !excused) {
        faults.push(format!("{from} no longer uses {to}: drop the exception ({why})"));
    }
    if !faults.is_empty() {
        bail!("uses of higher modules in {CORE}:\n{}", faults.join("\n"));
    }
    Ok(())
}

/// The place in [`LAYERS`] of a module, or of what is in it.
fn layer(path: &str) -> Option<usize> {
    let within =
        |layer: &&&str| path.strip_prefix(**layer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let found = LAYERS.iter().filter(within).max_by_key(|layer| layer.len())?;
    LAYERS.iter().position(|layer| layer == found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_stands_in_layers() {
        check().expect("the sources of this checkout");
    }

    #[test]
    fn a_part_of_a_module_may_have_a_layer_of_its_own() {
        let below = |low: &str, high: &str| layer(low).expect(low) < layer(high).expect(high);
        assert!(below("authz/user", "kinds/core/pod"));
        assert!(below("kinds/core/pod", "authz/reviews"));
        assert!(below("state/Entry", "authz/upkeep"));
        assert!(below("wire/protobuf/codec", "state"));
        assert_eq!(layer("eventually"), None);
    }
}
