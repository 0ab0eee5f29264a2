//! Carries out the plans for APIServices on a state in memory. Each test ends when a new plan has no steps.

use holdfast_core::apiservices::available::{self, Condition, Finding};
use holdfast_core::apiservices::local::{self, Custom};
use holdfast_core::apiservices::resolve::{self, Routing, Slices};
use holdfast_core::apiservices::trust::{self, FrontProxy, Trust};
use holdfast_core::apiservices::{ApiService, GroupVersion};
use holdfast_core::apply::apply;
use holdfast_core::authz::{PRIVILEGED_GROUP, User};
use holdfast_core::event::{Operation, Record};
use holdfast_core::kinds::registry;
use holdfast_core::namespace::Step;
use holdfast_core::object::meta;
use holdfast_core::pipeline::{self, Basis, Decision, Settings};
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::stamp::Stamp;
use holdfast_core::state::{Change, State};
use holdfast_value::{Value, json};
use jiff::Timestamp;
use std::sync::Arc;

struct World {
    state: State,
    slices: Slices,
    custom: Custom,
    commands: u64,
}

impl World {
    fn new() -> World {
        let mut world = World {
            state: State::new(Arc::new(registry().clone())),
            slices: Slices::default(),
            custom: Custom::default(),
            commands: 0,
        };
        for name in ["default", "kube-system"] {
            world.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        }
        world
    }

    fn stamp(&self) -> Stamp {
        let time = Timestamp::from_second(1_795_000_000 + self.commands as i64).unwrap();
        Stamp { time, seed: self.commands }
    }

    fn carry_out(&mut self, request: &Request) {
        self.commands += 1;
        let settings = Settings::default();
        let basis = Basis::without_authorization(&self.state, &settings);
        let decided = pipeline::decide(basis, request, self.stamp());
        let Decision { writes, .. } = decided.unwrap_or_else(|refusal| panic!("{request:?}: {refusal:?}"));
        for write in writes {
            let offset = self.state.offset.next();
            let record = Record {
                offset: offset.0,
                time_ms: 0,
                resource: self.state.kind(write.kind).storage.path.clone(),
                key: write.key.to_string(),
                replaces: write.expect.map_or(0, |offset| offset.0),
                operation: if write.delete { Operation::Delete } else { Operation::Put } as i32,
                actor: pipeline::actor(request),
                object: write.draft.seal(offset),
            };
            let change = Change::from_record(&self.state.registry, &record).unwrap();
            let kind = self.state.kind(change.kind).kind.clone();
            let now = Some(&change.entry).filter(|_| !change.deleted);
            if kind == "EndpointSlice" {
                self.slices.note(&change.key, now.map(|entry| &**entry));
            }
            apply(&mut self.state, &change);
        }
    }

    fn steps(&mut self, steps: Vec<Step>) -> usize {
        steps.iter().for_each(|step| self.carry_out(&step.request));
        steps.len()
    }

    fn create(&mut self, document: Value) {
        self.send(Verb::Create, &document);
    }

    fn send(&mut self, verb: Verb, document: &Value) {
        let api_version = document["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = document["kind"].as_str().unwrap();
        let (kind, version) = self.state.registry.find_kind(group, version, kind).unwrap();
        let meta = &document["metadata"];
        let text = |field: &str| meta[field].as_str().map(str::to_owned);
        let name = text("name").filter(|_| verb != Verb::Create);
        let target = Target { kind, version, namespace: text("namespace"), name, subresource: None };
        let bytes = if verb == Verb::Delete { String::new() } else { document.to_string() };
        let body = Body { content: bytes.into(), format: Format::Json };
        let user = Arc::new(User::new("admin", &[PRIVILEGED_GROUP]));
        self.carry_out(&Request { user, verb, target, options: Options::default(), body, id: "test".into() });
    }

    fn api_service(&self, name: &str) -> Option<Value> {
        let (kind, _) = self.state.registry.find("apiregistration.k8s.io", "v1", "apiservices").unwrap();
        self.state.get(kind, name).map(|entry| entry.document())
    }

    fn plan(&self, name: &str) -> Option<Step> {
        local::plan(&self.state, &self.custom, &GroupVersion::of_name(name).unwrap(), false)
    }

    fn check(&self, name: &str) -> Finding {
        let service = ApiService::read(&self.api_service(name).unwrap()).unwrap();
        available::check(&self.state, &self.slices, &service)
    }
}

fn definition(group: &str, versions: &[(&str, bool)]) -> Value {
    let versions: Vec<Value> = versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
    json!({"spec": {"group": group, "versions": versions}})
}

fn local_service(name: &str) -> Value {
    let (version, group) = name.split_once('.').unwrap();
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 5, "versionPriority": 5},
    })
}

