//! Admission of single writes: what webhooks and policies receive, what their answers cause, and what the client and
//! the audit log receive.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Refusal;
use holdfast_core::admission::{Admission, Call, Choice, Told};
use holdfast_core::apply::apply;
use holdfast_core::authz::chain::Way;
use holdfast_core::authz::webhook::{Condition, OnFailure, Webhook};
use holdfast_core::authz::{Chain, User};
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::{Answers, Basis, Decision, Effect, Judgement, Reviewed, Settings, actor, judge};
use holdfast_core::request::{Body, FieldValidation, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, State};
use holdfast_value::{Value, json};
use std::sync::Arc;

const REGISTRATIONS: &str = "admissionregistration.k8s.io";

/// A cluster with one namespace, with the settings and the authorizers of its server.
struct World {
    state: State,
    settings: Settings,
    chain: Arc<Chain>,
}

/// The result of judging a write.
struct Outcome {
    decided: Result<Decision, Refusal>,
    told: Told,
    /// The reviews that webhooks received for the write.
    calls: Vec<Call>,
}

impl Outcome {
    /// The message of the refusal; empty if the write is admitted.
    fn why(&self) -> String {
        self.decided.as_ref().map_or_else(Refusal::message, |_| String::new())
    }

    fn annotation(&self, key: &str) -> Value {
        let text = self.told.annotations.get(key).unwrap_or("null");
        serde_json::from_str(text).unwrap_or_else(|_| text.into())
    }

    fn warnings(&self) -> &[String] {
        self.decided.as_ref().map_or(&self.told.warnings, |decision| &decision.warnings)
    }
}

impl World {
    fn new() -> World {
        World::with(&[], &[])
    }

    /// A world in which the default plug-ins and those in `enabled` run; `told` has the configurations of plug-ins.
    fn with(enabled: &[&str], told: &[(&str, Value)]) -> World {
        let enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
        let mut admission = Admission::chosen(&Choice { enabled, ..Choice::default() }).expect("plug-ins");
        for (plugin, document) in told {
            assert_eq!(admission.configure(plugin, document), []);
        }
        let settings = Settings { admission, ..Settings::default() };
        let chain = Chain::always_allow().clone();
        let mut world = World { state: State::new(Arc::new(registry().clone())), settings, chain };
        world.make("", "namespaces", None, json!({"metadata": {"name": "shop"}}));
        world.make("", "serviceaccounts", Some("shop"), json!({"metadata": {"name": "default"}}));
        world
    }

    fn request(&self, verb: Verb, group: &str, path: &str, namespace: Option<&str>, body: &Value) -> Request {
        let mut steps = path.split('/');
        let mut step = || steps.next().map(str::to_owned);
        let (resource, name, subresource) = (step().expect("a resource"), step(), step());
        let (kind, version) = self.state.registry.find(group, "v1", &resource).expect("a kind");
        let target = Target { kind, version, namespace: namespace.map(str::to_owned), name, subresource };
        let format = if verb == Verb::Patch { Format::MergePatch } else { Format::Json };
        let bytes = if verb == Verb::Delete { Vec::new() } else { body.to_string().into_bytes() };
        Request {
            user: Arc::new(User::new("jane", &["system:masters"])),
            verb,
            target,
            options: Options::default(),
            body: Body { content: bytes.into(), format },
            id: String::new(),
        }
    }

    fn create(&self, path: &str, body: &Value) -> Request {
        self.request(Verb::Create, "", path, Some("shop"), body)
    }

    /// Judges a write. `respond` makes the response of each called webhook, in the version of its review.
    fn judge(&self, request: &Request, respond: impl Fn(&Call) -> Value) -> Outcome {
        let stamp = Stamp {
            time: jiff::Timestamp::from_second(1_795_255_200).expect("within range"),
            seed: self.state.offset.0,
        };
        let (mut answers, mut calls) = (Answers::default(), Vec::new());
        loop {
            let basis = Basis { state: &self.state, settings: &self.settings, chain: &self.chain };
            match judge(basis, request, stamp, &answers) {
                Judgement::Done(decided, told) => return Outcome { decided, told, calls },
                Judgement::Need(Effect::Review { calls: asked, pause }) => {
                    answers.paused(pause);
                    for call in asked {
                        let mut response = respond(&call);
                        response["uid"] = call.request["uid"].clone();
                        let review =
                            json!({"apiVersion": call.api_version, "kind": "AdmissionReview", "response": response});
                        let answer = Ok(review.to_string().into_bytes());
                        calls.push(call.clone());
                        answers.reviewed(call, Reviewed { answer, nanos: 0 });
                    }
                }
                Judgement::Need(effect) => panic!("{effect:?}"),
            }
        }
    }

