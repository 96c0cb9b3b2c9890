//! See `polity_tests::fuzz::loader`.
#![no_main]

use std::panic;
use std::thread;

libfuzzer_sys::fuzz_target!(
    init: {
        // libFuzzer ends at every panic. The sandbox reads policies on a thread of its own and takes a panic there, of
        // tools that are not made for such bytes, for a refusal: only those of this thread are ours.
        let ends = panic::take_hook();
        let here = thread::current().id();
        panic::set_hook(Box::new(move |panicked| {
            if thread::current().id() == here {
                ends(panicked);
            }
        }));
    },
    |data: &[u8]| polity_tests::fuzz::loader::run(data)
);
