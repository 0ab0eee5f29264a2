//! Proves that the modules of `holdfast-core` import only modules in lower layers.
//!
//! [`LAYERS`] lists the modules from low to high, and importing a higher module is an error. So modules do not import
//! each other in circles: a reader of a module must know only the modules below it.

use super::imports;

use anyhow::bail;

const CORE: &str = "core/src";

/// The layers from low to high. A file belongs to the longest entry with which its path begins.
const LAYERS: [&str; 47] = [
    "event",
    "stamp",
    "visible",
    "refusal",
    "cached",
    "ranked",
    "object",
    "select",
    "cel",
    "schema",
    "merge",
    "quota",
    // This module encodes documents by the schema alone, because the state stores both forms of an object.
    "wire/protobuf",
    "wire/yaml",
    "authz",
    "kinds",
    // This module converts documents of kinds for a store that is shared with Kubernetes.
    "etcd",
    // This module has the objects that every new cluster contains.
    "authz/bootstrap_objects",
    // This module names kinds that represent users.
    "authz/impersonation",
    // This module answers kinds that exist only as requests.
    "authz/reviews",
    "request",
    // The registered webhooks and policies are a projection of the log, like the state.
    "admission/rules",
    "admission/expressions",
    "admission/registered",
    "state",
    "apply",
    "digest",
    "list",
    "namespace",
    "expiry",
    // This module plans writes; the rest of `authz` does not use writes.
    "authz/upkeep",
    "apiservices",
    "presence",
    // This module makes Events in the same way as `presence` makes objects.
    "amends",
    "election",
    "flowcontrol",
    "flowcontrol/upkeep",
    "history",
    // Admission's requests and results use the effects and decisions of any write.
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

/// Imports of a higher module that are allowed, and the reason.
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
            faults.push(format!("{module} stands in no layer: say where in tools/xtask/src/ci/layers.rs"));
            continue;
        };
        for used in &source.uses {
            // A module may re-export items of its child modules.
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

/// The layer of a module, or of the module that contains it.
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
