//! Converts the JSON of an OpenAPI version 2 document to the Protobuf messages in `proto`.

use super::proto::*;
use holdfast_value::{CompactString, Map, Value};

/// The document without paths and definitions, which are too large to be in memory at once.
pub(super) fn document(head: &Value) -> Document {
    let parameters = members(head, "parameters")
        .map(|(name, value)| NamedParameter { name: name.to_string(), value: Some(parameter(value)) });
    let security = items(head, "security").map(|requirement| SecurityRequirement {
        named: requirement
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| NamedStringArray { name: name.to_string(), value: Some(TypeItem::default()) })
            .collect(),
    });
    let security_definitions = members(head, "securityDefinitions").map(|(name, value)| NamedSecurity {
        name: name.to_string(),
        value: Some(SecurityItem {
            api_key: Some(ApiKeySecurity {
                ty: text(value, "type"),
                name: text(value, "name"),
                place: text(value, "in"),
                description: text(value, "description"),
            }),
        }),
    });
    Document {
        swagger: text(head, "swagger"),
        info: head.get("info").map(|info| Info { title: text(info, "title"), version: text(info, "version") }),
        paths: None,
        definitions: None,
        parameters: Some(ParameterDefinitions { named: parameters.collect() }),
        security: security.collect(),
        security_definitions: Some(SecurityDefinitions { named: security_definitions.collect() }),
    }
}

pub(super) fn path_item(value: &Value) -> PathItem {
    let method = |name: &str| value.get(name).map(operation);
    PathItem {
        get: method("get"),
        put: method("put"),
        post: method("post"),
        delete: method("delete"),
        options: method("options"),
        head: method("head"),
        patch: method("patch"),
        parameters: items(value, "parameters").map(parameters_item).collect(),
    }
}

pub(super) fn schema(value: &Value) -> Schema {
    let additional = value.get("additionalProperties").map(|value| match value {
        Value::Bool(any) => SchemaOrBool::Boolean(*any),
        value => SchemaOrBool::Schema(Box::new(schema(value))),
    });
    let properties = members(value, "properties")
        .map(|(name, value)| NamedSchema { name: name.to_string(), value: Some(schema(value)) });
    Schema {
        reference: text(value, "$ref"),
        format: text(value, "format"),
        title: text(value, "title"),
        description: text(value, "description"),
        default: value.get("default").map(any),
        multiple_of: double(value, "multipleOf"),
        maximum: double(value, "maximum"),
        exclusive_maximum: boolean(value, "exclusiveMaximum"),
        minimum: double(value, "minimum"),
        exclusive_minimum: boolean(value, "exclusiveMinimum"),
        max_length: integer(value, "maxLength"),
        min_length: integer(value, "minLength"),
        pattern: text(value, "pattern"),
        max_items: integer(value, "maxItems"),
        min_items: integer(value, "minItems"),
        unique_items: boolean(value, "uniqueItems"),
        max_properties: integer(value, "maxProperties"),
        min_properties: integer(value, "minProperties"),
        required: texts(value, "required"),
        one_of_values: items(value, "enum").map(any).collect(),
        additional_properties: additional.map(|item| Box::new(AdditionalProperties { item: Some(item) })),
        ty: value.get("type").and_then(Value::as_str).map(|ty| TypeItem { value: vec![ty.to_owned()] }),
        items: value.get("items").map(|items| ItemsItem { schema: vec![schema(items)] }),
        properties: value.get("properties").map(|_| Properties { named: properties.collect() }),
        example: value.get("example").map(any),
        vendor_extension: extensions(value),
    }
}

fn operation(value: &Value) -> Operation {
    let responses = members(value, "responses").map(|(code, response)| NamedResponseValue {
        name: code.to_string(),
        value: Some(ResponseValue {
            response: Some(Response {
                description: text(response, "description"),
                schema: response.get("schema").map(|value| SchemaItem { schema: Some(schema(value)) }),
            }),
        }),
    });
    Operation {
        tags: texts(value, "tags"),
        description: text(value, "description"),
        operation_id: text(value, "operationId"),
        produces: texts(value, "produces"),
        consumes: texts(value, "consumes"),
        parameters: items(value, "parameters").map(parameters_item).collect(),
        responses: Some(Responses { response_code: responses.collect() }),
        schemes: texts(value, "schemes"),
        vendor_extension: extensions(value),
    }
}

fn parameters_item(value: &Value) -> ParametersItem {
    let item = match value.get("$ref").and_then(Value::as_str) {
        Some(reference) => ParameterOrReference::Reference(JsonReference { reference: reference.to_owned() }),
        None => ParameterOrReference::Parameter(Box::new(parameter(value))),
    };
    ParametersItem { item: Some(item) }
}

fn parameter(value: &Value) -> Parameter {
    let (required, place) = (boolean(value, "required"), text(value, "in"));
    let (name, description) = (text(value, "name"), text(value, "description"));
    let (ty, unique_items) = (text(value, "type"), boolean(value, "uniqueItems"));
    let non_body = |kind| ParameterKind::NonBody(NonBodyParameter { kind: Some(kind) });
    let kind = match place.as_str() {
        "body" => {
            let schema = value.get("schema").map(schema);
            ParameterKind::Body(Box::new(BodyParameter { description, name, place, required, schema }))
        }
        "path" => non_body(NonBodyKind::Path(PathParameter { required, place, description, name, ty, unique_items })),
        _ => non_body(NonBodyKind::Query(QueryParameter { required, place, description, name, ty, unique_items })),
    };
    Parameter { kind: Some(kind) }
}

fn extensions(value: &Value) -> Vec<NamedAny> {
    let members = value.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-"));
    members.map(|(name, value)| NamedAny { name: name.to_string(), value: Some(any(value)) }).collect()
}

fn any(value: &Value) -> Any {
    Any { yaml: format!("{value}\n") }
}

fn members<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = (&'v CompactString, &'v Value)> {
    value.get(key).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(value: &Value, key: &str) -> Vec<String> {
    items(value, key).filter_map(Value::as_str).map(str::to_owned).collect()
}

fn boolean(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn integer(value: &Value, key: &str) -> i64 {
    value.get(key).and_then(Value::as_i64).unwrap_or_default()
}

fn double(value: &Value, key: &str) -> f64 {
    value.get(key).and_then(Value::as_f64).unwrap_or_default()
}