    /// Judges a write for which no webhook may be called.
    fn alone(&self, request: &Request) -> Outcome {
        self.judge(request, |call| panic!("{} is asked", call.webhook))
    }

    /// Judges a write and folds its events into the state.
    fn write(&mut self, request: &Request) -> Outcome {
        let outcome = self.judge(request, |_| json!({"allowed": true}));
        let decision = outcome.decided.as_ref().unwrap_or_else(|refusal| panic!("{}", refusal.message()));
        for write in &decision.writes {
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: 0,
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: 0,
                operation: Operation::Put as i32,
                actor: actor(request),
                object: write.draft.clone().seal(offset),
            };
            let change = Change::from_record(&self.state.registry, &record).expect("a known kind");
            apply(&mut self.state, &change);
        }
        outcome
    }

    fn make(&mut self, group: &str, resource: &str, namespace: Option<&str>, body: Value) -> Outcome {
        let request = self.request(Verb::Create, group, resource, namespace, &body);
        self.write(&request)
    }

    /// Registers webhooks for this resource. Each value in `webhooks` has the fields of one webhook that differ from
    /// the default.
    fn register(&mut self, half: &str, resource: &str, webhooks: &[Value]) {
        let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}]);
        let whole = |(number, own): (usize, &Value)| {
            let mut webhook = json!({"name": format!("w{number}.example.com"), "sideEffects": "None", "rules": rules,
                "clientConfig": {"url": "https://hooks.example.com"}, "admissionReviewVersions": ["v1"]});
            for (field, value) in own.as_object().expect("fields") {
                webhook[field] = value.clone();
            }
            webhook
        };
        let webhooks: Vec<Value> = webhooks.iter().enumerate().map(whole).collect();
        let body = json!({"metadata": {"name": "c"}, "webhooks": webhooks});
        self.make(REGISTRATIONS, &format!("{half}webhookconfigurations"), None, body);
    }
}

fn patching(patch: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
}

