//! One operation of the API in a form that does not depend on the OpenAPI version, and its forms in versions 2 and 3.

use holdfast_value::{Map, Value, json};
use std::borrow::Cow;

/// A version of OpenAPI. Versions 2 and 3 differ in more than names, so definitions and operations are written for one
/// of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    V2,
    V3,
}

impl Form {
    /// The text before the name of a definition in a reference to it.
    pub(super) fn reference_prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }

    pub(super) fn reference(self, definition: &str) -> Value {
        json!({"$ref": format!("{}{definition}", self.reference_prefix())})
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupVersionKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl GroupVersionKind {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub(super) fn to_value(&self) -> Value {
        json!({"group": self.group, "kind": self.kind, "version": self.version})
    }
}

pub(super) struct PathItem {
    pub(super) path: String,
    /// The parameters that all operations of the path have.
    pub(super) parameters: Vec<Parameter>,
    pub(super) operations: Vec<Operation>,
}

pub(super) struct Operation {
    /// The HTTP method: `get`, `put`, `post`, `delete`, `options`, `head` or `patch`.
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    pub(super) description: String,
    /// The name of the action in Kubernetes' documents: `list`, `post`, `deletecollection`.
    pub(super) action: Option<&'static str>,
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<Body>,
    pub(super) responses: &'static [(u16, &'static str)],
    pub(super) answer: Answer,
    pub(super) produces: &'static [&'static str],
}

pub(super) struct Body {
    pub(super) definition: String,
    pub(super) required: bool,
    pub(super) types: &'static [&'static str],
}

#[derive(Debug, Clone)]
pub(super) enum Answer {
    Definition(String),
    /// Text: a log, or the response of a server behind a proxy.
    Text,
}

#[derive(Debug, Clone)]
pub(super) struct Parameter {
    pub(super) name: Cow<'static, str>,
    pub(super) place: Place,
    /// The type of the value: `string`, `integer`, `boolean`.
    pub(super) ty: &'static str,
    pub(super) description: Cow<'static, str>,
    /// Whether OpenAPI version 2 defines the parameter once, by its name, and refers to the definition.
    pub(super) shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Path,
    Query,
}

impl PathItem {
    pub(super) fn to_value(&self, form: Form) -> Value {
        let mut item = Map::new();
        for operation in &self.operations {
            item.insert(operation.method, operation.to_value(form));
        }
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|p| p.to_value(form)).collect();
            item.insert("parameters", Value::Array(parameters));
        }
        Value::Object(item)
    }
}

impl Operation {
    fn to_value(&self, form: Form) -> Value {
        let mut value = json!({
            "description": self.description,
            "operationId": self.id,
            "responses": self.responses(form),
            "tags": [self.tag],
        });
        if let Some(action) = self.action {
            value["x-kubernetes-action"] = json!(action);
        }
        if let Some(kind) = &self.kind {
            value["x-kubernetes-group-version-kind"] = kind.to_value();
        }
        let mut parameters: Vec<Value> = self.parameters.iter().map(|p| p.to_value(form)).collect();
        match form {
            Form::V2 => {
                if let Some(body) = &self.body {
                    parameters.insert(0, body.parameter());
                }
                value["consumes"] = json!(self.body.as_ref().map_or(&["*/*"][..], |body| body.types));
                value["produces"] = json!(self.produces);
                value["schemes"] = json!(["https"]);
            }
            Form::V3 => {
                if let Some(body) = &self.body {
                    let mut request = json!({"content": content(&form.reference(&body.definition), body.types)});
                    if body.required {
                        request["required"] = json!(true);
                    }
                    value["requestBody"] = request;
                }
            }
        }
        if !parameters.is_empty() {
            value["parameters"] = Value::Array(parameters);
        }
        value
    }

    fn responses(&self, form: Form) -> Value {
        let schema = match &self.answer {
            Answer::Definition(name) => form.reference(name),
            Answer::Text => json!({"type": "string"}),
        };
        let mut responses = Map::new();
        for (code, description) in self.responses {
            let mut response = json!({"description": description});
            match form {
                Form::V2 => response["schema"] = schema.clone(),
                Form::V3 => response["content"] = content(&schema, self.produces),
            }
            responses.insert(code.to_string(), response);
        }
        responses.insert("401", json!({"description": "Unauthorized"}));
        Value::Object(responses)
    }
}

impl Body {
    /// The request body as an entry in `parameters`, where OpenAPI version 2 describes it.
    fn parameter(&self) -> Value {
        let mut parameter = json!({"in": "body", "name": "body", "schema": Form::V2.reference(&self.definition)});
        if self.required {
            parameter["required"] = json!(true);
        }
        parameter
    }
}

impl Parameter {
    /// The parameter in the form of one OpenAPI version. In version 2 a shared parameter becomes a reference to its
    /// definition.
    fn to_value(&self, form: Form) -> Value {
        match form {
            Form::V2 if self.shared => json!({"$ref": format!("#/parameters/{}", self.name)}),
            _ => self.definition(form),
        }
    }

    pub(super) fn definition(&self, form: Form) -> Value {
        let place = match self.place {
            Place::Path => "path",
            Place::Query => "query",
        };
        let mut parameter = json!({"name": self.name, "in": place});
        if !self.description.is_empty() {
            parameter["description"] = json!(self.description);
        }
        match form {
            Form::V2 => {
                parameter["type"] = json!(self.ty);
                parameter["uniqueItems"] = json!(true);
            }
            Form::V3 => parameter["schema"] = json!({"type": self.ty, "uniqueItems": true}),
        }
        if self.place == Place::Path {
            parameter["required"] = json!(true);
        }
        parameter
    }
}

fn content(schema: &Value, types: &[&str]) -> Value {
    types.iter().map(|ty| ((*ty).to_owned(), json!({"schema": schema}))).collect::<Map>().into()
}
