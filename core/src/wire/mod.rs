//! Response formats other than stored objects: discovery, OpenAPI, tables; and the Protobuf form of objects, both ways.

pub mod discovery;
pub mod jsonpath;
pub mod merged;
pub mod openapi;
pub mod ordered;
pub mod pretty;
pub mod protobuf;
pub mod table;
pub mod yaml;
