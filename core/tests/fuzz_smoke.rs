//! Runs the fuzz targets as ordinary tests, with the seeds of each target and with mutations of these seeds.
//!
//! `tools/fuzz/README.md` describes how to run the targets with the fuzzer.

#[path = "../../tools/fuzz/src/smoke.rs"]
mod smoke;
#[path = "../../tools/fuzz/src/lib.rs"]
mod targets;

const MEANINGFUL: [&[u8]; 24] = [
    b"null",
    b"[",
    b"{\"",
    b"\":",
    b"}",
    b"\\ud800",
    b"\0",
    b"\xff",
    b"9223372036854775808",
    b"-1",
    b"1e400",
    b"\"$patch\":\"delete\",",
    b"\"$retainKeys\":[",
    b"metadata",
    b"name",
    b",",
    b"\n",
    b"&a ",
    b"*a",
    b"<<: ",
    b"~1",
    b"/",
    b".",
    b"f:",
];

#[test]
fn every_target_holds_on_its_seeds() {
    smoke::holds_on_seeds(&targets::TARGETS);
}

#[test]
fn every_target_holds_on_mutations_of_its_seeds() {
    smoke::holds_on_mutations(&targets::TARGETS, &MEANINGFUL);
}

#[test]
fn every_target_holds_on_noise() {
    smoke::holds_on_noise(&targets::TARGETS);
}
