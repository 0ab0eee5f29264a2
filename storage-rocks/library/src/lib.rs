//! RocksDB, compiled quickly. This crate has no code: crates that depend on it are linked with the library that
//! `build.rs` makes.
//!
//! `librocksdb-sys` compiles each of RocksDB's 343 files separately, and most of that time is spent parsing the same
//! headers again. It took half of a build. `.cargo/config.toml` tells `librocksdb-sys` that the library is elsewhere,
//! and `build.rs` makes the library from the same sources, many files at a time.
