//! The forms of responses other than stored objects: discovery, OpenAPI and tables. This module also reads and writes
//! objects in Protobuf.

pub mod discovery;
pub mod jsonpath;
pub mod merged;
pub mod openapi;
pub mod ordered;
pub mod pretty;
pub mod protobuf;
pub mod table;
pub mod yaml;
