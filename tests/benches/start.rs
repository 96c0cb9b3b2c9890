//! Measures how long a host takes from its start until it is ready with the five shipped workflows. See
//! `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::time::Instant;

use polity_tests::examples;
use polity_tests::served::Host;

/// How often it is measured. A host that has started before finds its data.
const STARTS: usize = 5;

fn main() {
    let example = examples::copy("everything");
    let data = tempfile::tempdir().expect("a folder");
    for number in 1..=STARTS {
        let began = Instant::now();
        let arguments = [example.path(), "--data".as_ref(), data.path()];
        let host = Host::start(env!("CARGO_BIN_EXE_polity-under-test"), arguments);
        host.until("/readyz", 200);
        let ready = began.elapsed();
        let status = std::fs::read_to_string(format!("/proc/{}/status", host.process())).unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        println!(
            "start {number}: ready after {:.2} s, with {}",
            ready.as_secs_f64(),
            memory.unwrap_or("?").trim()
        );
    }
}
