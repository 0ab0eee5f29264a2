//! The present and former templates of a StatefulSet or DaemonSet, as ControllerRevisions.
//!
//! `kubectl rollout history` and `undo` read them, so their form is fixed: the template, as a strategic merge patch
//! that replaces it.

use crate::claim;
use crate::hash;
use crate::subject::{self, Subject};
use holdfast_core::schema::spelling;
use holdfast_value::{Value, json};
use holdfast_world::views::ControllerRevision;
use holdfast_world::{Action, Key, Plan, Selector, Text, Verb, View, Viewed, World};

/// The label of a pod with the hash of its revision.
pub const POD_REVISION: &str = "controller-revision-hash";
const NAME_MAX: usize = 253;
/// Longer names of owners are cut to this many characters before the hash is added.
const BASE_MAX: usize = 223;

/// The revisions of one owner, oldest first, and the revision of its present template.
pub struct Revisions<'w> {
    pub known: Vec<Viewed<'w, ControllerRevision>>,
    pub present: PresentRevision<'w>,
    /// How many names for new revisions were already taken so far, including the number in the owner's status.
    pub collisions: i64,
}

/// The revision of the owner's present template: it exists already or is to be created.
pub enum PresentRevision<'w> {
    Known(Viewed<'w, ControllerRevision>),
    New { name: Text },
}

impl PresentRevision<'_> {
    pub fn name(&self) -> &str {
        match self {
            PresentRevision::Known(seen) => &seen.meta().name,
            PresentRevision::New { name } => name,
        }
    }

    /// The revision's hash, from its label or from the end of its name.
    pub fn label(&self, hash_label: &str) -> &str {
        let known = match self {
            PresentRevision::Known(seen) => seen.meta().label(hash_label),
            PresentRevision::New { .. } => None,
        };
        known.unwrap_or_else(|| self.name().rsplit_once('-').map_or("", |(_, hash)| hash))
    }
}

/// Finds the revision of the owner's template or plans its creation, and gives it the highest number. `hash_label` is
/// the name of the label that contains a revision's hash.
pub fn find_or_create<'w>(
    world: &'w World,
    owner: Subject<'w>,
    selector: &Selector,
    hash_label: &str,
    collisions: i64,
    plan: &mut Plan,
) -> Revisions<'w> {
    let candidates = claim::candidates::<ControllerRevision>(world, owner, selector);
    let claims = claim::claim(owner, candidates, |meta| selector.matches(meta));
    plan.together(claims.actions);
    let mut known = claims.mine;
    known.sort_by_key(|seen| (seen.revision, seen.meta().creation_timestamp, seen.meta().name.as_str()));
    let template = subject::part(owner.object, &["spec", "template"]);
    let data = data_of(&template);
    let next = known.last().map_or(1, |newest| newest.revision.saturating_add(1));
    let equal = known.iter().rposition(|seen| has_data(seen, &data));
    if let Some(index) = equal {
        let seen = known[index];
        if index + 1 < known.len() {
            let mut document = seen.object.document();
            document["revision"] = next.into();
            plan.then(Subject::from(seen).update(document));
        }
        return Revisions { known, present: PresentRevision::Known(seen), collisions };
    }
    let (key, hash, collisions) = free_name(world, owner, &template, collisions);
    let document = document(owner, hash_label, &template, data, (&key, &hash, next));
    plan.then(Action::new(ControllerRevision::resource(), key.clone(), Verb::Create(document)));
    Revisions { known, present: PresentRevision::New { name: key.name }, collisions }
}

/// A name and hash for a new revision, and the number of collisions. A name that is taken belongs to another template
/// or another owner, so the next hash is tried.
fn free_name(world: &World, owner: Subject<'_>, template: &Value, mut collisions: i64) -> (Key, String, i64) {
    let meta = &owner.object.meta;
    loop {
        let hash = hash::of(template, collisions);
        let base: String = meta.name.chars().take(BASE_MAX.min(NAME_MAX - hash.len() - 1)).collect();
        let key = Key::new(&meta.namespace, &format!("{base}-{hash}"));
        if world.get::<ControllerRevision>(&key).is_none() {
            return (key, hash, collisions);
        }
        collisions = collisions.saturating_add(1);
    }
}

fn document(
    owner: Subject<'_>,
    hash_label: &str,
    template: &Value,
    data: Value,
    (key, hash, revision): (&Key, &str, i64),
) -> Value {
    let mut labels = template["metadata"]["labels"].clone();
    labels[hash_label] = hash.into();
    let mut metadata = json!({
        "name": &*key.name,
        "namespace": &*key.namespace,
        "labels": labels,
        "ownerReferences": [owner.reference()],
    });
    if !owner.object.meta.annotations.is_empty() {
        metadata["annotations"] = json!(*owner.object.meta.annotations);
    }
    json!({
        "apiVersion": ControllerRevision::resource().api_version(),
        "kind": ControllerRevision::resource().kind(),
        "metadata": metadata,
        "data": data,
        "revision": revision,
    })
}

/// Whether a revision has this template. Quantities that are written differently but have equal values count as equal.
fn has_data(seen: &ControllerRevision, data: &Value) -> bool {
    let template = |data: &Value| data["spec"]["template"].clone();
    seen.data == *data || spelling::is_same(spelling::pod_template(), &template(&seen.data), &template(data))
}

fn data_of(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = "replace".into();
    json!({"spec": {"template": template}})
}

/// The template that a revision contains.
pub fn template_of(revision: &ControllerRevision) -> Value {
    let mut template = revision.data["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// Deletes the first `surplus` of these revisions, which come oldest first.
pub fn forget<'w>(unused: impl Iterator<Item = Viewed<'w, ControllerRevision>>, surplus: usize, plan: &mut Plan) {
    let oldest = unused.take(surplus).filter(|seen| !seen.meta().is_deleting());
    plan.together(oldest.map(|seen| Subject::from(seen).delete()).collect());
}

/// How many unused revisions are kept, from the owner's `revisionHistoryLimit`: all if it is negative, 10 if it is
/// absent.
pub fn limit(limit: Option<i64>) -> usize {
    limit.map_or(10, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}
