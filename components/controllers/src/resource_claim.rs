//! Creates ResourceClaims from the templates that pods name, and releases the devices of claims that no pod uses any
//! more.

use crate::claim::{self, names_kind};
use crate::get_answers::{GetAnswers, NeedsGet, PlanInput};
use crate::subject::{Subject, part};
use holdfast_value::{Value, json};
use holdfast_world::views::device::Consumer;
use holdfast_world::views::pod::PodClaim;
use holdfast_world::views::{Pod, ResourceClaim, ResourceClaimTemplate};
use holdfast_world::{
    Action, Change, Controller, Key, Keys, Plan, Refusal, Refused, Resource, Stamp, Verb, View, Viewed, World,
};
use std::collections::{BTreeMap, HashMap};

const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The field manager with which this controller writes the names of claims into a pod's status.
const MANAGER: &str = "ResourceClaimController";
/// Keys with this prefix name claims; all other keys name pods.
const CLAIM: &str = "claim:";
/// The longest prefix of a generated name, in characters, with which the whole name is still a valid label value.
const BASE_MAX: usize = 57;

/// Each plan is for one pod or one claim.
#[derive(Default)]
pub struct ResourceClaims {
    answers: GetAnswers,
}

impl Controller for ResourceClaims {
    fn name(&self) -> &'static str {
        "resourceclaim-controller"
    }

    fn queue(&self) -> &'static str {
        "resource_claim"
    }

    fn account(&self) -> &'static str {
        "resource-claim-controller"
    }

    fn component(&self) -> &'static str {
        "resource_claim"
    }

    fn resources(&self) -> Vec<Resource> {
        vec![Pod::resource().clone(), ResourceClaim::resource().clone(), ResourceClaimTemplate::resource().clone()]
    }

    fn concerns(&mut self, world: &World, change: &Change, keys: &mut Keys) {
        let namespace = &change.key.namespace;
        if change.is_of::<Pod>() {
            let sides = [change.before::<Pod>(), change.after::<Pod>()];
            if !sides.iter().flatten().any(|pod| pod.claims_devices()) {
                return;
            }
            keys.add(change.key.clone());
            for pod in sides.iter().flatten() {
                pod.claim_names().for_each(|name| keys.add(claim_key(namespace, name)));
                let owned = world.owned::<ResourceClaim>(&pod.meta().uid);
                owned.for_each(|claim| keys.add(claim_key(namespace, &claim.meta().name)));
            }
        } else if change.is_of::<ResourceClaim>() {
            keys.add(claim_key(namespace, &change.key.name));
            let owner =
                change.newest().and_then(|claim| claim.meta.controller()).filter(|owner| names_kind::<Pod>(owner));
            owner.into_iter().for_each(|owner| keys.add(Key::new(namespace, &owner.name)));
        }
    }

    fn plan(&mut self, world: &World, key: &Key, _: Stamp) -> Plan {
        let mut plan = Plan::default();
        match key.name.strip_prefix(CLAIM) {
            Some(name) => {
                if let Some(claim) = world.get::<ResourceClaim>(&Key::new(&key.namespace, name)) {
                    plan_claim(world, claim, &mut plan);
                }
            }
            None => {
                let pod = world.get::<Pod>(key).filter(|pod| !is_done(pod) && !pod.meta().is_deleting());
                let read = self.answers.of(world, key);
                if let Some(Err(NeedsGet(path))) = pod.map(|pod| plan_pod(world, pod, read, &mut plan)) {
                    return Plan { gets: vec![path], ..Plan::default() };
                }
                self.answers.forget(key);
            }
        }
        plan
    }

    fn answered(&mut self, key: &Key, path: &str, answer: Result<Value, Refusal>) {
        self.answers.store(key, path, answer);
    }

    fn refused(&mut self, world: &World, key: &Key, refused: &[Refused], _: Stamp) -> Plan {
        let Some(pod) = world.get::<Pod>(key) else { return Plan::default() };
        let note = |Refused { action, refusal }: &Refused| {
            let Verb::Create(body) = &action.verb else { return None };
            let claim = body["metadata"]["annotations"][POD_CLAIM].as_str()?;
            // The name in the message is empty, as in Kubernetes: the server would have generated the claim's name.
            let message = format!("PodResourceClaim {claim}: create ResourceClaim : {}", refusal.message);
            Some(Subject::from(pod).warning("FailedResourceClaimCreation", message))
        };
        Plan { events: refused.iter().filter_map(note).collect(), ..Plan::default() }
    }
}

