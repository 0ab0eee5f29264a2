//! Runs the fuzz targets as ordinary tests, over their seeds and over mutations of them.
//!
//! `tools/fuzz/README.md` explains how to run the targets with the fuzzer.

#[path = "../../../tools/fuzz/src/smoke.rs"]
mod smoke;
#[path = "../../../tools/fuzz/src/http2.rs"]
mod targets;

const MEANINGFUL: [&[u8]; 14] = [
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\0\0\0\x04\0\0\0\0\0",
    b"\0\0\0\x04\x01\0\0\0\0",
    b"\0\0\x06\x01\x05\0\0\0\x01\x82\x87\x84\x41\x01a",
    b"\0\0\x06\x01\x04\0\0\0\x03\x83\x87\x84\x41\x01a",
    b"\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff",
    b"\0\0\x08\x06\x01\0\0\0\0farewell",
    b"\x82\x87\x84",
    b"\x40\x01a\x01b",
    b"\xbe",
    b"\x7f\xff\xff\xff\x7f",
    b"\x20",
    b"\0\x04\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
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
