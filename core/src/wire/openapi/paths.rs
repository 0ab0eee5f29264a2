//! The paths of OpenAPI documents. Each has the operations that a kind's verbs and subresources allow.

use super::definitions::{META, body_definition, list_of};
use super::operation::{Answer, Body, GroupVersionKind, Operation, Parameter, PathItem, Place};
use super::parameters;
use crate::kinds::{Kind, Scope, Subresource};
use crate::schema::{Schema, Type};
use crate::wire::discovery::{Catalog, Group, GroupVersion, Served};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OBJECT: &[&str] = &[JSON, YAML, PROTOBUF];
const LIST: &[&str] =
    &[JSON, "application/json;stream=watch", YAML, PROTOBUF, "application/vnd.kubernetes.protobuf;stream=watch"];
/// The media types of the bodies of custom resources. Custom resources have no Protobuf form and no merge keys, and
/// Kubernetes lists no watch formats for them.
const CUSTOM: &[&str] = &[JSON, YAML];
const ANY: &[&str] = &["*/*"];
const LOG: &[&str] = &["text/plain", JSON, YAML, PROTOBUF];
const PATCH: &[&str] = &[
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];
const CUSTOM_PATCH: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

const OK: &[(u16, &str)] = &[(200, "OK")];
const CREATED: &[(u16, &str)] = &[(200, "OK"), (201, "Created"), (202, "Accepted")];
const WRITTEN: &[(u16, &str)] = &[(200, "OK"), (201, "Created")];
const DELETED: &[(u16, &str)] = &[(200, "OK"), (202, "Accepted")];

/// The paths of a group version, with all their operations.
pub(super) fn of_group_version(schema: &Schema, catalog: &Catalog, gv: &GroupVersion) -> Vec<PathItem> {
    let names = Names::new(&gv.group, Some(&gv.version));
    let list = format!("{META}.APIResourceList");
    let root = format!("/{}/", gv.path());
    let mut paths = vec![discovery(&names, root, "APIResources", "get available resources", list)];
    for served in &gv.resources {
        let writer = Writer { schema, catalog, names: &names, gv, served, kind: served.kind };
        writer.write(&mut paths);
    }
    paths
}

/// The paths of a group that return discovery documents.
pub(super) fn of_group(group: &Group) -> Vec<PathItem> {
    let names = Names::new(&group.name, None);
    if group.name.is_empty() {
        let versions = format!("{META}.APIVersions");
        return vec![discovery(&names, "/api/".into(), "APIVersions", "get available API versions", versions)];
    }
    let (path, answer) = (format!("/apis/{}/", group.name), format!("{META}.APIGroup"));
    vec![discovery(&names, path, "APIGroup", "get information of a group", answer)]
}

pub(super) fn of_group_list() -> Vec<PathItem> {
    let names = Names { pascal: String::new(), tag: "apis".into() };
    let answer = format!("{META}.APIGroupList");
    vec![discovery(&names, "/apis/".into(), "APIVersions", "get available API versions", answer)]
}

pub(super) fn of_version() -> Vec<PathItem> {
    let names = Names { pascal: "Code".into(), tag: "version".into() };
    let answer = "io.k8s.apimachinery.pkg.version.Info".to_owned();
    let mut item =
        discovery(&names, "/version/".into(), "Version", "get the version information for this server", answer);
    item.operations.iter_mut().for_each(|operation| operation.produces = &[JSON]);
    vec![item]
}

/// How the ids and tags of operations write a group version.
struct Names {
    /// The spelling in operation ids: `CoreV1`, `RbacAuthorizationV1beta1`.
    pascal: String,
    /// The spelling in tags: `core_v1`, `rbacAuthorization_v1beta1`.
    tag: String,
}

