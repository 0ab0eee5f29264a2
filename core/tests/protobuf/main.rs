//! The Protobuf codec, over every message of the schema table and against another implementation.

mod generate;
mod peers;
mod round_trip;
mod speed;
