#![no_main]

#[path = "../src/http2.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::http2_frames(bytes));