/// A patch may contain data that the audit policy excludes. So an audit event may contain the patch only if it also
/// contains the object of the request.
#[test]
fn patches_are_told_with_objects_alone() {
    let mut world = World::new();
    world.register("mutating", "secrets", &[json!({})]);
    let request = world.create("secrets", &json!({"metadata": {"name": "s"}}));
    let patch = json!([{"op": "add", "path": "/stringData", "value": {"a": "<b>"}}]);
    let outcome = world.judge(&request, |_| patching(&patch));
    assert_eq!(outcome.why(), "");
    let told: Vec<_> = outcome
        .told
        .annotations
        .iter()
        .filter(|(key, _)| key.contains("webhook.admission"))
        .map(|(key, annotation)| (key, annotation.shows_object, annotation.value.as_str()))
        .collect();
    let mutated = r#"{"configuration":"c","webhook":"w0.example.com","mutated":true}"#;
    assert_eq!(told[0], ("mutation.webhook.admission.k8s.io/round_0_index_0", false, mutated));
    assert_eq!((told[1].0, told[1].1), ("patch.webhook.admission.k8s.io/round_0_index_0", true));
    assert!(told[1].2.contains(r#""value":{"a":"\u003cb\u003e"}"#), "{}", told[1].2);
    assert_eq!(told.len(), 2);
}

/// A patch may change the object's type or version. The object is then decoded as that type. If it cannot be decoded,
/// or cannot be converted back, the write is refused.
#[test]
fn objects_stay_what_they_are() {
    let mut world = World::new();
    world.register("mutating", "configmaps", &[json!({})]);
    let request = world.create("configmaps", &json!({"metadata": {"name": "c"}, "data": {"k": "v"}}));
    let replaced = |path: &str, value: &str| json!([{"op": "replace", "path": path, "value": value}]);
    let unregistered = "in scheme \"pkg/api/legacyscheme/scheme.go:30\"";
    for (patch, expected) in [
        (replaced("/kind", "Secret"), "Internal error occurred: illegal base64 data at input byte 0".to_owned()),
        (
            json!([{"op": "replace", "path": "/kind", "value": "Secret"}, {"op": "remove", "path": "/data"}]),
            "converting (v1.Secret) to (core.ConfigMap): unknown conversion".into(),
        ),
        (
            replaced("/kind", "Nothing"),
            format!("Internal error occurred: no kind \"Nothing\" is registered for version \"v1\" {unregistered}"),
        ),
        (
            replaced("/apiVersion", "v2"),
            format!("Internal error occurred: no kind \"ConfigMap\" is registered for version \"v2\" {unregistered}"),
        ),
        (json!([{"op": "remove", "path": "/kind"}, {"op": "remove", "path": "/apiVersion"}]), String::new()),
        (
            json!([{"op": "replace", "path": "/kind", "value": 1}]),
            "Internal error occurred: couldn't get version/kind; json parse error: json: cannot unmarshal number into Go \
             struct field .kind of type string"
                .into(),
        ),
    ] {
        let outcome = world.judge(&request, |_| patching(&patch));
        assert_eq!(outcome.why(), expected, "{patch}");
    }
}

/// If a webhook does not support dry runs, it makes a dry run fail, but the other webhooks are called. The audit log
/// always says whether a webhook changed the object.
#[test]
fn dry_runs_that_webhooks_do_not_support() {
    let why = "admission webhook \"w0.example.com\" does not support dry run";
    for half in ["validating", "mutating"] {
        let mut world = World::new();
        world.register(half, "configmaps", &[json!({}), json!({})]);
        have_side_effects(&mut world, half);
        let mut request = world.create("configmaps", &json!({"metadata": {"name": "c"}}));
        request.options.dry_run = true;
        let outcome = world.judge(&request, |_| json!({"allowed": true, "warnings": ["seen"]}));
        assert_eq!(outcome.why(), why, "{half}");
        let asked: Vec<&str> = outcome.calls.iter().map(|call| call.webhook.as_str()).collect();
        match half {
            "validating" => {
                assert_eq!((asked, outcome.warnings()), (vec!["w1.example.com"], &["seen".to_owned()][..]));
            }
            _ => {
                assert_eq!(asked, Vec::<&str>::new());
                let told = outcome.annotation("mutation.webhook.admission.k8s.io/round_0_index_0");
                assert_eq!(told["mutated"], false, "{told}");
            }
        }
    }
}

/// Gives side effects to the first webhook of a configuration. Only webhooks that were registered before version v1 of
/// the API can have side effects.
fn have_side_effects(world: &mut World, half: &str) {
    let path = format!("{half}webhookconfigurations");
    let (kind, _) = world.state.registry.find(REGISTRATIONS, "v1", &path).expect("a kind");
    let entry = world.state.get(kind, "c").expect("a configuration").clone();
    let mut document = entry.document();
    document["webhooks"][0]["sideEffects"] = "Some".into();
    let offset = world.state.offset.next();
    document["metadata"]["resourceVersion"] = offset.0.to_string().into();
    let request = world.request(Verb::Create, REGISTRATIONS, &path, None, &document);
    let record = Record {
        offset: offset.0,
        time_ms: 0,
        resource: world.state.kind(kind).storage.path.clone(),
        key: "c".into(),
        replaces: entry.offset.0,
        operation: Operation::Put as i32,
        actor: actor(&request),
        object: document.to_string().into_bytes().into(),
    };
    let change = Change::from_record(&world.state.registry, &record).expect("a known kind");
    apply(&mut world.state, &change);
}

/// Audit annotations number the validating webhooks. Only webhooks that match the write count.
#[test]
fn places_of_validating_webhooks() {
    let mut world = World::new();
    let elsewhere = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"]}]);
    let ignored = json!({"failurePolicy": "Ignore"});
    world.register("validating", "configmaps", &[json!({"rules": elsewhere}), ignored.clone(), ignored]);
    let request = world.create("configmaps", &json!({"metadata": {"name": "c"}}));
    let outcome = world.judge(&request, |_| json!({"allowed": "perhaps"}));
    let key = |nth: usize| format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{nth}");
    assert_eq!(outcome.why(), "");
    let told = [0, 1, 2].map(|nth| outcome.annotation(&key(nth)));
    assert_eq!(told, [json!("w1.example.com"), json!("w2.example.com"), json!(null)]);
}

/// If the same audit annotation is added twice, the first value stays.
#[test]
fn annotations_stay_as_they_were_said_first() {
    let mut world = World::new();
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]);
    world.register("mutating", "configmaps", &[json!({"reinvocationPolicy": "IfNeeded"}), json!({})]);
    let request = world.create("configmaps", &json!({"metadata": {"name": "c"}}));
    let outcome = world.judge(&request, |call| {
        let sent: Value = serde_json::from_slice(&call.object).expect("JSON");
        let mut response = if call.webhook.starts_with("w1") { patching(&patch) } else { json!({"allowed": true}) };
        response["auditAnnotations"] = json!({"labelled": sent["metadata"]["labels"].is_object().to_string()});
        response
    });
    let asked: Vec<&str> = outcome.calls.iter().map(|call| call.webhook.as_str()).collect();
    assert_eq!(asked, ["w0.example.com", "w1.example.com", "w0.example.com"]);
    assert_eq!(outcome.annotation("w0.example.com/labelled"), json!(false), "{:?}", outcome.told.annotations);
}

