//! Admission with very many webhooks and policies. When a webhook answers, earlier results must not be computed again.
//! Many objects of other users must not delay a write for long. These tests also cover faulty patches.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_core::Refusal;
use holdfast_core::admission::{Admission, Told};
use holdfast_core::apply::apply;
use holdfast_core::authz::User;
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::{Answers, Basis, Decision, Effect, Judgement, Reviewed, Settings, actor, decide, judge};
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, State};
use holdfast_value::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GROUP: &str = "admissionregistration.k8s.io";

/// The number of times that admission has read the clock. It reads the clock twice for each step that it measures.
static LOOKS: AtomicU64 = AtomicU64::new(0);

fn settings() -> Settings {
    Settings {
        admission: Admission::standard(),
        ticks: || LOOKS.fetch_add(1, Ordering::Relaxed),
        ..Settings::default()
    }
}

fn stamp(state: &State) -> Stamp {
    Stamp { time: jiff::Timestamp::from_second(1_795_255_200).expect("within range"), seed: state.offset.0 }
}

fn request(state: &State, group: &str, resource: &str, namespace: Option<&str>, body: &Value) -> Request {
    let (kind, version) = state.registry.find(group, "v1", resource).expect("a kind");
    let target = Target { kind, version, namespace: namespace.map(str::to_owned), name: None, subresource: None };
    Request {
        user: Arc::new(User::new("jane", &[])),
        verb: Verb::Create,
        target,
        options: Options::default(),
        body: Body { content: body.to_string().into_bytes().into(), format: Format::Json },
        id: String::new(),
    }
}

fn create(state: &mut State, group: &str, resource: &str, namespace: Option<&str>, body: &Value) {
    let request = request(state, group, resource, namespace, body);
    let decision = decide(Basis::without_authorization(state, &settings()), &request, stamp(state)).expect("an object");
    for write in decision.writes {
        let offset = state.offset.next();
        let record = Record {
            offset: offset.0,
            time_ms: 0,
            resource: state.kind(write.kind).storage.path.clone(),
            key: write.key.to_string(),
            replaces: 0,
            operation: Operation::Put as i32,
            actor: actor(&request),
            object: write.draft.seal(offset),
        };
        let change = Change::from_record(&state.registry, &record).expect("a known kind");
        apply(state, &change);
    }
}

fn cluster() -> State {
    let mut state = State::new(Arc::new(registry().clone()));
    create(&mut state, "", "namespaces", None, &json!({"metadata": {"name": "shop"}}));
    state
}

fn rules() -> Value {
    json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}])
}

/// Judges a request until it needs no more effects. Each webhook answers with an annotation that has the webhook's
/// name.
fn judged(state: &State, request: &Request) -> (Result<Decision, Refusal>, Told, usize) {
    judged_by(state, request, |webhook, nth| {
        let path = format!("/metadata/annotations/{webhook}");
        let patch = json!([{"op": "add", "path": path, "value": nth.to_string()}]).to_string();
        json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)})
    })
}

/// Like [`judged`], but `respond` makes the answer to the nth review. The request is also judged without pauses, so
/// that judging begins at the first webhook after each answer. Both ways must give the same result.
fn judged_by(
    state: &State,
    request: &Request,
    respond: impl Fn(&str, usize) -> Value,
) -> (Result<Decision, Refusal>, Told, usize) {
    let (mut answers, mut without_pauses, mut asked) = (Answers::default(), Answers::default(), 0);
    // The second judgement has a clock of its own, because tests count how often the clock is read.
    let (settings, settings_without_clock) = (settings(), Settings { ticks: || 0, ..settings() });
    let judge = |settings: &Settings, answers: &Answers| {
        judge(Basis::without_authorization(state, settings), request, stamp(state), answers)
    };
    loop {
        match (judge(&settings, &answers), judge(&settings_without_clock, &without_pauses)) {
            (Judgement::Done(done, told), Judgement::Done(other, other_told)) => {
                assert_eq!(format!("{done:?}"), format!("{other:?}"));
                assert_eq!((&told.warnings, &told.annotations), (&other_told.warnings, &other_told.annotations));
                return (done, told, asked);
            }
            (Judgement::Need(Effect::Review { calls, pause }), Judgement::Need(Effect::Review { calls: same, .. })) => {
                assert_eq!(calls, same);
                answers.paused(pause);
                for call in calls {
                    asked += 1;
                    let sent: Value = serde_json::from_slice(&call.review().concat()).expect("JSON");
                    assert_eq!(
                        (&sent["kind"], &sent["apiVersion"]),
                        (&json!("AdmissionReview"), &json!(call.api_version))
                    );
                    let told = &sent["request"];
                    assert_eq!(
                        (&told["uid"], &told["object"]["metadata"]["name"]),
                        (&call.request["uid"], &json!("s"))
                    );
                    assert!(told["oldObject"].is_null() && told["operation"] == "CREATE", "{told}");
                    let mut response = respond(&call.webhook, asked);
                    response["uid"] = call.request["uid"].clone();
                    let review =
                        json!({"apiVersion": call.api_version, "kind": "AdmissionReview", "response": response});
                    let reviewed = Reviewed { answer: Ok(review.to_string().into_bytes()), nanos: 0 };
                    without_pauses.reviewed(call.clone(), reviewed.clone());
                    answers.reviewed(call, reviewed);
                }
            }
            (one, other) => panic!("{one:?}, {other:?}"),
        }
    }
}

