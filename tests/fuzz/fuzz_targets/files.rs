//! See `polity_tests::fuzz::files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| polity_tests::fuzz::files::run(data));
