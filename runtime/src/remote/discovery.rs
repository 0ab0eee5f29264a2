//! Which resources an API server has whose objects can be listed, watched and deleted, each in its preferred version.

use super::http::{JSON, fault, get};
use holdfast_world::{Refusal, Resource};
use kube::Client;
use serde::Deserialize;

/// Of groups that do not answer, what was known before is kept.
pub(super) async fn discover(client: &Client, known: &[Resource]) -> Result<Vec<Resource>, Refusal> {
    let groups: Groups = read(client, "/apis").await?;
    let mut found = resources(client, "", "v1").await?;
    for group in groups.groups {
        let version = &group.preferred_version.version;
        match resources(client, &group.name, version).await {
            Ok(resources) => found.extend(resources),
            Err(refusal) => {
                tracing::warn!(
                    group = group.name,
                    why = refusal.message,
                    "a group of the API does not say what it has"
                );
                found.extend(known.iter().filter(|known| known.group() == group.name).cloned());
            }
        }
    }
    Ok(found)
}

async fn resources(client: &Client, group: &str, version: &str) -> Result<Vec<Resource>, Refusal> {
    let path = match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    let list: Resources = read(client, &path).await?;
    let is_meant = |resource: &Described| {
        let can = |verb: &&str| resource.verbs.iter().any(|known| known == verb);
        // Events own nothing, are owned by nobody for long, and are many.
        let is_event = resource.kind == "Event";
        !resource.name.contains('/') && !is_event && ["delete", "list", "watch"].iter().all(can)
    };
    let resource = |of: &Described| Resource::new(group, version, &of.name, &of.kind, of.namespaced);
    Ok(list.resources.iter().filter(|resource| is_meant(resource)).map(resource).collect())
}

async fn read<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, Refusal> {
    serde_json::from_slice(&get(client, path, JSON).await?).map_err(fault)
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    name: String,
    preferred_version: Version,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

#[derive(Deserialize)]
struct Resources {
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
