//! What goes out besides objects: discovery, OpenAPI, tables.

pub mod discovery;
pub mod openapi;
