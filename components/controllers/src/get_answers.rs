//! Answers to GET requests, which controllers read in addition to the world: the scales of objects of any kind, and
//! metrics.

use holdfast_value::Value;
use holdfast_world::views::Definition;
use holdfast_world::{Key, Refusal, World};
use std::collections::HashMap;

/// The path of a GET request whose answer is needed before the plan can be made.
#[derive(Debug, PartialEq, Eq)]
pub struct NeedsGet(pub String);

/// For each key that is being planned, the answers to its GET requests by path. The answers are kept until the key's
/// plan is made.
#[derive(Debug, Default)]
pub struct GetAnswers(HashMap<Key, HashMap<String, Result<Value, Refusal>>>);

/// What a plan for one key reads: the world, and the answers to the GET requests of the key.
#[derive(Clone, Copy)]
pub struct PlanInput<'a> {
    world: &'a World,
    answers: Option<&'a HashMap<String, Result<Value, Refusal>>>,
}

/// The name of the index of CustomResourceDefinitions by the kind that they define.
const KINDS: &str = "kinds";

/// Makes the index of CustomResourceDefinitions by the kind that they define.
pub fn index(world: &mut World) {
    world.index::<Definition>(KINDS, |object| match object.view::<Definition>() {
        Some(Definition { spec }) => vec![format!("{}/{}", spec.group, spec.names.kind).into()],
        None => Vec::new(),
    });
}

impl GetAnswers {
    pub fn store(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.0.entry(key.clone()).or_default().insert(path.to_owned(), answer);
    }

    pub fn of<'a>(&'a self, world: &'a World, key: &Key) -> PlanInput<'a> {
        PlanInput { world, answers: self.0.get(key) }
    }

    /// Drops the answers to the requests of a key, so that the key's next plan reads everything again.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

/// Built-in kinds whose objects have a subresource `scale`: the group, the group and version, the kind and the plural.
const SCALABLE: [(&str, &str, &str, &str); 4] = [
    ("apps", "apps/v1", "Deployment", "deployments"),
    ("apps", "apps/v1", "ReplicaSet", "replicasets"),
    ("apps", "apps/v1", "StatefulSet", "statefulsets"),
    ("", "v1", "ReplicationController", "replicationcontrollers"),
];

/// A kind's plural, and whether its objects have the subresource `scale`.
pub struct Scalable {
    pub plural: String,
    pub has_scale: bool,
}

impl<'a> PlanInput<'a> {
    pub fn get(self, path: &str) -> Result<Result<&'a Value, &'a Refusal>, NeedsGet> {
        match self.answers.and_then(|answers| answers.get(path)) {
            Some(answer) => Ok(answer.as_ref()),
            None => Err(NeedsGet(path.to_owned())),
        }
    }

    /// Returns `None` if the API server does not serve the kind.
    pub fn scalable(self, api_version: &str, kind: &str) -> Result<Option<Scalable>, NeedsGet> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if let Some((_, plural)) = built_in(group, kind) {
            return Ok(Some(Scalable { plural: plural.to_owned(), has_scale: true }));
        }
        if let Some(definition) = self.world.indexed::<Definition>(KINDS, &format!("{group}/{kind}")).next() {
            let plural = definition.spec.names.plural.clone();
            return Ok(Some(Scalable { plural, has_scale: definition.has_scale(version) }));
        }
        // No CustomResourceDefinition defines the kind. Either an aggregated API server serves the kind, or it is a
        // built-in kind without a scale, or it does not exist: the server's list of resources decides.
        let Ok(list) = self.get(&version_path(api_version))? else { return Ok(None) };
        let resources = || list["resources"].as_array().into_iter().flatten();
        let names = resources().filter_map(|resource| Some((resource["name"].as_str()?, &resource["kind"])));
        let found = names.into_iter().find(|(name, of)| !name.contains('/') && *of == kind).map(|(name, _)| name);
        Ok(found.map(|plural| {
            let scale = format!("{plural}/scale");
            let has_scale = resources().any(|resource| resource["name"] == scale.as_str());
            Scalable { plural: plural.to_owned(), has_scale }
        }))
    }

    /// A version in which a kind is served, and the kind's plural: the named version if it is served, otherwise another
    /// version. Returns `None` if the group does not have the kind.
    pub fn served(self, api_version: &str, kind: &str) -> Result<Option<(String, String)>, NeedsGet> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if let Some((version, plural)) = built_in(group, kind) {
            return Ok(Some((version.to_owned(), plural.to_owned())));
        }
        if let Some(definition) = self.world.indexed::<Definition>(KINDS, &format!("{group}/{kind}")).next() {
            let version = definition.spec.served(version);
            return Ok(version.map(|version| (format!("{group}/{version}"), definition.spec.names.plural.clone())));
        }
        if let Some(found) = self.scalable(api_version, kind)? {
            return Ok(Some((api_version.to_owned(), found.plural)));
        }
        let preferred = match group {
            "" => "v1".to_owned(),
            group => match self.get(&format!("/apis/{group}"))? {
                Ok(group) => group["preferredVersion"]["groupVersion"].as_str().unwrap_or_default().to_owned(),
                Err(_) => return Ok(None),
            },
        };
        let found = if preferred == api_version { None } else { self.scalable(&preferred, kind)? };
        Ok(found.map(|found| (preferred, found.plural)))
    }
}

/// The version and plural of a built-in kind whose objects have the subresource `scale`.
fn built_in(group: &str, kind: &str) -> Option<(&'static str, &'static str)> {
    let found = SCALABLE.iter().find(|(of, _, name, _)| *of == group && *name == kind);
    found.map(|(_, version, _, plural)| (*version, *plural))
}

fn version_path(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// The path of the subresource `scale` of an object.
pub fn scale_path(api_version: &str, namespace: &str, plural: &str, name: &str) -> String {
    format!("{}/namespaces/{namespace}/{plural}/{name}/scale", version_path(api_version))
}

/// The path of the pods of a namespace that a selector selects.
pub fn pods_path(namespace: &str, selector: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods?labelSelector={}", escape(selector))
}

/// Escapes a text so that it can be part of a path or a query in a URL.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~*".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
