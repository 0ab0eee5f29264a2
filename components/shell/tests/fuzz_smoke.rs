//! Runs the fuzz target as an ordinary test, with its seeds and with mutations of these seeds.
//!
//! `tools/fuzz/README.md` says how to run the target under the real fuzzer.

#[allow(clippy::disallowed_methods, reason = "the seeds are files")]
#[path = "../../../tools/fuzz/src/smoke.rs"]
mod smoke;
#[path = "../../../tools/fuzz/src/shell.rs"]
mod targets;

/// Tokens from which scripts are made.
const MEANINGFUL: [&[u8]; 24] = [
    b"$(",
    b"$((",
    b")",
    b"))",
    b"${x:-",
    b"}",
    b"`",
    b"'",
    b"\"",
    b"\\\n",
    b"<<E\n",
    b"\nE\n",
    b"if true; then ",
    b"; fi",
    b"while true; do ",
    b"; done",
    b"case x in x) ",
    b";; esac",
    b"f() { ",
    b" | ",
    b" && ",
    b" & ",
    b"sleep 1; ",
    b"trap 'echo a' EXIT; ",
];

#[test]
fn holds_on_seeds() {
    smoke::holds_on_seeds(&targets::TARGETS);
}

#[test]
fn holds_on_mutations() {
    smoke::holds_on_mutations(&targets::TARGETS, &MEANINGFUL);
}

#[test]
fn holds_on_noise() {
    smoke::holds_on_noise(&targets::TARGETS);
}
