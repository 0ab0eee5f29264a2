//! Discovers the resources of an API server whose objects can be listed, watched and deleted, each in its preferred
//! version. Also discovers the kinds that the server serves, each with its versions.

use super::http::{JSON, fault, get};
use holdfast_world::{Refusal, Resource, Served};
use kube::Client;
use serde::Deserialize;

/// What discovery has found on a server.
#[derive(Debug, Default)]
pub(super) struct Discovered {
    pub resources: Vec<Resource>,
    /// The kinds that the server serves, in all their versions.
    pub served: Served,
}

/// Reads the resources and kinds. If a group does not answer, its resources in `known` are kept.
pub(super) async fn discover(client: &Client, known: &[Resource]) -> Result<Discovered, Refusal> {
    let groups: ApiGroups = read(client, "/apis").await?;
    let mut found = Discovered::default();
    found.add(client, "", "v1", true).await?;
    for group in groups.groups {
        let preferred = &group.preferred_version.version;
        let others = group.versions.iter().map(|of| &of.version).filter(|version| *version != preferred);
        for version in [preferred].into_iter().chain(others) {
            let is_preferred = version == preferred;
            let Err(refusal) = found.add(client, &group.name, version, is_preferred).await else { continue };
            let (group, why) = (&group.name, &refusal.message);
            tracing::warn!(group, version, why, "the resources of an API group cannot be listed");
            if is_preferred {
                found.resources.extend(known.iter().filter(|known| known.group() == group).cloned());
            }
        }
    }
    Ok(found)
}

impl Discovered {
    /// Adds the resources of one version of a group.
    async fn add(&mut self, client: &Client, group: &str, version: &str, is_preferred: bool) -> Result<(), Refusal> {
        let path = match group {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let list: ApiResources = read(client, &path).await?;
        let own = list.resources.iter().filter(|resource| !resource.name.contains('/'));
        self.served.extend(own.clone().map(|of| (group.into(), version.into(), of.kind.as_str().into())));
        if is_preferred {
            // The resources of Events are left out, because Events own no objects, are short-lived, and are numerous.
            let can = |of: &Described, verb: &str| of.verbs.iter().any(|known| known == verb);
            let is_meant =
                |of: &&Described| of.kind != "Event" && ["delete", "list", "watch"].iter().all(|verb| can(of, verb));
            let resource = |of: &Described| Resource::new(group, version, &of.name, &of.kind, of.namespaced);
            self.resources.extend(own.filter(is_meant).map(resource));
        }
        Ok(())
    }
}

async fn read<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, Refusal> {
    serde_json::from_slice(&get(client, path, JSON).await?).map_err(fault)
}

#[derive(Deserialize)]
struct ApiGroups {
    #[serde(default)]
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup {
    name: String,
    preferred_version: DiscoveredVersion,
    #[serde(default)]
    versions: Vec<DiscoveredVersion>,
}

#[derive(Deserialize)]
struct DiscoveredVersion {
    version: String,
}

#[derive(Deserialize)]
struct ApiResources {
    #[serde(default)]
    resources: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    name: String,
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
}
