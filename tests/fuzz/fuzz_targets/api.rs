//! See `polity_tests::fuzz::api`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| polity_tests::fuzz::api::run(data));
