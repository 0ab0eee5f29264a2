//! Compiles RocksDB from the sources in `librocksdb-sys`, configured for Linux, in a few large units.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

/// The value of `ROCKSDB_LIB_DIR` in `.cargo/config.toml`. If the variable has another value, or none, the build does
/// not link the library that this program makes.
const MARK: &str = "made-by-holdfast-rocksdb-library";

/// The defines that RocksDB's own build detects on a Linux machine.
const DEFINES: [&str; 9] = [
    "HAVE_ALIGNED_NEW",
    "HAVE_UINT128_EXTENSION",
    "OS_LINUX",
    "ROCKSDB_PLATFORM_POSIX",
    "ROCKSDB_LIB_IO_POSIX",
    "ROCKSDB_SCHED_GETCPU_PRESENT",
    "ROCKSDB_AUXV_GETAUXVAL_PRESENT",
    "ROCKSDB_FALLOCATE_PRESENT",
    "ROCKSDB_RANGESYNC_PRESENT",
];

struct Unit {
    name: &'static str,
    /// The unit has all files whose path begins with one of these prefixes and that no earlier unit has.
    prefixes: &'static [&'static str],
    /// Whether the unit handles the bytes of every read and write. The other units control the store, or run only at a
    /// start, for a fork, or never. They are compiled with this crate's profile, for size except in `make dist`.
    is_fast: bool,
}

/// The optimization level of units that handle the bytes of every read and write.
const FAST: &str = "2";

/// Files that neither Holdfast nor RocksDB's own database uses.
const LEFT_OUT: [&str; 16] = [
    "tools/",
    "utilities/agg_merge/",
    "utilities/blob_db/",
    "utilities/cache_dump_load",
    "utilities/cassandra/",
    "utilities/convenience/",
    "utilities/debug",
    "utilities/env_mirror",
    "utilities/fault_injection",
    "utilities/leveldb_options/",
    "utilities/option_change_migration/",
    "utilities/persistent_cache/",
    "utilities/secondary_index/",
    "utilities/simulator_cache/",
    "utilities/sorted_run_builder/",
    "util/build_version.cc", // `librocksdb-sys` has this file ready, outside of RocksDB's own folder.
];

/// The files of one unit share one namespace, so no two of them may define the same local name. The first unit takes
/// longest to compile, so it starts first.
const UNITS: [Unit; 6] = [
    Unit { name: "db", prefixes: &["db/"], is_fast: false },
    Unit { name: "table", prefixes: &["table/"], is_fast: true },
    Unit { name: "memory", prefixes: &["cache/", "memory/", "memtable/", "monitoring/", "util/"], is_fast: true },
    Unit { name: "utilities", prefixes: &["utilities/", "trace_replay/"], is_fast: false },
    Unit { name: "options", prefixes: &["options/"], is_fast: false },
    // The empty prefix matches all files that no earlier unit has.
    Unit { name: "rest", prefixes: &[""], is_fast: false },
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if env::var("ROCKSDB_LIB_DIR").as_deref() != Ok(MARK) {
        return;
    }
    // Clippy links nothing, and Cargo does not let it use what a build has compiled.
    println!("cargo::rerun-if-env-changed=RUSTC_WORKSPACE_WRAPPER");
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.ends_with("clippy-driver")) {
        return;
    }
    if let Err(error) = compile() {
        println!(
            "cargo::error=RocksDB does not compile ({error}). Is there a C++ compiler? scripts/setup.sh installs it."
        );
        process::exit(1);
    }
}

fn compile() -> Result<(), Box<dyn std::error::Error>> {
    if env::var("CARGO_CFG_TARGET_OS")? != "linux" {
        return Err("unset ROCKSDB_LIB_DIR in .cargo/config.toml: this crate knows Linux alone".into());
    }
    let sources = PathBuf::from(env::var("DEP_ROCKSDB_CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let listed = fs::read_to_string(sources.join("rocksdb_lib_sources.txt"))?;
    let left_out = |file: &&str| LEFT_OUT.iter().any(|prefix| file.starts_with(prefix));
    let mut left: Vec<&str> = listed.split_whitespace().filter(|file| !left_out(file)).collect();
    let profile = env::var("OPT_LEVEL")?;
    let [mut fast, mut steering] = [FAST, &profile].map(|optimization| compiler(&sources, optimization));
    for unit in UNITS {
        let belongs = |file: &&str| unit.prefixes.iter().any(|prefix| file.starts_with(prefix));
        let own: Vec<&str>;
        (own, left) = left.into_iter().partition(belongs);
        let includes: String = own.iter().map(|file| format!("#include \"{file}\"\n")).collect();
        let path = out.join(format!("{}.cc", unit.name));
        fs::write(&path, includes)?;
        if unit.is_fast {
            fast.file(path)
        } else {
            steering.file(path)
        };
    }
    fast.file(sources.join("build_version.cc"));
    for object in steering.try_compile_intermediates()? {
        fast.object(object);
    }
    // The library has this name because `librocksdb-sys` links a library with the name `rocksdb`.
    fast.try_compile("rocksdb")?;
    Ok(())
}

fn compiler(sources: &Path, optimization: &str) -> cc::Build {
    let mut compiler = cc::Build::new();
    compiler.cpp(true).std("c++20").opt_level_str(optimization).debug(false).warnings(false).define("NDEBUG", "1");
    // Clang compiles these units in half of GCC's time. scripts/setup.sh installs clang, because `librocksdb-sys` needs
    // it.
    if env::var_os("CXX").is_none() && process::Command::new("clang++").arg("--version").output().is_ok() {
        compiler.compiler("clang++");
    }
    for define in DEFINES {
        compiler.define(define, None);
    }
    for include in ["rocksdb/include", "rocksdb", ""] {
        compiler.include(sources.join(include));
    }
    // With these flags the processor's own instructions compute the checksums of the log. Processors have had these
    // instructions since 2010.
    if env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        compiler.flag("-msse4.2").flag("-mpclmul");
    }
    // RocksDB's headers use `cstdint`, and some of them do not include it.
    compiler.flag("-include").flag("cstdint");
    compiler
}