impl Names {
    fn new(group: &str, version: Option<&str>) -> Self {
        let short = if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) };
        let pascal: String = short.split(['.', '-']).map(capital).collect();
        let mut letters = pascal.chars();
        let camel: String = letters.next().map(|c| c.to_ascii_lowercase()).into_iter().chain(letters).collect();
        match version {
            Some(version) => Self { pascal: pascal + &capital(version), tag: format!("{camel}_{version}") },
            None => Self { pascal, tag: camel },
        }
    }
}

fn discovery(names: &Names, path: String, what: &str, description: &str, answer: String) -> PathItem {
    let operation = Operation {
        method: "get",
        id: format!("get{}{what}", names.pascal),
        tag: names.tag.clone(),
        description: description.into(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        responses: OK,
        answer: Answer::Definition(answer),
        produces: OBJECT,
    };
    PathItem { path, parameters: Vec::new(), operations: vec![operation] }
}

/// Writes the paths of one resource in one version.
struct Writer<'a> {
    schema: &'a Schema,
    catalog: &'a Catalog<'a>,
    names: &'a Names,
    gv: &'a GroupVersion<'a>,
    served: &'a Served<'a>,
    kind: &'a Kind,
}

impl Writer<'_> {
    fn write(&self, paths: &mut Vec<PathItem>) {
        let collection = self.collection("");
        let item = format!("{collection}/{{name}}");
        push(paths, collection, self.path_parameters(None), self.collection_operations());
        push(paths, item.clone(), self.path_parameters(Some(&self.kind.kind)), self.item_operations());
        for sub in self.served.subresources() {
            self.subresource(sub, &format!("{item}/{}", sub.name), paths);
        }
        let has = |verb| self.kind.verbs.contains(&verb);
        let namespaced = self.kind.scope == Scope::Namespaced;
        if namespaced && has("list") {
            let list = self.list(&format!("{}ForAllNamespaces", self.kind.kind));
            let path = format!("/{}/{}", self.gv.path(), self.kind.resource);
            push(paths, path, parameters::query(&["pretty"]), vec![list]);
        }
        // Kubernetes does not describe the old watch paths of custom resources.
        if has("watch") && !self.is_custom() {
            self.watches(namespaced, paths);
        }
    }

    /// The path of a collection: `/api/v1/namespaces/{namespace}/pods`. `above` is `/watch` for the old watch paths.
    fn collection(&self, above: &str) -> String {
        let namespace = if self.kind.scope == Scope::Namespaced { "/namespaces/{namespace}" } else { "" };
        format!("/{}{above}{namespace}/{}", self.gv.path(), self.kind.resource)
    }

    /// The parameters in the path. `named` is the kind of the object that the path names, if it names one.
    fn path_parameters(&self, named: Option<&str>) -> Vec<Parameter> {
        let name = named.map(parameters::name);
        let namespace = (self.kind.scope == Scope::Namespaced).then(parameters::namespace);
        name.into_iter().chain(namespace).chain(parameters::query(&["pretty"])).collect()
    }

    fn collection_operations(&self) -> Vec<Operation> {
        let mut operations = Vec::new();
        for verb in &self.kind.verbs {
            match *verb {
                "list" => operations.push(self.list(&self.scoped())),
                "create" => operations.push(Operation {
                    parameters: parameters::query(parameters::WRITE),
                    body: self.object_body(self.message()),
                    responses: CREATED,
                    ..self.operation(
                        "post",
                        "create",
                        &self.scoped(),
                        "post",
                        format!("create {}", with_article(&self.kind.kind)),
                    )
                }),
                "deletecollection" => operations.push(Operation {
                    id: format!("delete{}Collection{}", self.names.pascal, self.scoped()),
                    parameters: parameters::query(parameters::DELETE_COLLECTION),
                    body: delete_options(),
                    answer: Answer::Definition(format!("{META}.Status")),
                    ..self.operation("delete", "delete", "", "deletecollection", self.about("delete collection of"))
                }),
                _ => {}
            }
        }
        operations
    }

    fn item_operations(&self) -> Vec<Operation> {
        let verbs = self.kind.verbs.iter().filter(|verb| **verb != "create");
        verbs.filter_map(|verb| self.object_operation(verb, "", self.message(), "")).collect()
    }

    /// An operation on one object, or on a part of one.
    fn object_operation(&self, verb: &str, suffix: &str, definition: &str, part: &str) -> Option<Operation> {
        let name = format!("{}{suffix}", self.scoped());
        let whole = with_article(&self.kind.kind);
        let about = |verb: &str| format!("{verb} {part}the specified {}", self.kind.kind);
        let object = Answer::Definition(definition.to_owned());
        Some(match verb {
            "get" => Operation { answer: object, ..self.operation("get", "read", &name, "get", about("read")) },
            "update" => Operation {
                parameters: parameters::query(parameters::WRITE),
                body: self.object_body(definition),
                responses: WRITTEN,
                answer: object,
                ..self.operation("put", "replace", &name, "put", about("replace"))
            },
            "patch" => Operation {
                parameters: parameters::query_inline(parameters::PATCH),
                body: Some(Body {
                    definition: format!("{META}.Patch"),
                    required: true,
                    types: self.or_custom(PATCH, CUSTOM_PATCH),
                }),
                responses: WRITTEN,
                answer: object,
                ..self.operation("patch", "patch", &name, "patch", about("partially update"))
            },
            "create" => Operation {
                parameters: parameters::query(parameters::WRITE),
                body: self.object_body(definition),
                responses: CREATED,
                answer: object,
                ..self.operation("post", "create", &name, "post", format!("create {part}{whole}"))
            },
            "delete" => {
                let with_object = self.kind.deletion.returns_deleted;
                let answer = if with_object { object } else { Answer::Definition(format!("{META}.Status")) };
                Operation {
                    parameters: parameters::query(parameters::DELETE),
                    body: delete_options(),
                    responses: DELETED,
                    answer,
                    ..self.operation("delete", "delete", &name, "delete", format!("delete {whole}"))
                }
            }
            _ => return None,
        })
    }

    fn subresource(&self, sub: &Subresource, path: &str, paths: &mut Vec<PathItem>) {
        let suffix = capital(&sub.name);
        if let Some((group, version, kind)) = sub.body.as_ref().filter(|(_, _, kind)| kind.ends_with("Options")) {
            return self.connect(sub, path, &GroupVersionKind::new(group, version, kind), paths);
        }
        let body = sub.body.as_ref();
        let definition = body.and_then(|(group, version, kind)| body_definition(self.catalog, group, version, kind));
        let definition = definition.as_deref().unwrap_or(self.message());
        let part = format!("{} of ", sub.name);
        let named = body.map_or(self.kind.kind.as_str(), |(_, _, kind)| kind);
        let mut parameters = self.path_parameters(Some(named));
        let mut operations: Vec<Operation> =
            sub.verbs.iter().filter_map(|verb| self.object_operation(verb, &suffix, definition, &part)).collect();
        for operation in &mut operations {
            if let Some((group, version, kind)) = body {
                operation.kind = Some(GroupVersionKind::new(group, version, kind));
            }
            if sub.name == "log" {
                operation.answer = Answer::Text;
                operation.produces = LOG;
            }
        }
        if sub.name == "log" {
            parameters.extend(self.options("PodLogOptions"));
        }
        push(paths, path.to_owned(), parameters, operations);
    }

    /// Adds the operations of a subresource through which the client connects to another server: `exec`, `proxy`.
    fn connect(&self, sub: &Subresource, path: &str, options: &GroupVersionKind, paths: &mut Vec<PathItem>) {
        let proxy = sub.name == "proxy";
        let mut methods: Vec<&'static str> = sub.verbs.iter().filter_map(|verb| method_of(verb)).collect();
        if proxy {
            methods.extend(["head", "options"]);
        }
        let connect = |method: &'static str, suffix: &str| {
            let (method_word, scoped, part) = (capital(method), self.scoped(), capital(&sub.name));
            let id = format!("connect{}{method_word}{scoped}{part}{suffix}", self.names.pascal);
            let about = self.about(&format!("{} of", sub.name));
            let description = format!("connect {} requests to {about}", method.to_uppercase());
            Operation {
                id,
                kind: Some(options.clone()),
                answer: Answer::Text,
                produces: ANY,
                ..self.operation(method, "connect", "", "connect", description)
            }
        };
        let mut parameters = self.path_parameters(Some(&options.kind));
        parameters.retain(|parameter| parameter.place == Place::Path);
        parameters.extend(self.options(&options.kind));
        let operations = methods.iter().map(|method| connect(method, "")).collect();
        push(paths, path.to_owned(), parameters.clone(), operations);
        if proxy {
            parameters.push(parameters::rest_of_path());
            let operations = methods.iter().map(|method| connect(method, "WithPath")).collect();
            push(paths, format!("{path}/{{path}}"), parameters, operations);
        }
    }

    /// The query parameters that correspond to the fields of an options message.
    fn options(&self, message: &str) -> Vec<Parameter> {
        let Some(id) = self.schema.id(&format!("io.k8s.api.core.v1.{message}")) else { return Vec::new() };
        let fields = self.schema.message(id).fields.iter();
        fields.filter_map(|field| Some(parameters::option(&field.json, parameter_type(&field.ty)?))).collect()
    }

    fn list(&self, name: &str) -> Operation {
        let watched = self.kind.verbs.contains(&"watch") && !self.is_custom();
        let words = if watched { "list or watch objects of kind" } else { "list objects of kind" };
        Operation {
            parameters: parameters::query(parameters::LIST),
            answer: Answer::Definition(list_of(self.served)),
            produces: self.or_custom(LIST, CUSTOM),
            ..self.operation("get", "list", name, "list", self.about(words))
        }
    }

    /// Adds the old watch paths of the resource.
    fn watches(&self, namespaced: bool, paths: &mut Vec<PathItem>) {
        let watch = |name: &str, action, description| Operation {
            answer: Answer::Definition(format!("{META}.WatchEvent")),
            produces: LIST,
            ..self.operation("get", "watch", name, action, description)
        };
        let with_query = |mut parameters: Vec<Parameter>| {
            parameters.extend(parameters::query(parameters::LIST));
            parameters
        };
        let many = || self.about("watch changes to a list of") + "; deprecated: use a list with the parameter watch";
        let one =
            self.about("watch changes to an object of kind") + "; deprecated: use a list with the parameter watch";
        let (collection, scoped) = (self.collection("/watch"), self.scoped());
        let list = watch(&format!("{scoped}List"), "watchlist", many());
        push(paths, collection.clone(), with_query(self.path_parameters(None)), vec![list]);
        let item = watch(&scoped, "watch", one);
        push(
            paths,
            format!("{collection}/{{name}}"),
            with_query(self.path_parameters(Some(&self.kind.kind))),
            vec![item],
        );
        if namespaced {
            let everywhere = watch(&format!("{}ListForAllNamespaces", self.kind.kind), "watchlist", many());
            let path = format!("/{}/watch/{}", self.gv.path(), self.kind.resource);
            push(paths, path, with_query(parameters::query(&["pretty"])), vec![everywhere]);
        }
    }

    /// An operation with the values that most operations of the resource have. Its response is the object.
    fn operation(
        &self,
        method: &'static str,
        word: &str,
        name: &str,
        action: &'static str,
        description: String,
    ) -> Operation {
        Operation {
            method,
            id: format!("{word}{}{name}", self.names.pascal),
            tag: self.names.tag.clone(),
            description,
            action: Some(action),
            kind: Some(GroupVersionKind::new(&self.gv.group, &self.gv.version, &self.kind.kind)),
            parameters: Vec::new(),
            body: None,
            responses: OK,
            answer: Answer::Definition(self.message().to_owned()),
            produces: self.or_custom(OBJECT, CUSTOM),
        }
    }

    fn object_body(&self, definition: &str) -> Option<Body> {
        Some(Body { definition: definition.to_owned(), required: true, types: self.or_custom(ANY, CUSTOM) })
    }

    fn message(&self) -> &str {
        &self.served.version.message
    }

    fn or_custom<T>(&self, built_in: T, custom: T) -> T {
        if self.is_custom() { custom } else { built_in }
    }

    fn is_custom(&self) -> bool {
        self.schema.id(self.message()).is_none()
    }

    /// The scope and the kind as ids of operations write them: `NamespacedPod`, `Node`.
    fn scoped(&self) -> String {
        let scope = if self.kind.scope == Scope::Namespaced { "Namespaced" } else { "" };
        format!("{scope}{}", self.kind.kind)
    }

    fn about(&self, words: &str) -> String {
        format!("{words} {}", self.kind.kind)
    }
}

