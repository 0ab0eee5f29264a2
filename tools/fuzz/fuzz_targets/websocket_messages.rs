#![no_main]

#[path = "../src/streams.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::websocket_messages(bytes));
