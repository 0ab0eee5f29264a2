//! The engine over a log in memory: its guarantees to transports, and its behaviour when the log fails.
//!
//! Most tests run the writer by hand, so that they can look at the state between two steps.

mod apart;
mod collections;
mod commit;
mod faults;
mod health;
mod holding;
mod others;
mod past;
mod policies;
mod reading;
mod stage;
mod tapping;
mod turns;
mod watching;

/// Checks that every file in this folder is a module of this test, because Cargo never compiles any other file.
#[test]
fn no_file_is_left_out() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine");
    let text = std::fs::read_to_string(here.join("main.rs")).unwrap();
    for file in std::fs::read_dir(here).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(module == "main" || text.contains(&format!("mod {module};")), "{name} is not tested");
    }
}