/// Registers a webhook that is called for all writes of secrets.
fn watched(state: &mut State, resource: &str, kind: &str) {
    let mut rules = rules();
    rules[0]["operations"] = json!(["*"]);
    let webhook = json!({
        "name": "w.example.com", "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://localhost/a"},
    });
    let body = json!({"kind": kind, "metadata": {"name": "w"}, "webhooks": [webhook]});
    create(state, GROUP, resource, None, &body);
}

/// The reviews that webhooks get for a request, and the decision. Each review is answered with `patch`.
fn reviews(state: &State, request: &Request, patch: &Value) -> (Vec<Value>, Result<Decision, Refusal>) {
    let (mut answers, mut seen) = (Answers::default(), Vec::new());
    loop {
        match judge(Basis::without_authorization(state, &settings()), request, stamp(state), &answers) {
            Judgement::Done(done, _) => return (seen, done),
            Judgement::Need(Effect::Review { calls, pause }) => {
                answers.paused(pause);
                for call in calls {
                    let sent: Value = serde_json::from_slice(&call.review().concat()).expect("JSON");
                    let mut response = json!({"allowed": true, "uid": call.request["uid"]});
                    if !call.is_validating {
                        response["patchType"] = json!("JSONPatch");
                        response["patch"] = STANDARD.encode(patch.to_string()).into();
                    }
                    let review =
                        json!({"apiVersion": call.api_version, "kind": "AdmissionReview", "response": response});
                    answers.reviewed(call, Reviewed { answer: Ok(review.to_string().into_bytes()), nanos: 0 });
                    seen.push(sent["request"].clone());
                }
            }
            Judgement::Need(effect) => panic!("{effect:?}"),
        }
    }
}