/// A review contains the options of the request as the client set them. The options of a namespace's deletion also
/// contain a precondition, the UID of the namespace.
#[test]
fn options_are_shown_as_they_were_said() {
    let mut world = World::new();
    world.register("validating", "*", &[json!({})]);
    let made = world.make("", "configmaps", Some("shop"), json!({"metadata": {"name": "c"}}));
    let shown = |outcome: &Outcome| outcome.calls.last().expect("a review").request["options"].clone();
    assert_eq!(shown(&made), json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));

    let mut request = world.create("configmaps", &json!({"metadata": {"name": "d"}}));
    request.options.field_validation = FieldValidation::Strict;
    request.options.names_validation = true;
    request.options.field_manager = Some("me".into());
    request.options.names_manager = true;
    let allowed = |_: &Call| json!({"allowed": true});
    assert_eq!(
        shown(&world.judge(&request, allowed)),
        json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me",
            "fieldValidation": "Strict"})
    );

    let patch = json!({"data": {"a": "b"}});
    let mut request = world.request(Verb::Patch, "", "configmaps/c", Some("shop"), &patch);
    request.options.names_validation = true;
    assert_eq!(
        shown(&world.judge(&request, allowed)),
        json!({"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldValidation": "Warn"})
    );

    let uid_of = |world: &World, resource: &str, key: &str| {
        let (kind, _) = world.state.registry.find("", "v1", resource).expect("a kind");
        world.state.get(kind, key).expect("an object").document()["metadata"]["uid"].clone()
    };
    let own = uid_of(&world, "configmaps", "shop/c");
    let mut request = world.request(Verb::Delete, "", "configmaps/c", Some("shop"), &json!({}));
    assert_eq!(
        shown(&world.judge(&request, allowed)),
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"})
    );
    request.options.delete.precondition_uid = own.as_str().map(str::to_owned);
    assert_eq!(
        shown(&world.judge(&request, allowed)),
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "preconditions": {"uid": own}})
    );

    let mut request = world.request(Verb::Delete, "", "namespaces/shop", None, &json!({}));
    let own = uid_of(&world, "namespaces", "shop");
    assert_eq!(
        shown(&world.judge(&request, allowed)),
        json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "preconditions": {"uid": own}})
    );
    request.options.delete.grace_period_seconds = Some(3);
    assert_eq!(shown(&world.judge(&request, allowed))["gracePeriodSeconds"], 3);
}

/// A name that is still to be generated must not appear in the errors of match conditions.
#[test]
fn conditions_tell_names_that_are_there() {
    let mut world = World::new();
    let conditions = json!([{"name": "n", "expression": "object.data.missing == 'x'"}]);
    world.register("mutating", "configmaps", &[json!({"matchConditions": conditions})]);
    let refused = |metadata: Value| {
        let outcome = world.alone(&world.create("configmaps", &json!({"metadata": metadata})));
        outcome.why().split(" is forbidden").next().unwrap_or_default().to_owned()
    };
    assert_eq!(refused(json!({"name": "c"})), "configmaps \"c\"");
    assert_eq!(refused(json!({"generateName": "c-"})), "configmaps");
}

/// If the expression of an audit annotation cannot be evaluated, the write is refused, whatever the validation actions
/// of the binding are.
#[test]
fn values_for_auditors_that_cannot_be_told() {
    for (policy, expected) in [
        (
            "Fail",
            "configmaps \"c\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression \
             'string(object.data.zz)' resulted in error: no such key: zz",
        ),
        ("Ignore", ""),
    ] {
        let mut world = World::new();
        let rules =
            json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]);
        let spec = json!({"failurePolicy": policy, "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "true"}],
            "auditAnnotations": [{"key": "k", "valueExpression": "string(object.data.zz)"}]});
        let body = json!({"metadata": {"name": "p"}, "spec": spec});
        world.make(REGISTRATIONS, "validatingadmissionpolicies", None, body);
        let spec = json!({"policyName": "p", "validationActions": ["Warn"]});
        let body = json!({"metadata": {"name": "b"}, "spec": spec});
        world.make(REGISTRATIONS, "validatingadmissionpolicybindings", None, body);
        let outcome = world.alone(&world.create("configmaps", &json!({"metadata": {"name": "c"}, "data": {"a": "b"}})));
        assert_eq!((outcome.why().as_str(), outcome.warnings()), (expected, &[][..]), "{policy}");
    }
}

