//! RocksDB, compiled quickly. Has no code: whoever depends on it is linked with the library that `build.rs` makes.
//!
//! `librocksdb-sys` compiles each of RocksDB's 343 files by itself, and most of that time goes into reading the same
//! headers again: it was half of a build. `.cargo/config.toml` tells it that the library is elsewhere, and `build.rs`
//! makes it from the same sources, many files at a time.
