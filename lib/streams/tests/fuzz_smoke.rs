//! Runs the fuzz targets as ordinary tests, over their seeds and over mutations of them.
//!
//! `tools/fuzz/README.md` explains how to run the targets with the fuzzer.

#[path = "../../../tools/fuzz/src/smoke.rs"]
mod smoke;
#[path = "../../../tools/fuzz/src/streams.rs"]
mod targets;

const MEANINGFUL: [&[u8]; 12] = [
    b"\x80\x03\0\x01\0\0\0\x0a\0\0\0\x01\0\0\0\0\0\0",
    b"\x80\x03\0\x02\0\0\0\x04\0\0\0\x01",
    b"\x80\x03\0\x03\0\0\0\x08\0\0\0\x01\0\0\0\x05",
    b"\x80\x03\0\x06\0\0\0\x04\0\0\0\x01",
    b"\x80\x03\0\x09\0\0\0\x08\0\0\0\x01\0\x01\0\0",
    b"\0\0\0\x01\x01\0\0\0",
    b"\0\0\0\x01\0\xff\xff\xff",
    b"\x78\xbb\xe3\xc6\xa7\xc2",
    b"\0\0\xff\xff",
    b"\x82\x82\0\0\0\0\xff\0",
    b"\x81\x85\0\0\0\x000YQ==",
    b"\x02\xfe\x01\0\0\0\0\0",
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