/// Creates the policy `p` and its binding `b`. `policy` and `binding` have further fields of each.
fn judging(world: &mut World, resource: &str, expression: &str, (policy, binding): (Value, Value)) {
    let rules = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": expression}]});
    let mut bound = json!({"policyName": "p", "validationActions": ["Deny"]});
    for (whole, own) in [(&mut spec, policy), (&mut bound, binding)] {
        own.as_object().expect("fields").iter().for_each(|(field, value)| whole[field.as_str()] = value.clone());
    }
    let group = REGISTRATIONS;
    world.make(group, "validatingadmissionpolicies", None, json!({"metadata": {"name": "p"}, "spec": spec}));
    world.make(group, "validatingadmissionpolicybindings", None, json!({"metadata": {"name": "b"}, "spec": bound}));
}

/// Expressions receive the errors of authorizers, and authorizers receive the selectors that expressions set.
#[test]
fn expressions_ask_authorizers_as_requests_do() {
    let node = || Way::Node;
    let failing = || {
        let condition = Condition::new("request.extra['a'][0] == 'b'").expect("a condition");
        Way::Webhook(Webhook { name: "w".into(), conditions: vec![condition], on_failure: OnFailure::NoOpinion })
    };
    let pods = "authorizer.group('').resource('pods')";
    let rows: [(&dyn Fn() -> Way, String, &str); 8] = [
        (&node, format!("{pods}.fieldSelector('spec.nodeName=n').check('list').allowed()"), ""),
        (&node, format!("{pods}.labelSelector('spec.nodeName=n').check('list').allowed()"), "failed expression"),
        (&node, format!("{pods}.fieldSelector('spec.nodeName=').check('list').allowed()"), "failed expression"),
        (&node, format!("{pods}.check('list').errored()"), "failed expression"),
        (&failing, format!("{pods}.check('list').errored()"), ""),
        (&failing, format!("{pods}.check('list').error().contains('no such key: a')"), ""),
        (&node, "authorizer.path(' ').check('get').allowed()".into(), "path must not be empty"),
        (&node, "authorizer.group('').resource(' ').check('get').allowed()".into(), "resource must not be empty"),
    ];
    for (way, expression, expected) in rows {
        let mut world = World::new();
        judging(&mut world, "configmaps", &expression, (json!({}), json!({})));
        world.chain = Arc::new(Chain::new(vec![way()]));
        let mut request = world.create("configmaps", &json!({"metadata": {"name": "c"}}));
        request.user = Arc::new(User::new("system:node:n", &["system:nodes"]));
        let why = world.alone(&request).why();
        assert_eq!((why.contains(expected), why.is_empty()), (true, expected.is_empty()), "{expression}: {why}");
    }
}

/// `authorizer.requestResource` asks about the object that is being created, by its name.
#[test]
fn the_checks_of_a_request_name_its_object() {
    let mut world = World::new();
    judging(&mut world, "configmaps", "authorizer.requestResource.check('speak').allowed()", (json!({}), json!({})));
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"verbs": ["speak"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["c"]}]);
    let (role, shop) = (json!({"metadata": {"name": "r"}, "rules": rules}), Some("shop"));
    world.make(group, "roles", shop, role);
    let subjects = json!([{"apiGroup": group, "kind": "User", "name": "joe"}]);
    let to = json!({"apiGroup": group, "kind": "Role", "name": "r"});
    world.make(group, "rolebindings", shop, json!({"metadata": {"name": "r"}, "roleRef": to, "subjects": subjects}));
    world.chain = Arc::new(Chain::new(vec![Way::Rbac]));
    for (name, expected) in [("c", true), ("d", false)] {
        let mut request = world.create("configmaps", &json!({"metadata": {"name": name}}));
        request.user = Arc::new(User::new("joe", &[]));
        assert_eq!(world.alone(&request).why().is_empty(), expected, "{name}");
    }
}

/// A Namespace object counts as an object in the namespace of its own name: for authorization, even before the
/// namespace exists, and when the parameters of a policy are looked up.
#[test]
fn a_namespace_is_in_itself() {
    let mut world = World::new();
    world.register("validating", "namespaces", &[json!({})]);
    let request = world.request(Verb::Create, "", "namespaces", None, &json!({"metadata": {"name": "new"}}));
    let outcome = world.judge(&request, |_| json!({"allowed": true}));
    assert_eq!(outcome.calls[0].request["namespace"], "new", "{}", outcome.why());

    let mut world = World::new();
    let parameters = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
    let reference = json!({"paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"}});
    judging(&mut world, "namespaces", "params.data.labels == 'any'", (parameters, reference));
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let request = world.request(Verb::Patch, "", "namespaces/shop", None, &patch);
    let why = world.alone(&request).why();
    assert!(why.contains("no params found"), "{why}");
    world.make("", "configmaps", Some("shop"), json!({"metadata": {"name": "limits"}, "data": {"labels": "any"}}));
    assert_eq!(world.alone(&request).why(), "");
}