fn push(paths: &mut Vec<PathItem>, path: String, parameters: Vec<Parameter>, operations: Vec<Operation>) {
    if operations.is_empty() {
        return;
    }
    let (mut parameters, mut operations) = (parameters, operations);
    // A parameter that all operations of a path have is moved to the path.
    let has = |operation: &Operation, name: &str| operation.parameters.iter().any(|known| known.name == name);
    let common: Vec<Parameter> = operations[0]
        .parameters
        .iter()
        .filter(|parameter| operations.iter().all(|operation| has(operation, &parameter.name)))
        .cloned()
        .collect();
    for operation in &mut operations {
        operation.parameters.retain(|known| common.iter().all(|common| common.name != known.name));
    }
    parameters.extend(common);
    parameters.sort_by(|one, other| (&one.name, one.place).cmp(&(&other.name, other.place)));
    paths.push(PathItem { path, parameters, operations });
}

fn delete_options() -> Option<Body> {
    Some(Body { definition: format!("{META}.DeleteOptions"), required: false, types: ANY })
}

/// The type of the query parameter for an option; `None` if the option is no scalar, because Kubernetes does not list
/// such options.
fn parameter_type(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Bool => "boolean",
        Type::Int32 | Type::Int64 => "integer",
        Type::String => "string",
        _ => return None,
    })
}

