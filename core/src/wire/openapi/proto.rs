//! The Protobuf messages of OpenAPI version 2: the messages of the package `openapi.v2` that Kubernetes' document uses,
//! with the field numbers of that package.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Document {
    #[prost(string, tag = "1")]
    pub(super) swagger: String,
    #[prost(message, optional, tag = "2")]
    pub(super) info: Option<Info>,
    #[prost(message, optional, tag = "8")]
    pub(super) paths: Option<Paths>,
    #[prost(message, optional, tag = "9")]
    pub(super) definitions: Option<Definitions>,
    #[prost(message, optional, tag = "10")]
    pub(super) parameters: Option<ParameterDefinitions>,
    #[prost(message, repeated, tag = "12")]
    pub(super) security: Vec<SecurityRequirement>,
    #[prost(message, optional, tag = "13")]
    pub(super) security_definitions: Option<SecurityDefinitions>,
}

impl Document {
    pub(super) const PATHS: u32 = 8;
    pub(super) const DEFINITIONS: u32 = 9;
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Info {
    #[prost(string, tag = "1")]
    pub(super) title: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Paths {
    #[prost(message, repeated, tag = "2")]
    pub(super) path: Vec<NamedPathItem>,
}

impl Paths {
    pub(super) const PATH: u32 = 2;
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedPathItem {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<PathItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PathItem {
    #[prost(message, optional, tag = "2")]
    pub(super) get: Option<Operation>,
    #[prost(message, optional, tag = "3")]
    pub(super) put: Option<Operation>,
    #[prost(message, optional, tag = "4")]
    pub(super) post: Option<Operation>,
    #[prost(message, optional, tag = "5")]
    pub(super) delete: Option<Operation>,
    #[prost(message, optional, tag = "6")]
    pub(super) options: Option<Operation>,
    #[prost(message, optional, tag = "7")]
    pub(super) head: Option<Operation>,
    #[prost(message, optional, tag = "8")]
    pub(super) patch: Option<Operation>,
    #[prost(message, repeated, tag = "9")]
    pub(super) parameters: Vec<ParametersItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Operation {
    #[prost(string, repeated, tag = "1")]
    pub(super) tags: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(string, tag = "5")]
    pub(super) operation_id: String,
    #[prost(string, repeated, tag = "6")]
    pub(super) produces: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    pub(super) consumes: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    pub(super) parameters: Vec<ParametersItem>,
    #[prost(message, optional, tag = "9")]
    pub(super) responses: Option<Responses>,
    #[prost(string, repeated, tag = "10")]
    pub(super) schemes: Vec<String>,
    #[prost(message, repeated, tag = "13")]
    pub(super) vendor_extension: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ParametersItem {
    #[prost(oneof = "ParameterOrReference", tags = "1, 2")]
    pub(super) item: Option<ParameterOrReference>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ParameterOrReference {
    #[prost(message, boxed, tag = "1")]
    Parameter(Box<Parameter>),
    #[prost(message, tag = "2")]
    Reference(JsonReference),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Parameter {
    #[prost(oneof = "ParameterKind", tags = "1, 2")]
    pub(super) kind: Option<ParameterKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum ParameterKind {
    #[prost(message, boxed, tag = "1")]
    Body(Box<BodyParameter>),
    #[prost(message, tag = "2")]
    NonBody(NonBodyParameter),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BodyParameter {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) place: String,
    #[prost(bool, tag = "4")]
    pub(super) required: bool,
    #[prost(message, optional, tag = "5")]
    pub(super) schema: Option<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NonBodyParameter {
    #[prost(oneof = "NonBodyKind", tags = "3, 4")]
    pub(super) kind: Option<NonBodyKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum NonBodyKind {
    #[prost(message, tag = "3")]
    Query(QueryParameter),
    #[prost(message, tag = "4")]
    Path(PathParameter),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct QueryParameter {
    #[prost(bool, tag = "1")]
    pub(super) required: bool,
    #[prost(string, tag = "2")]
    pub(super) place: String,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(string, tag = "4")]
    pub(super) name: String,
    #[prost(string, tag = "6")]
    pub(super) ty: String,
    #[prost(bool, tag = "20")]
    pub(super) unique_items: bool,
}

/// A parameter in a path. It is a message of its own, because the type and the fields after it have other numbers than
/// in a query parameter.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PathParameter {
    #[prost(bool, tag = "1")]
    pub(super) required: bool,
    #[prost(string, tag = "2")]
    pub(super) place: String,
    #[prost(string, tag = "3")]
    pub(super) description: String,
    #[prost(string, tag = "4")]
    pub(super) name: String,
    #[prost(string, tag = "5")]
    pub(super) ty: String,
    #[prost(bool, tag = "19")]
    pub(super) unique_items: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct JsonReference {
    #[prost(string, tag = "1")]
    pub(super) reference: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Responses {
    #[prost(message, repeated, tag = "1")]
    pub(super) response_code: Vec<NamedResponseValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedResponseValue {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<ResponseValue>,
}

/// A `oneof` of a response or a reference. Kubernetes' documents use only its first member, the response.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResponseValue {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Response {
    #[prost(string, tag = "1")]
    pub(super) description: String,
    #[prost(message, optional, tag = "2")]
    pub(super) schema: Option<SchemaItem>,
}

/// A `oneof`. Kubernetes' documents use only its first member.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SchemaItem {
    #[prost(message, optional, tag = "1")]
    pub(super) schema: Option<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ParameterDefinitions {
    #[prost(message, repeated, tag = "1")]
    pub(super) named: Vec<NamedParameter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedParameter {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Parameter>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Definitions {
    #[prost(message, repeated, tag = "1")]
    pub(super) named: Vec<NamedSchema>,
}

impl Definitions {
    pub(super) const NAMED: u32 = 1;
}

/// The message `Properties` has the same form as `Definitions`.
pub(super) type Properties = Definitions;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedSchema {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Schema {
    #[prost(string, tag = "1")]
    pub(super) reference: String,
    #[prost(string, tag = "2")]
    pub(super) format: String,
    #[prost(string, tag = "3")]
    pub(super) title: String,
    #[prost(string, tag = "4")]
    pub(super) description: String,
    #[prost(message, optional, tag = "5")]
    pub(super) default: Option<Any>,
    #[prost(double, tag = "6")]
    pub(super) multiple_of: f64,
    #[prost(double, tag = "7")]
    pub(super) maximum: f64,
    #[prost(bool, tag = "8")]
    pub(super) exclusive_maximum: bool,
    #[prost(double, tag = "9")]
    pub(super) minimum: f64,
    #[prost(bool, tag = "10")]
    pub(super) exclusive_minimum: bool,
    #[prost(int64, tag = "11")]
    pub(super) max_length: i64,
    #[prost(int64, tag = "12")]
    pub(super) min_length: i64,
    #[prost(string, tag = "13")]
    pub(super) pattern: String,
    #[prost(int64, tag = "14")]
    pub(super) max_items: i64,
    #[prost(int64, tag = "15")]
    pub(super) min_items: i64,
    #[prost(bool, tag = "16")]
    pub(super) unique_items: bool,
    #[prost(int64, tag = "17")]
    pub(super) max_properties: i64,
    #[prost(int64, tag = "18")]
    pub(super) min_properties: i64,
    #[prost(string, repeated, tag = "19")]
    pub(super) required: Vec<String>,
    #[prost(message, repeated, tag = "20")]
    pub(super) one_of_values: Vec<Any>,
    #[prost(message, optional, boxed, tag = "21")]
    pub(super) additional_properties: Option<Box<AdditionalProperties>>,
    #[prost(message, optional, tag = "22")]
    pub(super) ty: Option<TypeItem>,
    #[prost(message, optional, tag = "23")]
    pub(super) items: Option<ItemsItem>,
    #[prost(message, optional, tag = "25")]
    pub(super) properties: Option<Properties>,
    #[prost(message, optional, tag = "30")]
    pub(super) example: Option<Any>,
    #[prost(message, repeated, tag = "31")]
    pub(super) vendor_extension: Vec<NamedAny>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AdditionalProperties {
    #[prost(oneof = "SchemaOrBool", tags = "1, 2")]
    pub(super) item: Option<SchemaOrBool>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum SchemaOrBool {
    #[prost(message, boxed, tag = "1")]
    Schema(Box<Schema>),
    #[prost(bool, tag = "2")]
    Boolean(bool),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeItem {
    #[prost(string, repeated, tag = "1")]
    pub(super) value: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ItemsItem {
    #[prost(message, repeated, tag = "1")]
    pub(super) schema: Vec<Schema>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedAny {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Any>,
}

/// Any value as YAML text, which may be JSON. Field 1 of the message, a typed value, is never set.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "2")]
    pub(super) yaml: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SecurityRequirement {
    #[prost(message, repeated, tag = "1")]
    pub(super) named: Vec<NamedStringArray>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedStringArray {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<TypeItem>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SecurityDefinitions {
    #[prost(message, repeated, tag = "1")]
    pub(super) named: Vec<NamedSecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NamedSecurity {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<SecurityItem>,
}

/// A `oneof`. Kubernetes' documents use only its second member, an API key.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SecurityItem {
    #[prost(message, optional, tag = "2")]
    pub(super) api_key: Option<ApiKeySecurity>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ApiKeySecurity {
    #[prost(string, tag = "1")]
    pub(super) ty: String,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) place: String,
    #[prost(string, tag = "4")]
    pub(super) description: String,
}