/// A custom kind with three versions, each with a scale subresource.
fn stones(world: &mut World) {
    let replicas = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    let schema = json!({"type": "object", "properties": {"spec": replicas, "status": replicas}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": scale, "status": {}}})
    };
    let names = json!({"plural": "stones", "singular": "stone", "kind": "Stone", "listKind": "StoneList"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names,
        "versions": ["v1", "v2", "v3"].map(version)});
    let definition = json!({"metadata": {"name": "stones.example.com"}, "spec": spec});
    world.make("apiextensions.k8s.io", "customresourcedefinitions", None, definition);
    let stone = json!({"apiVersion": "example.com/v1", "kind": "Stone", "metadata": {"name": "s"},
        "spec": {"replicas": 1}});
    world.make("example.com", "stones", Some("shop"), stone);
}

fn rule(version: &str, resource: &str) -> Value {
    json!({"operations": ["UPDATE"], "apiGroups": ["example.com"], "apiVersions": [version], "resources": [resource]})
}

/// A webhook that is registered for the scale in one version of a kind is also called for writes of the scale in
/// another version.
#[test]
fn a_scale_is_one_in_all_versions() {
    for (policy, asked) in [("Equivalent", 1), ("Exact", 0)] {
        let mut world = World::new();
        stones(&mut world);
        let rules = json!([rule("v2", "stones/scale")]);
        world.register("validating", "stones", &[json!({"rules": rules, "matchPolicy": policy})]);
        let patch = json!({"spec": {"replicas": 9}});
        let request = world.request(Verb::Patch, "example.com", "stones/s/scale", Some("shop"), &patch);
        let outcome = world.judge(&request, |_| json!({"allowed": true}));
        assert_eq!((outcome.why().as_str(), outcome.calls.len()), ("", asked), "{policy}");
        for call in outcome.calls {
            let version = |field: &str| call.request[field]["version"].clone();
            assert_eq!((version("resource"), version("requestResource")), (json!("v2"), json!("v1")));
            assert_eq!(call.request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
            let sent: Value = serde_json::from_slice(&call.object).expect("JSON");
            assert_eq!((&sent["kind"], &sent["spec"]["replicas"]), (&json!("Scale"), &json!(9)));
        }
    }
}

/// A webhook may have no rule for the version of the request. It then gets the object in the version of the first rule
/// that matches another version of the resource.
#[test]
fn the_first_rule_says_which_version_is_shown() {
    for (versions, expected) in [(["v3", "v2"], "v3"), (["v2", "v3"], "v2"), (["v3", "v1"], "v1")] {
        let mut world = World::new();
        stones(&mut world);
        let rules = json!(versions.map(|version| rule(version, "stones")));
        world.register("validating", "stones", &[json!({"rules": rules})]);
        let patch = json!({"spec": {"replicas": 9}});
        let request = world.request(Verb::Patch, "example.com", "stones/s", Some("shop"), &patch);
        let outcome = world.judge(&request, |_| json!({"allowed": true}));
        assert_eq!(outcome.calls[0].request["resource"]["version"], expected, "{versions:?}");
    }
}

/// The options of a connection have no labels, so no object selector of a webhook matches them.
#[test]
fn ways_to_nodes_have_no_labels() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    for (own, asked) in [(json!({}), 1), (json!({"objectSelector": selector}), 0)] {
        let mut world = World::new();
        world.register("validating", "pods/exec", &[own]);
        let request = world.request(Verb::Create, "", "pods/p/exec", Some("shop"), &json!({}));
        let outcome = world.judge(&request, |_| json!({"allowed": true}));
        assert_eq!((outcome.why().as_str(), outcome.calls.len()), ("", asked));
    }
}

const MODE: &str = "pod-security.kubernetes.io/";

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{"name": "c", "image": "i"}]);
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn labelled(world: &World, namespace: &str, labels: Value) -> Request {
    let labels: holdfast_value::Map = labels
        .as_object()
        .expect("labels")
        .iter()
        .map(|(mode, level)| (format!("{MODE}{mode}"), level.clone()))
        .collect();
    let path = format!("namespaces/{namespace}");
    world.request(Verb::Patch, "", &path, None, &json!({"metadata": {"labels": labels}}))
}

