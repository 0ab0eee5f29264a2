//! Tests the Protobuf codec with every message of the schema table and against other implementations.

#[path = "../../../tests/src/facts.rs"]
mod facts;
mod generate;
mod peers;
mod recorded;
mod round_trip;
mod speed;