#[test]
fn webhooks_see_which_version_a_write_is_on_top_of() {
    let mut state = cluster();
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": "Yg=="}});
    create(&mut state, "", "secrets", Some("shop"), &secret);
    let version = json!(state.offset.to_string());
    watched(&mut state, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration");
    watched(&mut state, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration");
    let at = "/metadata/resourceVersion";
    let seen = |verb: Verb, format: Format, body: &Value| {
        let mut request = request(&state, "", "secrets", Some("shop"), body);
        (request.verb, request.body.format) = (verb, format);
        request.target.name = (verb != Verb::Create).then(|| "s".to_owned());
        let (reviews, done) = reviews(&state, &request, &json!([]));
        let versions = |field: &str| -> Vec<Value> {
            reviews.iter().map(|review| review[field].pointer(at).cloned().unwrap_or_default()).collect()
        };
        (versions("object"), versions("oldObject"), done.map(|_| ()))
    };
    let none = Value::Null;
    let named = json!({"metadata": {"name": "s", "resourceVersion": version}, "data": {"a": "Yw=="}});
    let (mutating, both) = (vec![none.clone(), version.clone()], vec![version.clone(), version.clone()]);
    // A client that sends the whole object may omit the resourceVersion. Mutating webhooks then get an object without
    // one.
    for (verb, format, body, object, old) in [
        (Verb::Update, Format::Json, &secret, &mutating, &both),
        (Verb::Update, Format::Json, &named, &both, &both),
        (Verb::Patch, Format::MergePatch, &json!({"data": {"a": "Yw=="}}), &both, &both),
        (Verb::Delete, Format::Json, &json!({}), &vec![none.clone(), none.clone()], &both),
    ] {
        let (objects, olds, done) = seen(verb, format, body);
        assert_eq!((&objects, &olds, done), (object, old, Ok(())), "{verb:?} {body}");
    }
    // The server finds out only after all webhooks were called that the name is taken, so the webhooks see the object.
    let (objects, olds, done) = seen(Verb::Create, Format::Json, &secret);
    assert_eq!((objects, olds), (vec![none.clone(), none.clone()], vec![none.clone(), none]));
    assert!(matches!(done, Err(Refusal::AlreadyExists { .. })), "{done:?}");
}

#[test]
fn what_replaces_an_object_whole_may_leave_its_namespace_to_the_request() {
    let mut state = cluster();
    watched(&mut state, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration");
    let request = request(&state, "", "secrets", Some("shop"), &json!({"metadata": {"name": "s"}}));
    for (namespace, fits) in [(Value::Null, true), (json!(""), true), (json!("shop"), true), (json!("other"), false)] {
        let whole = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": namespace}});
        let (_, done) = reviews(&state, &request, &json!([{"op": "replace", "path": "", "value": whole}]));
        let key = done.map(|decision| decision.writes[0].key.to_string());
        assert_eq!(key.ok().as_deref(), fits.then_some("shop/s"), "{namespace}");
    }
}

/// Each of a hundred webhooks must be called once, or twice with reinvocation. Match conditions must be evaluated about
/// as often: an answer must not cause another evaluation of the conditions before it.
#[test]
fn webhooks_behind_others_have_nothing_gone_through_again() {
    const COUNT: usize = 100;
    for (policy, rounds) in [("Never", 1), ("IfNeeded", 2)] {
        let mut state = cluster();
        let webhook = |number: usize| {
            json!({"name": format!("w{number}.example.com"), "clientConfig": {"url": "https://hooks.example.com"},
                "rules": rules(), "sideEffects": "None", "admissionReviewVersions": ["v1"], "reinvocationPolicy": policy,
                "matchConditions": [{"name": "named", "expression": "object.metadata.name != ''"}]})
        };
        // Each configuration has ten webhooks.
        for first in (0..COUNT).step_by(10) {
            let webhooks: Vec<Value> = (first..first + 10).map(webhook).collect();
            let body = json!({"metadata": {"name": format!("c{first:02}")}, "webhooks": webhooks});
            create(&mut state, GROUP, "mutatingwebhookconfigurations", None, &body);
        }
        let body = json!({"metadata": {"name": "s", "annotations": {"a": "b"}}});
        let request = request(&state, "", "secrets", Some("shop"), &body);
        LOOKS.store(0, Ordering::Relaxed);
        let (decision, told, asked) = judged(&state, &request);
        let decision = decision.expect("it is let through");
        let object: Value = serde_json::from_slice(&decision.writes[0].draft.seal(state.offset)).expect("JSON");
        let marks = object["metadata"]["annotations"].as_object().expect("annotations").len() - 1;
        assert_eq!(marks, COUNT, "{policy}");
        assert_eq!(asked, COUNT * rounds, "{policy}");
        assert_eq!(decision.changes.len(), asked, "{policy}");
        let mutated = told.annotations.iter().filter(|(key, _)| key.starts_with("mutation.webhook.")).count();
        assert_eq!(mutated, asked, "{policy}");
        let looks = usize::try_from(LOOKS.load(Ordering::Relaxed)).expect("few");
        // `looks` counts the readings of the clock. A match condition reads the clock twice, and so do some plug-ins in
        // each round. If a round did not resume at the webhook where the last round stopped, the conditions of all
        // earlier webhooks would be evaluated again.
        assert!(looks < asked * 100, "{policy}: {looks} looks for {asked} webhooks");
    }
}

/// Tests webhooks that answer with a faulty patch: a denial counts and warnings are sent, whatever the patch is. Only
/// after that, the failure policy decides what happens because of an invalid patch.
#[test]
fn faulty_patches() {
    const FAILED: &str = "Internal error occurred: failed calling webhook \"w.example.com\": ";
    const DENIED: &str = "admission webhook \"w.example.com\" denied the request without explanation";
    // Each case has the response without warnings, the expected refusal, and whether the failure policy `Ignore` admits
    // the write.
    let cases = [
        (json!({"allowed": false, "patch": STANDARD.encode("not json"), "patchType": "JSONPatch"}), DENIED, false),
        (json!({"allowed": false, "patch": STANDARD.encode("[]"), "patchType": "MergePatch"}), DENIED, false),
        (json!({"allowed": true, "patch": STANDARD.encode("[]"), "patchType": "MergePatch"}), "", true),
        (json!({"allowed": true, "patch": STANDARD.encode("null"), "patchType": "MergePatch"}), "", true),
        (
            json!({"allowed": true, "patch": STANDARD.encode("not json"), "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response: invalid character 'o' in literal null (expecting 'u')",
            true,
        ),
        (
            json!({"allowed": true, "patch": STANDARD.encode("{}"), "patchType": "MergePatch"}),
            "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type \
             jsonpatch.Patch",
            true,
        ),
        (
            json!({"allowed": true, "patch": STANDARD.encode("[1]"), "patchType": "JSONPatch"}),
            "received undecodable patch in webhook response: json: cannot unmarshal number into Go value of type \
             jsonpatch.Operation",
            true,
        ),
        (
            json!({"allowed": true, "patch": STANDARD.encode("[{}]"), "patchType": "MergePatch"}),
            "unsupported patch type \"MergePatch\"",
            true,
        ),
        (
            json!({"allowed": true, "patch": STANDARD.encode("[{}]"), "patchType": ""}),
            "received invalid webhook response: webhook returned invalid response.patchType of \"\"",
            true,
        ),
        (
            json!({"allowed": false, "patch": "?", "patchType": "JSONPatch"}),
            "failed to call webhook: illegal base64 data at input byte 0",
            true,
        ),
        (
            json!({"allowed": true, "patch": STANDARD.encode("[{}]"), "patchType": "JSONPatch"}),
            "Internal error occurred: Unexpected kind: unknown",
            false,
        ),
        (
            json!({"allowed": true, "patchType": "JSONPatch",
                "patch": STANDARD.encode(r#"[{"op": "test", "path": "/metadata/labels/a", "value": "b"}]"#)}),
            "Internal error occurred: test operation does not apply: is missing path: /metadata/labels/a: missing value",
            false,
        ),
        (
            json!({"allowed": true, "patchType": "JSONPatch",
                "patch": STANDARD.encode(r#"[{"op": "add", "path": 1, "value": "b"}]"#)}),
            "Internal error occurred: add operation failed to decode path: missing value",
            false,
        ),
    ];
    for policy in ["Fail", "Ignore"] {
        let mut state = cluster();
        let webhook = json!({"name": "w.example.com", "clientConfig": {"url": "https://hooks.example.com"},
            "rules": rules(), "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": policy});
        let body = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
        create(&mut state, GROUP, "mutatingwebhookconfigurations", None, &body);
        let request = request(&state, "", "secrets", Some("shop"), &json!({"metadata": {"name": "s"}}));
        for (response, why, is_forgiven) in &cases {
            let mut said = response.clone();
            said["warnings"] = json!(["told"]);
            let (decision, told, _) = judged_by(&state, &request, |_, _| said.clone());
            let is_let_through = why.is_empty() || (*is_forgiven && policy == "Ignore");
            let warnings = decision.as_ref().map_or(&told.warnings, |decision| &decision.warnings).len();
            let found = decision.map_or_else(|refusal| refusal.message(), |_| String::new());
            let wanted = match () {
                () if is_let_through => String::new(),
                () if *is_forgiven => format!("{FAILED}{why}"),
                () => (*why).to_owned(),
            };
            assert_eq!(found, wanted, "{policy}: {response}");
            let is_read = !why.contains("illegal base64") && !why.contains("invalid webhook response");
            assert_eq!(warnings, usize::from(is_read), "{policy}: {response}");
        }
    }
}

/// Tests the JSON patches of mutating policies. If an operation `test` fails, the object stays unchanged. If another
/// operation cannot be applied, or a `test` has a path that does not exist, the failure policy decides.
#[test]
fn operations_of_policies_that_do_not_apply() {
    let cases = [
        (r#"JSONPatch{op: "test", path: "/metadata/name", value: "other"}"#, ""),
        (r#"JSONPatch{op: "test", path: "/metadata/none", value: "other"}"#, ""),
        (
            r#"JSONPatch{op: "test", path: "/metadata/labels/a", value: "b"}"#,
            "test operation does not apply: is missing path: /metadata/labels/a: missing value",
        ),
        (
            r#"JSONPatch{op: "test", path: "/metadata/finalizers/9", value: "b"}"#,
            "error in test for path: '/metadata/finalizers/9': Unable to access invalid index: 9: invalid index \
             referenced",
        ),
        (
            r#"JSONPatch{op: "copy", path: "/metadata/labels"}"#,
            "copy operation failed to decode from: operation, missing from field: missing value",
        ),
        (r#"JSONPatch{op: "remove"}"#, "remove operation does not apply: doc is missing path: \"\": missing value"),
    ];
    let secret = json!({"metadata": {"name": "s", "finalizers": ["a.example.com/b"]}});
    for policy in ["Fail", "Ignore"] {
        for (operation, why) in cases {
            let mut state = cluster();
            let added = r#"JSONPatch{op: "add", path: "/metadata/annotations", value: {"a": "b"}}"#;
            let expression = format!("[{added}, {operation}]");
            let spec = json!({"failurePolicy": policy, "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": rules()},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]});
            let body = json!({"metadata": {"name": "p"}, "spec": spec});
            create(&mut state, GROUP, "mutatingadmissionpolicies", None, &body);
            let body = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
            create(&mut state, GROUP, "mutatingadmissionpolicybindings", None, &body);
            let (decision, ..) = judged(&state, &request(&state, "", "secrets", Some("shop"), &secret));
            match decision {
                Ok(decision) => {
                    assert!(why.is_empty() || policy == "Ignore", "{policy}: {operation}");
                    let sealed = decision.writes[0].draft.seal(state.offset);
                    let object: Value = serde_json::from_slice(&sealed).expect("JSON");
                    assert!(object["metadata"]["annotations"].is_null(), "{policy}: {operation}: {object}");
                }
                Err(refusal) => {
                    let expected = format!("policy 'p' with binding 'b' denied request: JSON Patch: {why}");
                    assert_eq!((refusal.message(), policy), (expected, "Fail"), "{operation}");
                }
            }
        }
    }
}

/// The parameters of a policy must have a cost even if no expression reads them, because other users may create many of
/// them.
#[test]
fn parameters_are_counted_by_their_size() {
    let mut state = cluster();
    let text = "x".repeat(200_000);
    for number in 0..50 {
        let body = json!({"metadata": {"name": format!("p{number}")}, "data": {"text": text}});
        create(&mut state, "", "configmaps", Some("shop"), &body);
    }
    let secret = json!({"metadata": {"name": "s"}});
    for number in 0..12 {
        let name = format!("policy{number:02}");
        let spec = json!({"failurePolicy": "Ignore", "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": rules()}, "validations": [{"expression": "true"}]});
        let body = json!({"metadata": {"name": name}, "spec": spec});
        create(&mut state, GROUP, "validatingadmissionpolicies", None, &body);
        let spec = json!({"policyName": name, "validationActions": ["Deny"],
            "paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}});
        let body = json!({"metadata": {"name": name}, "spec": spec});
        create(&mut state, GROUP, "validatingadmissionpolicybindings", None, &body);
        let (decision, ..) = judged(&state, &request(&state, "", "secrets", Some("shop"), &secret));
        // Each of these policies costs ten million units, and all policies together may cost a hundred million units.
        match (number < 9, decision) {
            (true, decision) => _ = decision.expect("it is let through"),
            (false, Err(refusal)) => {
                assert!(refusal.message().contains("cost too much for one request"), "{}", refusal.message());
            }
            (false, Ok(_)) => panic!("it is let through with {} policies", number + 1),
        }
    }
}
