//! See `polity_tests::fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| polity_tests::fuzz::json::run(data));
