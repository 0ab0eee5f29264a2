//! What goes out besides objects: discovery, OpenAPI, tables.

pub mod jsonpath;
pub mod table;
