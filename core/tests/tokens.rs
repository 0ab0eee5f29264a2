//! Service account tokens: the core chooses the claims, and the caller signs them.

use holdfast_core::Refusal;
use holdfast_core::apply::apply;
use holdfast_core::authz::User;
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::registry;
use holdfast_core::pipeline::{
    Answer, Answers, Basis, BoundTo, Effect, Judgement, Settings, SignedToken, TokenClaims, actor, decide, judge,
};
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, State};
use holdfast_value::{Value, json};
use std::sync::Arc;

const NOW: i64 = 1_795_255_200;

fn stamp(seed: u64) -> Stamp {
    Stamp { time: jiff::Timestamp::from_second(NOW).expect("within range"), seed }
}

fn request(state: &State, resource: &str, namespace: Option<&str>, name: Option<&str>, body: &Value) -> Request {
    let (kind, version) = state.registry.find("", "v1", resource).expect("a core kind");
    let text = |text: Option<&str>| text.map(str::to_owned);
    let target = Target { kind, version, namespace: text(namespace), name: text(name), subresource: None };
    Request {
        user: Arc::new(User::new("jane", &[])),
        verb: Verb::Create,
        target,
        options: Options::default(),
        body: Body { content: body.to_string().into_bytes().into(), format: Format::Json },
        id: String::new(),
    }
}

fn create(state: &mut State, resource: &str, namespace: Option<&str>, body: &Value) {
    let request = request(state, resource, namespace, None, body);
    let stamp = stamp(state.offset.0);
    let decision =
        decide(Basis::without_authorization(state, &Settings::default()), &request, stamp).expect("an object");
    for write in decision.writes {
        let offset = state.offset.next();
        let record = Record {
            offset: offset.0,
            time_ms: NOW * 1000,
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
    let container = json!({"name": "c", "image": "i"});
    create(&mut state, "namespaces", None, &json!({"metadata": {"name": "shop"}}));
    create(&mut state, "serviceaccounts", Some("shop"), &json!({"metadata": {"name": "robot"}}));
    create(&mut state, "nodes", None, &json!({"metadata": {"name": "node1"}}));
    for (name, account, node) in [("mine", "robot", "node1"), ("lost", "robot", "gone"), ("other", "else", "")] {
        let spec = json!({"serviceAccountName": account, "nodeName": node, "containers": [container]});
        create(&mut state, "pods", Some("shop"), &json!({"metadata": {"name": name}, "spec": spec}));
    }
    state
}

fn token(state: &State, spec: &Value) -> Request {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let mut request = request(state, "serviceaccounts", Some("shop"), Some("robot"), &body);
    request.target.subresource = Some("token".into());
    request
}

/// The claims of the token for which judging asks the engine for a signature.
fn claims(state: &State, spec: &Value) -> Result<TokenClaims, Refusal> {
    match judge(
        Basis::without_authorization(state, &Settings::default()),
        &token(state, spec),
        stamp(9),
        &Answers::default(),
    ) {
        Judgement::Need(Effect::Sign(claims)) => Ok(*claims),
        Judgement::Done(Err(refusal), _) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

fn uid(state: &State, resource: &str, key: &str) -> String {
    let (kind, _) = state.registry.find("", "v1", resource).expect("a core kind");
    let document = state.get(kind, key).expect("it is there").document();
    document["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_token_is_signed_outside_and_shown_in_its_request() {
    let state = cluster();
    let spec = json!({"audiences": ["a"], "expirationSeconds": 600});
    let claims = claims(&state, &spec).expect("claims");
    assert_eq!((claims.issued, claims.expires), (NOW, NOW + 600));
    assert_eq!(
        (claims.subject.as_str(), claims.audiences.as_slice()),
        ("system:serviceaccount:shop:robot", &["a".into()][..])
    );
    assert_eq!(claims.account, BoundTo { name: "robot".into(), uid: uid(&state, "serviceaccounts", "shop/robot") });
    let mut answers = Answers::default();
    answers.signed(claims, SignedToken { token: "t".into(), audiences: vec!["a".into()] });
    match judge(Basis::without_authorization(&state, &Settings::default()), &token(&state, &spec), stamp(9), &answers) {
        Judgement::Done(Ok(decision), _) => {
            assert!(decision.writes.is_empty());
            let Answer::Document { document } = decision.answer else { panic!("{:?}", decision.answer) };
            assert_eq!(document["status"]["token"], "t");
            assert_eq!(document["spec"]["audiences"], json!(["a"]));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_is_bound_to_what_is_there() {
    let state = cluster();
    let bound = |kind: &str, name: &str| claims(&state, &json!({"boundObjectRef": {"kind": kind, "name": name}}));
    let mine = bound("Pod", "mine").expect("its own pod");
    assert_eq!(mine.pod, Some(BoundTo { name: "mine".into(), uid: uid(&state, "pods", "shop/mine") }));
    assert_eq!(mine.node, Some(BoundTo { name: "node1".into(), uid: uid(&state, "nodes", "node1") }));
    let lost = bound("Pod", "lost").expect("a pod of a node that is gone");
    assert_eq!(lost.node, Some(BoundTo { name: "gone".into(), uid: String::new() }));
    assert!(matches!(bound("Pod", "other"), Err(Refusal::BadRequest(_))));
    assert!(matches!(bound("Pod", "none"), Err(Refusal::NotFound(_))));
    assert!(matches!(bound("Secret", "none"), Err(Refusal::NotFound(_))));
    assert!(matches!(bound("Job", "none"), Err(Refusal::BadRequest(_))));
}

#[test]
fn a_token_has_bounds() {
    let state = cluster();
    for (seconds, good) in [(599, false), (600, true), (1 << 32, true), ((1 << 32) + 1, false), (i64::MAX, false)] {
        let outcome = claims(&state, &json!({"expirationSeconds": seconds}));
        match good {
            true => assert_eq!(outcome.expect("within bounds").expires, NOW + seconds),
            false => assert!(matches!(outcome, Err(Refusal::Invalid { .. })), "{seconds}"),
        }
    }
}

#[test]
fn what_a_token_is_bound_to_is_named_whole() {
    let state = cluster();
    let told = |reference: Value| {
        let refusal = claims(&state, &json!({"boundObjectRef": reference})).err();
        refusal.map(|refusal| (refusal.reason().to_owned(), refusal.message()))
    };
    for (reference, reason, message) in [
        (json!({}), "BadRequest", "cannot bind token to object of type /, Kind="),
        (json!({"uid": "u"}), "BadRequest", "cannot bind token to object of type /, Kind="),
        (json!({"apiVersion": "v1", "name": "mine"}), "BadRequest", "cannot bind token to object of type /v1, Kind="),
        (
            json!({"apiVersion": "apps/v1", "name": "mine"}),
            "BadRequest",
            "cannot bind token to object of type apps/v1, Kind=",
        ),
        (json!({"apiVersion": "v1", "kind": "Pod"}), "BadRequest", "Name parameter required."),
        (json!({"kind": "Node", "name": ""}), "BadRequest", "Name parameter required."),
        (json!({"kind": "Secret"}), "BadRequest", "Name parameter required."),
        (json!({"apiVersion": "v1", "kind": "Pod", "name": "nobody"}), "NotFound", "pods \"nobody\" not found"),
    ] {
        assert_eq!(told(reference.clone()), Some((reason.to_owned(), message.to_owned())), "{reference}");
    }
    for reference in [Value::Null, json!({"apiVersion": "a/b/c", "kind": "Pod", "name": "mine"})] {
        assert_eq!(told(reference.clone()), None, "{reference}");
    }
}
