//! The requests of simulated clients. There are few names and few namespaces, so that the requests often concern the
//! same objects.

mod draft;
mod fresh;

use crate::act::Act;
use crate::custom;
use crate::pick::{NAMES, NAMESPACES, Pick, kind_of};
use crate::random::Dice;
use crate::rights;
use crate::shape::{SORTS, Sort};
use crate::twin::{StoredAt, Twin};
use draft::draft;
use fresh::{expected, fresh_document};
use holdfast_core::namespace::Step;
use holdfast_core::object::meta;
use holdfast_core::request::{Body, Format, Options, Request, Target, Verb};
use holdfast_core::state::State;
use holdfast_value::Value;

/// A namespace that has one owner after another. It has little content, so that it is often deleted and created again.
pub const LET: &str = "let";
pub const FINALIZERS: [&str; 2] = ["sim.dev/a", "sim.dev/b"];
const MANAGERS: [&str; 3] = ["kubectl", "helm", "operator"];

/// A request, and what its client wants to do with it.
#[derive(Debug, Clone)]
pub struct Order {
    pub sort: Sort,
    /// The storage path and the key of the object. The key is empty in a mass deletion, and if the server is to choose
    /// the name.
    pub place: StoredAt,
    pub act: Act,
    pub request: Request,
    /// The version of the cluster that the client had read before it made the request.
    pub seen: u64,
    /// The namespace in the request's path, if it is not the namespace of the object.
    pub through: Option<&'static str>,
}

impl Order {
    pub fn namespace(&self) -> Option<&str> {
        self.request.namespace()
    }

    /// The storage path and the key that the object has if the server has chosen this name.
    pub fn place_of(&self, name: &str) -> StoredAt {
        (self.sort.storage().to_owned(), meta::key(self.namespace(), name))
    }

    /// This request as a request of the administrator, and with the correct namespace in its path.
    pub fn of_admin(self) -> Order {
        let request = Request { user: rights::admin(), ..self.request };
        Order { request, through: None, ..self }
    }

    /// The namespace in which the request is authorized.
    pub fn judged_in(&self) -> &str {
        self.through.unwrap_or_else(|| rights::namespace_of(self.sort, &self.request))
    }

    pub fn describe(&self) -> String {
        let Request { id, user, verb, options, .. } = &self.request;
        let dry = if options.dry_run { " (dry run)" } else { "" };
        let through = self.through.map(|home| format!(" through {home}")).unwrap_or_default();
        let (user, verb) = (&user.name, verb.as_str());
        format!("{id} by {user}: {verb}{dry} {} {}{through} {:?}", self.place.0, self.place.1, self.act)
    }
}

const WEIGHTS: [(usize, Sort); 9] = [
    (22, Sort::ConfigMap),
    (16, Sort::Deployment),
    (18, Sort::Service),
    (18, Sort::Pod),
    (8, Sort::Lease),
    (7, Sort::Namespace),
    (3, Sort::CustomResourceDefinition),
    (14, Sort::Widget),
    (9, Sort::RoleBinding),
];

/// Draws a request of a client that has read the state `seen`. The twin has the documents of the objects in this state.
pub fn order(dice: &mut Dice, seen: &State, twin: &Twin, id: String) -> Order {
    let drawn = dice.weighted(&WEIGHTS);
    // If the kind is not defined, a client cannot make a request for it, so the client creates the definition instead.
    let (sort, (kind, version)) = match kind_of(seen, drawn) {
        Some(found) => (drawn, found),
        None => {
            let sort = Sort::CustomResourceDefinition;
            (sort, kind_of(seen, sort).unwrap_or_else(|| panic!("definitions are built in")))
        }
    };
    // Mass deletions are more frequent for custom kinds, because the definition of such a kind may change before the
    // deletion is carried out.
    if sort.is_namespaced() && dice.chance(if sort.is_custom() { 6 } else { 2 }) {
        return mass_deletion(dice, seen, sort, id);
    }
    let namespace = sort.is_namespaced().then(|| dice.pick(&NAMESPACES).to_owned());
    let mut name = match sort {
        Sort::Namespace => dice.pick(&NAMESPACES),
        Sort::CustomResourceDefinition => custom::DEFINITION,
        _ => dice.pick(&NAMES),
    }
    .to_owned();
    if dice.chance(15) && sort != Sort::CustomResourceDefinition {
        // The request is about an object that exists and whose name the server may have generated.
        let prefix = holdfast_core::state::prefix(namespace.as_deref());
        let keys: Vec<&str> = seen.scan(kind, &prefix, None).map(|(key, _)| &**key).collect();
        if !keys.is_empty() {
            name = meta::split_key(dice.pick(&keys)).1.to_owned();
        }
    }
    let key = meta::key(namespace.as_deref(), &name);
    let found = twin.version_at(sort.storage(), &key, seen.offset.0).map(|version| &version.document);
    let mut draft = draft(dice, sort, namespace.as_deref(), &name, found, &id);
    if draft.format != Format::ApplyPatch {
        draft.options.field_manager = dice.chance(80).then(|| dice.pick(&MANAGERS).to_owned());
    }
    draft.options.dry_run = dice.chance(4);
    let generated = matches!(draft.act, Act::Create { generated: true, .. });
    let named = draft.verb != Verb::Create || draft.subresource.is_some();
    let mut version = version;
    if sort.is_custom() && draft.format != Format::ApplyPatch && draft.subresource != Some("scale") {
        // The request may use any version of the kind that is served. A document in JSON contains this version.
        let served = &seen.kind(kind).versions;
        version = dice.below(served.len());
        if draft.body.is_object() && draft.format == Format::Json {
            draft.body["apiVersion"] = served[version].api_version().into();
        }
    }
    let subresource = draft.subresource.map(str::to_owned);
    let target = Target { kind, version, namespace, name: named.then_some(name), subresource };
    let bytes = if draft.body.is_null() { Vec::new() } else { draft.body.to_string().into_bytes() };
    let request = Request {
        user: rights::draw(dice),
        verb: draft.verb,
        target,
        options: draft.options,
        body: Body { content: bytes.into(), format: draft.format },
        id,
    };
    let place = (sort.storage().to_owned(), if generated { String::new() } else { key });
    let through = (sort == Sort::Namespace && named && dice.chance(10)).then(|| dice.pick(&NAMESPACES));
    Order { sort, place, act: draft.act, request, seen: seen.offset.0, through }
}