fn remote_service(name: &str) -> Value {
    let mut service = local_service(name);
    service["spec"]["service"] = json!({"namespace": "default", "name": "backend"});
    service["spec"]["insecureSkipTLSVerify"] = true.into();
    service
}

#[test]
fn every_built_in_version_has_priorities() {
    for group in registry().groups() {
        for version in &group.versions {
            let served = GroupVersion::new(group.group.as_str(), version.as_str());
            let own = served.group == "apiregistration.k8s.io";
            assert_eq!(local::built_in(&served).is_none(), own, "{served:?}");
        }
    }
}

#[test]
fn what_is_built_in_has_its_api_services() {
    let mut world = World::new();
    let made = world.steps(local::plan_all(&world.state, &world.custom));
    assert_eq!(made, local::built_in_versions().count());
    assert!(local::plan_all(&world.state, &world.custom).is_empty());
    let apps = world.api_service("v1.apps").unwrap();
    assert_eq!(apps["metadata"]["labels"], json!({(local::LABEL): "onstart"}));
    let spec = json!({"group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15});
    assert_eq!(apps["spec"], spec);
    let condition = &apps["status"]["conditions"][0];
    assert_eq!((&condition["reason"], &condition["status"]), (&json!("Local"), &json!("True")));
    assert_eq!(world.check("v1.apps"), Finding::Known(Condition::local()));

    // Changes that users make are undone when the server starts the next time. An APIService that users delete is
    // created again at once.
    let mut changed = apps.clone();
    changed["spec"]["versionPriority"] = 3.into();
    world.send(Verb::Update, &changed);
    assert!(world.plan("v1.apps").is_none());
    assert_eq!(world.steps(local::plan_all(&world.state, &world.custom)), 1);
    assert_eq!(world.api_service("v1.apps").unwrap()["spec"], spec);
    world.send(Verb::Delete, &apps);
    let step = world.plan("v1.apps").expect("a step");
    assert_eq!(world.steps(vec![step]), 1);
    assert!(world.api_service("v1.apps").is_some() && world.plan("v1.apps").is_none());
}

#[test]
fn definitions_have_api_services_as_long_as_they_serve() {
    // Each line has the group versions to plan after a definition changed, and the APIServices of the group that then
    // exist.
    let mut world = World::new();
    let mut lines = Vec::new();
    let both = definition("a.io", &[("v1", true), ("v2", true), ("v3", false)]);
    let one = definition("a.io", &[("v1", true), ("v2", false)]);
    for (name, state) in [
        ("x.a.io", Some(&both)),
        ("y.a.io", Some(&one)),
        ("x.a.io", Some(&both)),
        ("x.a.io", Some(&one)),
        ("x.a.io", None),
        ("y.a.io", None),
    ] {
        let touched = world.custom.note(name, state);
        for served in &touched {
            let step = local::plan(&world.state, &world.custom, served, false);
            world.steps(step.into_iter().collect());
            assert!(local::plan(&world.state, &world.custom, served, false).is_none());
        }
        let there = ["v1", "v2", "v3"].map(|version| world.api_service(&format!("{version}.a.io")).is_some());
        let touched: Vec<&str> = touched.iter().map(|served| served.version.as_str()).collect();
        lines.push((touched.join(" "), there));
    }
    let expected = [
        ("v1 v2", [true, true, false]),
        ("v1", [true, true, false]),
        ("", [true, true, false]),
        ("v2", [true, false, false]),
        ("v1", [true, false, false]),
        ("v1", [false, false, false]),
    ];
    assert_eq!(lines, expected.map(|(touched, there)| (touched.to_owned(), there)));
}

#[test]
fn an_api_service_of_somebody_elses_is_left_alone() {
    let mut world = World::new();
    world.create(local_service("v1.a.io"));
    world.custom.note("x.a.io", Some(&definition("a.io", &[("v1", true)])));
    assert!(world.plan("v1.a.io").is_none());
    world.custom.note("x.a.io", None);
    assert!(world.plan("v1.a.io").is_none());
    // With this label, the server always manages the APIService: it is corrected, and deleted when nothing is served.
    let mut kept = local_service("v1.b.io");
    kept["metadata"]["labels"] = json!({(local::LABEL): "true"});
    world.create(kept);
    world.custom.note("x.b.io", Some(&definition("b.io", &[("v1", true)])));
    let step = world.plan("v1.b.io").expect("a step");
    world.steps(vec![step]);
    assert_eq!(world.api_service("v1.b.io").unwrap()["spec"]["groupPriorityMinimum"], 1000);
    world.custom.note("x.b.io", None);
    let all = local::plan_all(&world.state, &world.custom);
    world.steps(all);
    assert!(world.api_service("v1.b.io").is_none() && world.api_service("v1.a.io").is_some());
}

#[test]
fn a_backend_is_judged_by_its_service_and_endpoints() {
    let mut world = World::new();
    world.create(remote_service("v1.a.io"));
    let known = |finding: Finding| match finding {
        Finding::Known(condition) => format!("{}: {}", condition.reason, condition.message),
        Finding::Ask => "ask".into(),
    };
    let at = |world: &World| {
        let reference = ("default", "backend", 443);
        [Routing::Service, Routing::Endpoints].map(|routing| {
            match resolve::resolve(&world.state, &world.slices, reference, routing, 1) {
                Ok(address) => format!("{}:{}", address.host, address.port),
                Err(why) => why,
            }
        })
    };
    let service = |port: u16| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend", "namespace": "default"},
            "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "https", "port": port}]},
        })
    };
    let slice = |port_name: &str, ready: bool| {
        let endpoints = json!([
            {"addresses": ["10.1.0.1"], "conditions": {"ready": ready}},
            {"addresses": ["10.1.0.2"], "conditions": {"ready": ready}},
        ]);
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": "some", "namespace": "default", "labels": {"kubernetes.io/service-name": "backend"},
            },
            "endpoints": endpoints, "ports": [{"name": port_name, "port": 8443}],
        })
    };
    let missing = "service \"backend\" not found".to_owned();
    assert_eq!(known(world.check("v1.a.io")), "ServiceNotFound: service/backend in \"default\" is not present");
    assert_eq!(at(&world), [missing.clone(), missing]);
    world.create(service(80));
    let found = known(world.check("v1.a.io"));
    assert_eq!(found, "ServicePortError: service/backend in \"default\" is not listening on port 443");
    world.send(Verb::Delete, &service(80));
    world.create(service(443));
    let found = known(world.check("v1.a.io"));
    assert_eq!(found, "EndpointsNotFound: cannot find endpointslices for service/backend in \"default\"");
    let none = "no endpoints available for service \"backend\"".to_owned();
    assert_eq!(at(&world), ["10.0.0.9:443".to_owned(), none]);
    world.create(slice("other", true));
    let empty = "MissingEndpoints: endpointslices for service/backend in \"default\" have no addresses with port name \
                 \"https\"";
    assert_eq!(known(world.check("v1.a.io")), empty);
    world.send(Verb::Update, &slice("https", false));
    assert_eq!(known(world.check("v1.a.io")), empty);
    world.send(Verb::Update, &slice("https", true));
    assert_eq!(known(world.check("v1.a.io")), "ask");
    assert_eq!(at(&world), ["10.0.0.9:443", "10.1.0.2:8443"]);
    // The EndpointSlice no longer belongs to the Service. An Endpoints object describes the Service instead.
    world.send(Verb::Delete, &slice("https", true));
    assert!(known(world.check("v1.a.io")).starts_with("EndpointsNotFound"));
    world.create(json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "backend", "namespace": "default"},
        "subsets": [{"addresses": [{"ip": "10.1.0.3"}], "ports": [{"name": "https", "port": 9443}]}],
    }));
    assert_eq!((known(world.check("v1.a.io")), at(&world)[1].as_str()), ("ask".into(), "10.1.0.3:9443"));
    // The address of a Service of type ExternalName is its external host.
    world.send(Verb::Delete, &service(443));
    world.create(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "backend", "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": "a.example.com"},
    }));
    let unsupported = "unsupported service type \"ExternalName\"";
    assert_eq!(known(world.check("v1.a.io")), "ask");
    assert_eq!(at(&world), ["a.example.com:443", unsupported]);
}

