//! See `polity_tests::fuzz::policy`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| polity_tests::fuzz::policy::run(data));
