//! RocksDB, compiled quickly. This crate has no code. Crates that depend on it are linked with the library that
//! `build.rs` makes.
//!
//! `librocksdb-sys` compiles each of RocksDB's 343 files separately, and most of that time is spent parsing the same
//! headers again. The compilation by `librocksdb-sys` took half of the time of a build of Holdfast. By the settings in
//! `.cargo/config.toml`, `librocksdb-sys` links the library of this crate, and `build.rs` makes this library from the
//! same sources, many files at a time.
