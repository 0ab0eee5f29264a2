//! Finds the message of an object by its `apiVersion` and `kind`.

use std::collections::BTreeMap;

use crate::schema::{MessageId, Schema};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta";
/// The kinds that every group has in each of its versions.
const SHARED: [&str; 7] =
    ["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];
/// The kinds of the metadata API that only the core group has.
const OF_CORE: [&str; 5] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// The name of the package of each group that has resources.
pub(super) fn packages(schema: &Schema) -> BTreeMap<String, String> {
    let mut packages = BTreeMap::new();
    for resource in &schema.resources {
        let name = &schema.message(resource.message).name;
        if let Some(package) = name.strip_suffix(&format!(".{}.{}", resource.version, resource.kind)) {
            packages.insert(resource.group.clone(), package.to_string());
        }
    }
    packages.insert("meta.k8s.io".to_string(), META.to_string());
    packages
}

pub(super) fn find(
    schema: &Schema,
    packages: &BTreeMap<String, String>,
    api_version: &str,
    kind: &str,
) -> Option<MessageId> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let own = match packages.get(group) {
        Some(package) => schema.id(&format!("{package}.{version}.{kind}")),
        // The schema lists no resources of this group, because the group has only older versions or no stored kinds.
        None => {
            let first = group.split('.').next().unwrap_or_default();
            schema.id(&format!("io.k8s.api.{first}.{version}.{kind}"))
        }
    };
    // Only a message with `apiVersion` and `kind` can be in an envelope. The check also excludes a kind that contains a
    // dot, which could name a message of another package.
    let own = own.filter(|id| schema.message(*id).typed);
    own.or_else(|| {
        let shared = SHARED.contains(&kind) || api_version == "v1" && OF_CORE.contains(&kind);
        // The version v1beta1 of the metadata API differs from v1 only in its lists.
        let meta = shared || (api_version, kind) == ("meta.k8s.io/v1beta1", "PartialObjectMetadata");
        meta.then(|| schema.id(&format!("{META}.v1.{kind}"))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use crate::{schema::schema, wire::protobuf::codec};

    #[test]
    fn kinds_are_found_by_their_names() {
        let cases = [
            ("v1", "Pod", "api.core.v1.Pod"),
            ("v1", "PodList", "api.core.v1.PodList"),
            ("v1", "Binding", "api.core.v1.Binding"),
            ("v1", "Status", "apimachinery.pkg.apis.meta.v1.Status"),
            ("v1", "APIGroup", "apimachinery.pkg.apis.meta.v1.APIGroup"),
            ("apps/v1beta1", "DeploymentRollback", "api.apps.v1beta1.DeploymentRollback"),
            ("apps/v1", "DeleteOptions", "apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            ("example.com/v1", "DeleteOptions", "apimachinery.pkg.apis.meta.v1.DeleteOptions"),
            ("meta.k8s.io/v1", "PartialObjectMetadata", "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata"),
            (
                "meta.k8s.io/v1beta1",
                "PartialObjectMetadataList",
                "apimachinery.pkg.apis.meta.v1beta1.PartialObjectMetadataList",
            ),
            ("meta.k8s.io/v1beta1", "PartialObjectMetadata", "apimachinery.pkg.apis.meta.v1.PartialObjectMetadata"),
            ("autoscaling/v1", "Scale", "api.autoscaling.v1.Scale"),
            ("apps/v1beta2", "Scale", "api.apps.v1beta2.Scale"),
            ("policy/v1", "Eviction", "api.policy.v1.Eviction"),
            ("authentication.k8s.io/v1", "TokenRequest", "api.authentication.v1.TokenRequest"),
            ("extensions/v1beta1", "Ingress", "api.extensions.v1beta1.Ingress"),
            ("internal.apiserver.k8s.io/v1alpha1", "StorageVersion", "api.apiserverinternal.v1alpha1.StorageVersion"),
            (
                "apiextensions.k8s.io/v1beta1",
                "CustomResourceDefinition",
                "apiextensions-apiserver.pkg.apis.apiextensions.v1beta1.CustomResourceDefinition",
            ),
        ];
        for (api_version, kind, message) in cases {
            let found = codec().find(api_version, kind).map(|id| schema().message(id).name.as_str());
            assert_eq!(found, Some(format!("io.k8s.{message}").as_str()), "{api_version} {kind}");
        }
        for (api_version, kind) in [("v1", "Deployment"), ("v1", "PodSpec"), ("", ""), ("example.com/v1", "Widget")] {
            assert_eq!(codec().find(api_version, kind), None, "{api_version} {kind}");
        }
    }

    #[test]
    fn every_version_that_is_served_is_found() {
        for (_, kind) in crate::kinds::registry().iter() {
            for version in &kind.versions {
                let api_version = crate::kinds::api_version(&version.group, &version.version);
                let found = codec().find(&api_version, &kind.kind).map(|id| schema().message(id).name.clone());
                // A version without a message of its own shares the message of another version.
                assert!(found.is_none() || found.as_ref() == Some(&version.message), "{api_version} {}", kind.kind);
                assert!(found.is_some() || version.message.contains("batch"), "{api_version} {}", kind.kind);
            }
        }
    }
}
