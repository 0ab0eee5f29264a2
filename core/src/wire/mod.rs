//! What goes out besides objects: discovery, OpenAPI, tables.

pub mod discovery;
pub mod jsonpath;
pub mod openapi;
pub mod table;