fn claim_key(namespace: &str, name: &str) -> Key {
    Key::new(namespace, &format!("{CLAIM}{name}"))
}

/// Whether a pod will use no devices any more.
fn is_done(pod: &Viewed<'_, Pod>) -> bool {
    pod.is_finished() || pod.meta().is_deleting() && pod.spec.node_name.is_empty()
}

/// Handles a pod's claims in order, up to the first claim that cannot be created.
fn plan_pod(world: &World, pod: Viewed<'_, Pod>, read: PlanInput<'_>, plan: &mut Plan) -> Result<(), NeedsGet> {
    let told = pod.view.status.resource_claim_statuses.iter();
    let mut names: BTreeMap<&str, &str> =
        told.filter_map(|status| Some((&*status.name, status.resource_claim_name.as_deref()?))).collect();
    let mut is_news = false;
    // If two statuses have the same name, the first status counts.
    let told = pod.view.status.resource_claim_statuses.iter().rev();
    let told: HashMap<&str, &Option<String>> =
        told.map(|status| (&*status.name, &status.resource_claim_name)).collect();
    let made = made_for(world, pod);
    for claim in &pod.view.spec.resource_claims {
        let Some(template) = &claim.resource_claim_template_name else { continue };
        match told.get(&*claim.name) {
            // The status says that this entry of the spec needs no claim.
            Some(None) => continue,
            Some(Some(name)) if is_there(world, pod, name, read)? => continue,
            // The claim that the status names was deleted although the pod needs it, so a new claim is created.
            _ => {}
        }
        if let Some(found) = made.get(&*claim.name) {
            names.insert(&claim.name, &found.object.meta.name);
            is_news = true;
        } else {
            match from_template(world, pod, claim, template) {
                Ok(action) => plan.then(action),
                Err(why) => {
                    let message = format!("PodResourceClaim {}: {why}", claim.name);
                    plan.events.push(Subject::from(pod).warning("FailedResourceClaimCreation", message));
                    plan.unready = true;
                    return Ok(());
                }
            }
        }
    }
    if is_news {
        let statuses: Vec<Value> =
            names.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.meta().name, "namespace": pod.meta().namespace, "uid": pod.meta().uid},
            "status": {"resourceClaimStatuses": statuses},
        });
        let apply = Action::new(Pod::resource(), pod.object.key(), Verb::Apply(body));
        plan.then(apply.subresource("status").manager(MANAGER));
    }
    if !pod.spec.node_name.is_empty() {
        let named = pod.view.claim_names();
        let claims = named.filter_map(|name| world.get::<ResourceClaim>(&Key::new(&pod.meta().namespace, name)));
        plan.together(claims.filter_map(|claim| reserve(claim, pod)).collect());
    }
    Ok(())
}

/// Whether the claim that a pod's status names exists. If the world's claims are older than the pod, the world may lack
/// the claim, so the server is asked: a pod with two claims for the same entry would hold devices twice.
fn is_there(world: &World, pod: Viewed<'_, Pod>, name: &str, read: PlanInput<'_>) -> Result<bool, NeedsGet> {
    let (resource, namespace) = (ResourceClaim::resource(), &pod.meta().namespace);
    if world.get::<ResourceClaim>(&Key::new(namespace, name)).is_some() {
        return Ok(true);
    }
    if world.version(resource) >= pod.meta().resource_version.parse().unwrap_or(u64::MAX) {
        return Ok(false);
    }
    let path = format!("/apis/{}/namespaces/{namespace}/{}/{name}", resource.api_version(), resource.plural());
    Ok(!matches!(read.get(&path)?, Err(refusal) if refusal.is_not_found()))
}

/// The claims that exist for a pod even if its status does not show them yet, by the names of the claims in the pod's
/// spec.
fn made_for<'a>(world: &'a World, pod: Viewed<'_, Pod>) -> HashMap<&'a str, Viewed<'a, ResourceClaim>> {
    let mut made = HashMap::new();
    for found in claim::owned::<ResourceClaim>(world, &pod.meta().uid) {
        if let Some(name) = found.object.meta.annotation(POD_CLAIM) {
            made.entry(name).or_insert(found);
        }
    }
    made
}