/// A request that deletes all objects of a selection.
fn mass_deletion(dice: &mut Dice, seen: &State, sort: Sort, id: String) -> Order {
    let (pick, request) = loop {
        let pick = Pick::draw(dice, sort);
        // The API has no path that deletes objects in all namespaces at once, so another selection is drawn.
        match pick.request(sort, seen, Verb::DeleteCollection) {
            Some(request) if request.namespace().is_some() => break (pick, request),
            _ => continue,
        }
    };
    let policy = match dice.below(4) {
        0 => Some("Background"),
        1 => Some("Foreground"),
        _ => None,
    };
    let limit = dice.chance(30).then(|| 1 + dice.below(3) as u64);
    let mut request = Request { user: rights::draw(dice), id, ..request };
    request.options.limit = limit;
    request.options.dry_run = dice.chance(10);
    request.options.delete.propagation_policy = policy.map(str::to_owned);
    let act = Act::DeleteAll { pick, limit, policy };
    Order { sort, place: (sort.storage().to_owned(), String::new()), act, request, seen: seen.offset.0, through: None }
}

/// A request that creates a namespace at the start of a simulation.
pub fn bootstrap(state: &State, name: &str) -> Order {
    create(state, Sort::Namespace, None, name, format!("bootstrap-{name}"))
}

fn create(state: &State, sort: Sort, namespace: Option<&str>, name: &str, id: String) -> Order {
    let document = fresh_document(sort, namespace, name, "red", &id);
    let body = Body { content: document.to_string().into_bytes().into(), format: Format::Json };
    let act = Act::Create { wanted: expected(sort, &document), generated: false };
    by_admin(state, (sort, namespace, name), act, Verb::Create, body, id)
}

fn by_admin(
    state: &State,
    (sort, namespace, name): (Sort, Option<&str>, &str),
    act: Act,
    verb: Verb,
    body: Body,
    id: String,
) -> Order {
    let (kind, version) = kind_of(state, sort).unwrap_or_else(|| panic!("{sort:?} is built in"));
    let named = (verb != Verb::Create).then(|| name.to_owned());
    let target = Target { kind, version, namespace: namespace.map(str::to_owned), name: named, subresource: None };
    let request = Request { user: rights::admin(), verb, target, options: Options::default(), body, id };
    let place = (sort.storage().to_owned(), meta::key(namespace, name));
    Order { sort, place, act, request, seen: state.offset.0, through: None }
}

/// The request for the next step in the life of the namespace [`LET`]: it is created, gets an owner and some content,
/// and is deleted. Returns `None` while the namespace is being deleted.
pub fn hand_over(seen: &State, twin: &Twin, id: String) -> Option<Order> {
    let there = |sort: Sort, key: &str| twin.version_at(sort.storage(), key, seen.offset.0);
    let content = [Sort::RoleBinding, Sort::ConfigMap];
    let missing = content.into_iter().find(|sort| there(*sort, &meta::key(Some(LET), NAMES[0])).is_none());
    match (there(Sort::Namespace, LET), missing) {
        (None, _) => Some(create(seen, Sort::Namespace, None, LET, id)),
        (Some(home), _) if home.is_deleting() => None,
        (Some(_), Some(sort)) => Some(create(seen, sort, Some(LET), NAMES[0], id)),
        (Some(_), None) => {
            let act = Act::Delete { grace: None, policy: None, uid: None, version: None };
            Some(by_admin(seen, (Sort::Namespace, None, LET), act, Verb::Delete, Body::default(), id))
        }
    }
}

/// A step of the janitor as an order; `None` if clients do not use the kind.
pub fn house(state: &State, step: Step, id: String) -> Option<Order> {
    let mut request = step.request;
    request.id = id;
    let storage = &state.kind(request.target.kind).storage.path;
    let sort = SORTS.into_iter().find(|sort| sort.storage() == storage)?;
    let version = || {
        let body: Value = serde_json::from_slice(&request.body.content.bytes()).unwrap_or(Value::Null);
        body["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok())
    };
    let act = match (request.target.subresource.as_deref(), request.verb) {
        (Some("finalize"), _) => Act::Finalize { version: version() },
        (Some(_), _) => Act::Tell { version: version() },
        (None, Verb::Update) => Act::Release { version: version() },
        (None, _) => {
            let background = request.options.delete.propagation_policy.as_deref() == Some("Background");
            Act::Delete { grace: None, policy: background.then_some("Background"), uid: None, version: None }
        }
    };
    Some(Order { sort, place: (storage.clone(), request.key()), act, request, seen: state.offset.0, through: None })
}
