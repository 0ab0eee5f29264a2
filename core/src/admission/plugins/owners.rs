//! OwnerReferencesPermissionEnforcement: changing owner references needs permission to delete the object, and blocking
//! an owner's deletion needs permission to finalize the owner.

use super::pods::list;
use crate::admission::{Attributes, Operation};
use crate::authz::ResourceTarget;
use crate::kinds::known::POD;
use crate::pipeline::effect::Stop;
use holdfast_value::Value;

pub(super) fn validate(attributes: &mut Attributes) -> Result<(), Stop> {
    let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
    if !writes || (attributes.is_on(POD) && attributes.subresource() == "status") {
        return Ok(());
    }
    let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
    let (new, old) = (owners(&attributes.object), owners(attributes.old));
    let changed = match attributes.operation {
        Operation::Create => list(&new).next().is_some(),
        _ => new != old,
    };
    if !changed {
        return Ok(());
    }
    // The creator of an object may set its owners freely.
    if attributes.operation == Operation::Update {
        may_delete(attributes)?;
    }
    let blocks = |reference: &&Value| reference["blockOwnerDeletion"] == true;
    let was_blocking = |reference: &Value| list(&old).filter(blocks).any(|old| old["uid"] == reference["uid"]);
    for reference in list(&new).filter(blocks).filter(|reference| !was_blocking(reference)) {
        may_finalize(attributes, reference)?;
    }
    Ok(())
}

fn may_delete(attributes: &Attributes) -> Result<(), Stop> {
    let version = &attributes.kind.versions[attributes.request.target.version];
    let target = ResourceTarget {
        group: &version.group,
        version: &version.version,
        resource: &attributes.kind.resource,
        subresource: "",
        namespace: attributes.namespace(),
        name: attributes.name(),
        selected: None,
    };
    demand(attributes, "delete", target, "cannot set an ownerRef on a resource you can't delete")
}

/// Requires a permission of the user. The authorizers' reason and error are printed as Go does.
fn demand(attributes: &Attributes, verb: &str, target: ResourceTarget, otherwise: &str) -> Result<(), Stop> {
    let judged = attributes.judged(verb, target);
    if judged.is_allowed() {
        return Ok(());
    }
    let error = judged.error().unwrap_or_else(|| "<nil>".to_owned());
    Err(attributes.forbidden(format!("{otherwise}: {}, {error}", judged.reason())))
}

fn may_finalize(attributes: &Attributes, reference: &Value) -> Result<(), Stop> {
    let text = |field: &str| reference[field].as_str().unwrap_or("");
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let refused = |why: &str| attributes.forbidden(format!("cannot set blockOwnerDeletion in this case because {why}"));
    let Some((owner, _)) = attributes.state.registry.find_kind(group, version, kind) else {
        return Err(refused(&format!(
            "cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind \"{kind}\" in version \"{api_version}\""
        )));
    };
    let owner = attributes.state.kind(owner);
    let target = ResourceTarget {
        group,
        version,
        resource: &owner.resource,
        subresource: "finalizers",
        namespace: if owner.is_namespaced() { attributes.namespace() } else { "" },
        name: text("name"),
        selected: None,
    };
    let otherwise =
        "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
    demand(attributes, "update", target, otherwise)
}