/// If an update raises the pod security standard of a namespace, the client is warned of the pods that violate the new
/// standard. Each warning names the first such pod, and the warnings are ordered by their messages. Pods in an exempt
/// runtime class are skipped.
#[test]
fn pods_that_break_a_raised_standard() {
    let exempt = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "exemptions": {"runtimeClasses": ["apart"]}});
    let mut world = World::with(&[], &[("PodSecurity", exempt)]);
    let class = json!({"metadata": {"name": "apart"}, "handler": "h"});
    world.make("node.k8s.io", "runtimeclasses", None, class);
    let added = json!([{"name": "c", "image": "i", "securityContext": {"capabilities": {"add": ["SYS_TIME"]}}}]);
    for (name, spec) in [
        ("p1", json!({"hostPID": true})),
        ("p11", json!({"containers": added})),
        ("p10", json!({"containers": added})),
        ("p2", json!({"hostPID": true, "runtimeClassName": "apart"})),
        ("p3", json!({})),
    ] {
        world.make("", "pods", Some("shop"), pod(name, spec));
    }
    let outcome = world.alone(&labelled(&world, "shop", json!({"enforce": "baseline"})));
    assert_eq!(
        outcome.warnings(),
        [
            "existing pods in namespace \"shop\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "p10 (and 1 other pod): non-default capabilities",
            "p1: host namespaces",
        ]
    );
}

/// The pod security labels of an exempt namespace have no effect. An update that raises the enforced standard of such a
/// namespace warns that it has no effect, and names the labels.
#[test]
fn standards_of_exempt_namespaces() {
    let exempt = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "exemptions": {"namespaces": ["free"]}});
    let mut world = World::with(&[], &[("PodSecurity", exempt)]);
    world.make("", "namespaces", None, json!({"metadata": {"name": "free"}}));
    let told = |policy: &str| {
        vec![format!("namespace \"free\" is exempt from Pod Security, and the policy ({policy}) will be ignored")]
    };
    for (labels, expected) in [
        (json!({"warn": "baseline"}), vec![]),
        (json!({"enforce": "privileged", "enforce-version": "v1.23"}), vec![]),
        (json!({"enforce": "baseline", "warn": "privileged"}), told("enforce=baseline:latest")),
        (
            json!({"enforce": "baseline", "audit": "restricted", "audit-version": "v1.25"}),
            told("enforce=baseline:latest, audit=restricted:v1.25"),
        ),
    ] {
        let outcome = world.alone(&labelled(&world, "free", labels.clone()));
        assert_eq!(outcome.warnings(), expected, "{labels}");
    }
    world.write(&labelled(&world, "free", json!({"enforce": "restricted"})));
    for (labels, expected) in [
        (json!({"warn": "baseline"}), vec![]),
        (json!({"enforce": "baseline"}), vec![]),
        (json!({"enforce-version": "v1.25"}), told("enforce=restricted:v1.25")),
    ] {
        let outcome = world.alone(&labelled(&world, "free", labels.clone()));
        assert_eq!(outcome.warnings(), expected, "{labels}");
    }
}

/// The client is also warned when it creates an exempt namespace whose labels set any standard.
#[test]
fn standards_of_new_exempt_namespaces() {
    let exempt = json!({"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
        "exemptions": {"namespaces": ["free"]}});
    let world = World::with(&[], &[("PodSecurity", exempt)]);
    let body = json!({"metadata": {"name": "free", "labels": {(format!("{MODE}warn")): "baseline"}}});
    let outcome = world.alone(&world.request(Verb::Create, "", "namespaces", None, &body));
    assert_eq!(
        outcome.warnings(),
        ["namespace \"free\" is exempt from Pod Security, and the policy (warn=baseline:latest) will be ignored"]
    );
}

/// An updated pod is checked again only if something changes that pod security standards read, such as the annotations
/// for a container.
#[test]
fn updates_of_pods_that_standards_look_at() {
    let mut world = World::new();
    world.make("", "pods", Some("shop"), pod("p", json!({"hostPID": true, "automountServiceAccountToken": false})));
    world.write(&labelled(&world, "shop", json!({"enforce": "baseline"})));
    let refused = |patch: &Value| {
        let outcome = world.alone(&world.request(Verb::Patch, "", "pods/p", Some("shop"), patch));
        let why = outcome.why();
        assert!(why.is_empty() || why.contains("violates PodSecurity \"baseline:latest\": host namespaces"), "{why}");
        !why.is_empty()
    };
    let annotated = |key: &str| json!({"metadata": {"annotations": {key: "unconfined"}}});
    for (patch, expected) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), false),
        (annotated("container.seccomp.security.alpha.kubernetes.io/other"), false),
        (annotated("container.seccomp.security.alpha.kubernetes.io/c"), true),
        (json!({"spec": {"containers": [{"name": "c", "image": "other"}]}}), true),
    ] {
        assert_eq!(refused(&patch), expected, "{patch}");
    }
}

