//! See `polity_tests::fuzz::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| polity_tests::fuzz::response::run(data));