fn from_template(world: &World, pod: Viewed<'_, Pod>, claim: &PodClaim, template: &str) -> Result<Action, String> {
    let namespace = &pod.meta().namespace;
    let found = world.get::<ResourceClaimTemplate>(&Key::new(namespace, template)).ok_or_else(|| {
        format!("resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found")
    })?;
    let template = &found.view.spec;
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(POD_CLAIM, claim.name.as_str().into());
    let mut metadata = json!({
        "generateName": base_of(&pod.meta().name, &claim.name),
        "annotations": annotations,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.meta().name, "uid": pod.meta().uid,
            "controller": true}],
    });
    let labels = &template["metadata"]["labels"];
    if !labels.is_null() {
        metadata["labels"] = labels.clone();
    }
    let resource = ResourceClaim::resource();
    let body = json!({"apiVersion": resource.api_version(), "kind": resource.kind(), "metadata": metadata,
        "spec": template["spec"]});
    Ok(Action::new(resource, Key::new(namespace, ""), Verb::Create(body)))
}

/// The prefix of a generated claim name: the names of the pod and of the claim in its spec. If the prefix is too long,
/// both names are shortened in proportion, so that a part of each name is left. A shortened prefix has no hyphen before
/// the generated suffix.
fn base_of(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= BASE_MAX {
        return whole;
    }
    let share = |name: &str| name[..name.len() * BASE_MAX / whole.len()].to_owned();
    format!("{}-{}", share(pod), share(claim))
}

/// Reserves an allocated claim for a pod that was bound to its node without the scheduler, which otherwise makes the
/// reservation.
fn reserve(claim: Viewed<'_, ResourceClaim>, pod: Viewed<'_, Pod>) -> Option<Action> {
    let meta = pod.meta();
    let is_reserved = claim.status.reserved_for.iter().any(|consumer| consumer.uid == meta.uid);
    if claim.status.allocation.is_none() || is_reserved || claim.meta().is_deleting() {
        return None;
    }
    Subject::from(claim).status(|status| {
        let consumer = json!({"resource": "pods", "name": meta.name, "uid": meta.uid});
        if let Some(list) = status.entry("reservedFor").or_insert_with(|| json!([])).as_array_mut() {
            list.push(consumer);
        }
    })
}

