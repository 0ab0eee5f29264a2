//! RocksDB, compiled quickly. This crate has no code: crates that depend on it are linked with the library that
//! `build.rs` makes.
//!
//! `librocksdb-sys` compiles each of RocksDB's 343 files by itself, and most of that time goes into parsing the same
//! headers again: it was half of a build. `.cargo/config.toml` tells it that the library is elsewhere, and `build.rs`
//! makes it from the same sources, many files at a time.