#[test]
fn conditions_are_written_when_they_change() {
    let mut world = World::new();
    world.create(remote_service("v1.a.io"));
    let mut seen = Vec::new();
    for condition in [
        Condition::unanswered("no".into()),
        Condition::unanswered("no".into()),
        Condition::unanswered("still no".into()),
        Condition::passed(),
        Condition::passed(),
    ] {
        let step = available::report(&world.state, "v1.a.io", &condition, world.stamp());
        let written = world.steps(step.into_iter().collect());
        let now = world.api_service("v1.a.io").unwrap();
        let now = now["status"]["conditions"][0].clone();
        seen.push((written, now["reason"].clone(), now["message"].clone(), now["lastTransitionTime"].clone()));
    }
    let written: Vec<usize> = seen.iter().map(|line| line.0).collect();
    assert_eq!(written, [1, 0, 1, 1, 0]);
    assert_eq!((&seen[2].1, &seen[2].2), (&json!("FailedDiscoveryCheck"), &json!("still no")));
    assert_eq!((&seen[4].1, &seen[4].2), (&json!("Passed"), &json!("all checks passed")));
    assert_eq!(seen[0].3, seen[2].3, "the time is that of the last change between true and false");
    assert_ne!(seen[2].3, seen[3].3);
    assert!(available::report(&world.state, "v1.none", &Condition::passed(), world.stamp()).is_none());
}