/// A service account limits the secrets of its pods if the value of its annotation is any text that Go parses as true.
#[test]
fn accounts_that_limit_secrets() {
    let mut world = World::new();
    world.make("", "secrets", Some("shop"), json!({"metadata": {"name": "s"}}));
    let volumes = json!([{"name": "v", "secret": {"secretName": "s"}}]);
    for (said, expected) in [("true", true), ("1", true), ("T", true), ("TRUE", true), ("yes", false), ("tRUE", false)]
    {
        let annotations = json!({"kubernetes.io/enforce-mountable-secrets": said});
        let patch = json!({"metadata": {"annotations": annotations}});
        world.write(&world.request(Verb::Patch, "", "serviceaccounts/default", Some("shop"), &patch));
        let outcome = world.alone(&world.create("pods", &pod("p", json!({"volumes": volumes}))));
        assert_eq!(outcome.why().contains("does not reference that secret"), expected, "{said}: {}", outcome.why());
    }
}

/// If a plug-in cannot parse the annotations of a namespace, the pods in that namespace are refused. The refusal has
/// the parser's error and no reason.
#[test]
fn annotations_of_a_namespace_that_cannot_be_read() {
    let mut world = World::with(&["PodNodeSelector", "PodTolerationRestriction"], &[]);
    let key = |name: &str| format!("scheduler.alpha.kubernetes.io/{name}");
    let names = ["node-selector", "defaultTolerations", "tolerationsWhitelist"];
    let number = "json: cannot unmarshal number into Go struct field Toleration.key of type string";
    let mut refused = |name: &str, text: &str, spec: Value| {
        let annotations: Value =
            names.iter().map(|other| (key(other), if *other == name { text.into() } else { Value::Null })).collect();
        let patch = json!({"metadata": {"annotations": annotations}});
        world.write(&world.request(Verb::Patch, "", "namespaces/shop", None, &patch));
        let outcome = world.alone(&world.create("pods", &pod("p", spec)));
        outcome.decided.err().map(|refusal| {
            assert!(matches!(refusal, Refusal::Unreasoned(_)), "{refusal:?}");
            (refusal.reason().to_owned(), refusal.message())
        })
    };
    let fault = |why: &str| Some((String::new(), why.to_owned()));
    for (name, text, expected) in [
        ("node-selector", "a=b, c=d", None),
        ("node-selector", "a=b,,", fault("invalid selector: []")),
        ("node-selector", "a==b", fault("invalid selector: [a  b]")),
        ("defaultTolerations", r#"[{"key": "a", "operator": "Exists"}]"#, None),
        ("defaultTolerations", "nope", fault("invalid character 'o' in literal null (expecting 'u')")),
        ("defaultTolerations", r#"[{"key": 1}]"#, fault(number)),
        ("tolerationsWhitelist", r#"[{"operator": "Exists"}]"#, None),
        ("tolerationsWhitelist", "{}", fault("json: cannot unmarshal object into Go value of type []v1.Toleration")),
        ("tolerationsWhitelist", r#"[{"key": 1}]"#, fault(number)),
    ] {
        let tolerations = json!([{"key": "own", "operator": "Exists"}]);
        assert_eq!(refused(name, text, json!({"tolerations": tolerations})), expected, "{name}: {text}");
    }
    // The allowed tolerations are not read for a pod without tolerations, so it does not matter that they are invalid.
    let choice = Choice {
        enabled: vec!["PodTolerationRestriction".to_owned()],
        disabled: vec!["DefaultTolerationSeconds".to_owned()],
        ..Choice::default()
    };
    world.settings.admission = Admission::chosen(&choice).expect("plug-ins");
    assert_eq!(world.alone(&world.create("pods", &pod("p", json!({})))).why(), "");
}

/// Some scopes may be used only if a quota in the namespace covers them. Any quota with the scope is enough, whatever
/// resources it limits.
#[test]
fn scopes_are_covered_by_any_quota() {
    let scope = json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]});
    let limited = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "ResourceQuotaConfiguration",
        "limitedResources": [{"resource": "pods", "matchScopes": [scope]}]});
    let mut world = World::with(&[], &[("ResourceQuota", limited)]);
    let class = json!({"metadata": {"name": "high"}, "value": 1});
    world.make("scheduling.k8s.io", "priorityclasses", None, class);
    let request = |world: &World| world.create("pods", &pod("p", json!({"priorityClassName": "high"})));
    let why = "insufficient quota to match these scopes: [{PriorityClass In [high]}]";
    assert_eq!(world.alone(&request(&world)).why(), why);
    assert_eq!(world.alone(&world.create("pods", &pod("p", json!({})))).why(), "");
    // The status of the new quota does not contain its limits yet. The quota covers the scope nevertheless.
    let spec = json!({"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [scope]}});
    world.make("", "resourcequotas", Some("shop"), json!({"metadata": {"name": "q"}, "spec": spec}));
    assert_eq!(world.alone(&request(&world)).why(), "");
}