/// The kind with an article: `a Pod`, `an Ingress`. A plural has no article.
fn with_article(kind: &str) -> String {
    let plural = kind.ends_with('s') && !kind.ends_with("ss");
    let article = match kind.as_bytes().first() {
        _ if plural => "",
        Some(b'A' | b'E' | b'I' | b'O' | b'U') => "an ",
        _ => "a ",
    };
    format!("{article}{kind}")
}

fn method_of(verb: &str) -> Option<&'static str> {
    Some(match verb {
        "get" => "get",
        "create" => "post",
        "update" => "put",
        "patch" => "patch",
        "delete" => "delete",
        _ => return None,
    })
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_short_names() {
        for (group, version, pascal, tag) in [
            ("", "v1", "CoreV1", "core_v1"),
            ("apps", "v1beta2", "AppsV1beta2", "apps_v1beta2"),
            ("rbac.authorization.k8s.io", "v1", "RbacAuthorizationV1", "rbacAuthorization_v1"),
            ("flowcontrol.apiserver.k8s.io", "v1", "FlowcontrolApiserverV1", "flowcontrolApiserver_v1"),
            ("stable.example.com", "v1", "StableExampleComV1", "stableExampleCom_v1"),
        ] {
            let names = Names::new(group, Some(version));
            assert_eq!((names.pascal.as_str(), names.tag.as_str()), (pascal, tag));
        }
    }
}