fn plan_claim(world: &World, claim: Viewed<'_, ResourceClaim>, plan: &mut Plan) {
    let meta = claim.meta();
    let uses = |consumer: &Consumer| {
        let is_pod = consumer.api_group.is_empty() && consumer.resource == "pods";
        let pod = world.get::<Pod>(&Key::new(&meta.namespace, &consumer.name));
        !is_pod || pod.is_some_and(|pod| pod.meta().uid == consumer.uid && !is_done(&pod))
    };
    let reserved = &claim.status.reserved_for;
    let kept: Vec<&Consumer> = reserved.iter().filter(|consumer| uses(consumer)).collect();
    let is_free = kept.is_empty() && (!reserved.is_empty() || meta.is_deleting());
    if kept.len() < reserved.len() || is_free && claim.status.allocation.is_some() {
        let kept: Vec<&str> = kept.iter().map(|consumer| consumer.uid.as_str()).collect();
        plan.together(released(claim, &kept, is_free).into_iter().collect());
        return;
    }
    if reserved.is_empty() && claim.status.allocation.is_none() && meta.has_finalizer(FINALIZER) {
        let mut document = claim.object.document();
        if let Some(finalizers) = document["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        return plan.then(Subject::from(claim).update(document));
    }
    let owner = meta.controller().filter(|owner| names_kind::<Pod>(owner));
    let pod = owner.and_then(|owner| world.get::<Pod>(&Key::new(&meta.namespace, &owner.name)));
    let is_pods = |pod: &Viewed<'_, Pod>| owner.is_some_and(|owner| owner.uid == pod.meta().uid);
    if pod.is_some_and(|pod| is_pods(&pod) && is_done(&pod)) && !meta.is_deleting() {
        plan.then(Subject::from(claim).delete());
    }
}

fn released(claim: Viewed<'_, ResourceClaim>, kept: &[&str], is_free: bool) -> Option<Action> {
    let reserved: Vec<Value> = part(claim.object, &["status", "reservedFor"])
        .as_array()
        .into_iter()
        .flatten()
        .filter(|consumer| kept.contains(&consumer["uid"].as_str().unwrap_or_default()))
        .cloned()
        .collect();
    Subject::from(claim).status(|status| {
        if reserved.is_empty() {
            status.remove("reservedFor");
        } else {
            status.insert("reservedFor", reserved.into());
        }
        if is_free {
            status.remove("allocation");
            status.remove("devices");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_world::{Time, Trial};

    fn trial() -> Trial {
        Trial::new().with(ResourceClaims::default())
    }

    fn template() -> Value {
        let spec =
            json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "none.example.com"}}]}});
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
            "spec": {"metadata": {"labels": {"x": "y"}}, "spec": spec}})
    }

    fn pod(node: &str, claim: Value) -> Value {
        let mut claim = claim;
        claim["name"] = json!("r");
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "image": "i"}], "resourceClaims": [claim]}})
    }

    fn from_t() -> Value {
        json!({"resourceClaimTemplateName": "t"})
    }

    #[test]
    fn a_claim_is_made_from_the_template_and_told_in_the_pod() {
        let mut trial = trial();
        trial.create(template());
        trial.create(pod("", from_t()));
        trial.run();
        let claims = trial.list("resourceclaims");
        assert_eq!(claims.len(), 1);
        let (claim, pod) = (&claims[0], trial.get("pods", "p"));
        assert!(claim["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("p-r-")));
        assert_eq!(claim["metadata"]["labels"], json!({"x": "y"}));
        assert_eq!(claim["metadata"]["annotations"], json!({POD_CLAIM: "r"}));
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
        assert_eq!(
            pod["status"]["resourceClaimStatuses"],
            json!([{"name": "r", "resourceClaimName": claim["metadata"]["name"]}])
        );
        let managers = pod["metadata"]["managedFields"].as_array().expect("managers").clone();
        assert!(
            managers
                .iter()
                .any(|one| one["manager"] == MANAGER && one["operation"] == "Apply" && one["subresource"] == "status")
        );
    }

    #[test]
    fn a_template_that_is_absent_is_waited_for() {
        let mut trial = trial();
        trial.create(pod("", from_t()));
        trial.run_for(1);
        let notes = trial.take_event_texts();
        assert_eq!(
            notes[0],
            "Warning FailedResourceClaimCreation PodResourceClaim r: resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found"
        );
        assert!(notes.len() > 5);
        trial.create(template());
        trial.run_for(10);
        assert_eq!(trial.list("resourceclaims").len(), 1);
    }

    #[test]
    fn a_claim_that_is_refused_is_told_of_and_tried_again() {
        let mut trial = trial();
        crate::testing::allow(&mut trial, "count/resourceclaims.resource.k8s.io", 0);
        trial.create(template());
        trial.create(pod("", from_t()));
        trial.run_for(1);
        let notes = trial.take_event_texts();
        let told = "Warning FailedResourceClaimCreation PodResourceClaim r: create ResourceClaim : \
                    resourceclaims.resource.k8s.io \"";
        assert!(notes[0].starts_with(told) && notes[0].contains("exceeded quota: q"), "{}", notes[0]);
        trial.delete("resourcequotas", "q");
        trial.run_for(10);
        assert_eq!(trial.list("resourceclaims").len(), 1);
    }

    fn allocate(trial: &mut Trial, name: &str, consumers: Value) {
        let allocation =
            json!({"devices": {"results": [{"request": "r", "driver": "d.example.com", "pool": "p", "device": "d"}]}});
        trial.patch("resourceclaims", name, json!({"metadata": {"finalizers": [FINALIZER]}}));
        trial.patch_status("resourceclaims", name, json!({"allocation": allocation, "reservedFor": consumers}));
    }

    #[test]
    fn a_claim_is_let_go_when_its_pod_has_ended() {
        let mut trial = trial();
        trial.create(template());
        let uid = trial.create(pod("n", from_t()))["metadata"]["uid"].clone();
        trial.run();
        let name = trial.names("resourceclaims").remove(0);
        allocate(&mut trial, &name, json!([{"resource": "pods", "name": "p", "uid": uid}]));
        trial.run();
        assert!(trial.get("resourceclaims", &name)["status"]["allocation"].is_object());
        trial.patch_status("pods", "p", json!({"phase": "Succeeded"}));
        trial.run();
        assert!(trial.list("resourceclaims").is_empty(), "it was made for this pod alone");
    }

    #[test]
    fn a_claim_of_its_own_is_free_when_nobody_uses_it() {
        let mut trial = trial();
        trial.create(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
            "spec": template()["spec"]["spec"]}));
        trial.create(pod("n", json!({"resourceClaimName": "c"})));
        allocate(&mut trial, "c", json!([{"resource": "pods", "name": "other", "uid": "gone"}]));
        trial.run();
        let claim = trial.get("resourceclaims", "c");
        let consumers = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
        assert!(consumers.is_empty() || consumers[0]["name"] == "p");
        trial.delete_as("pods", "p", None, Some(0));
        trial.run();
        let claim = trial.get("resourceclaims", "c");
        assert!(claim["status"]["allocation"].is_null() && claim["metadata"]["finalizers"].is_null());
    }

    #[test]
    fn generated_names_stay_short() {
        assert_eq!(base_of("p", "r"), "p-r-");
        assert_eq!(base_of(&"p".repeat(48), &"r".repeat(10)), format!("{}-{}", "p".repeat(45), "r".repeat(9)));
    }

    #[test]
    fn a_claim_that_was_deleted_is_made_again() {
        let mut trial = trial();
        trial.create(template());
        trial.create(pod("", from_t()));
        trial.run();
        let name = trial.names("resourceclaims").remove(0);
        trial.delete("resourceclaims", &name);
        trial.run();
        let names = trial.names("resourceclaims");
        assert!(names.len() == 1 && names[0] != name, "{names:?}");
        let told = trial.get("pods", "p")["status"]["resourceClaimStatuses"].clone();
        assert_eq!(told, json!([{"name": "r", "resourceClaimName": names[0]}]));
    }

    /// A world may contain a pod before it contains the claim that the pod's status names.
    #[test]
    fn a_claim_that_is_not_seen_yet_is_asked_for() {
        let (mut world, mut claims) = (World::default(), ResourceClaims::default());
        claims.indexes(&mut world);
        let show = |world: &mut World, resource: &Resource, name: &str, mut object: Value, version: u64| {
            object["metadata"]["namespace"] = json!("default");
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            let now = Time::from_second(1_795_255_200);
            world.apply(resource, Key::new("default", name), Some(object.to_string().into()), version, now);
        };
        world.track::<Pod>();
        world.track::<ResourceClaim>();
        world.track::<ResourceClaimTemplate>();
        show(&mut world, ResourceClaimTemplate::resource(), "t", template(), 1);
        let mut told = pod("", from_t());
        told["status"] = json!({"resourceClaimStatuses": [{"name": "r", "resourceClaimName": "p-r-x"}]});
        show(&mut world, Pod::resource(), "p", told, 3);
        let (key, stamp) = (Key::new("default", "p"), Stamp { time: Time::from_second(1_795_255_200), seed: 1 });
        let path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/p-r-x";
        let gone = Refusal { reason: "NotFound".into(), message: "gone".into(), causes: Vec::new() };
        for (answer, made) in [(Ok(json!({})), 0), (Err(gone), 1)] {
            assert_eq!(claims.plan(&world, &key, stamp).gets, [path]);
            claims.answered(&key, path, answer);
            let plan = claims.plan(&world, &key, stamp);
            assert_eq!((plan.gets.len(), plan.steps.len()), (0, made));
        }
    }

    #[test]
    fn the_first_claim_that_cannot_be_made_keeps_those_after_it_and_what_is_told() {
        let mut trial = trial();
        trial.create(template());
        let mut pod = pod("", from_t());
        let absent = json!({"name": "absent", "resourceClaimTemplateName": "none"});
        let last = json!({"name": "z", "resourceClaimTemplateName": "t"});
        pod["spec"]["resourceClaims"].as_array_mut().expect("claims").extend([absent, last]);
        trial.create(pod);
        trial.run_for(1);
        assert_eq!(trial.list("resourceclaims").len(), 1);
        assert!(trial.get("pods", "p")["status"]["resourceClaimStatuses"].is_null());
        let mut other = template();
        other["metadata"]["name"] = json!("none");
        trial.create(other);
        trial.run_for(60);
        assert_eq!(trial.list("resourceclaims").len(), 3);
        let told = trial.get("pods", "p")["status"]["resourceClaimStatuses"].clone();
        let names: Vec<&str> = told.as_array().expect("claims").iter().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, ["absent", "r", "z"]);
    }
}