#[test]
fn trust_is_told_and_kept() {
    let mut world = World::new();
    let pem = |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let mut trust = Trust { client_authorities: format!("# ours\n{}", pem("A")), front_proxy: None };
    let data = |world: &World| {
        let (kind, _) = world.state.registry.find("", "v1", "configmaps").unwrap();
        world.state.get(kind, &meta::key(Some(trust::NAMESPACE), trust::NAME)).unwrap().document()["data"].clone()
    };
    let step = trust::plan(&world.state, &trust).expect("a step");
    world.steps(vec![step]);
    assert_eq!(data(&world), json!({"client-ca-file": pem("A")}));
    assert!(trust::plan(&world.state, &trust).is_none());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    trust.client_authorities = pem("B");
    trust.front_proxy = Some(FrontProxy {
        authorities: pem("P"),
        allowed_names: names(&["front"]),
        username_headers: names(&["X-Remote-User"]),
        group_headers: names(&["X-Remote-Group"]),
        extra_header_prefixes: names(&["X-Remote-Extra-"]),
        ..FrontProxy::default()
    });
    let step = trust::plan(&world.state, &trust).expect("a step");
    world.steps(vec![step]);
    let expected = json!({
        "client-ca-file": pem("A") + &pem("B"),
        "requestheader-allowed-names": "[\"front\"]",
        "requestheader-client-ca-file": pem("P"),
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    });
    assert_eq!(data(&world), expected);
    assert!(trust::plan(&world.state, &trust).is_none());
}
