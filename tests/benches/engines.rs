//! Compares the two kinds of memory for each shipped policy and driver: what its machine code costs to make and how large it
//! is, and what a step takes. See `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polity_core::binding::Limits;
use polity_core::contract::{Cause, Pass};
use polity_sandbox::{Allocation, Compiler, Policy, Sandbox, SandboxConfig};
use polity_tests::guests;

const POLICIES: [&str; 12] = [
    "capv-machine",
    "mcm-machine",
    "mcm-machineclass",
    "mcm-machineset",
    "mcm-safety",
    "mcm-identity",
    "mcm-retry",
    "orbiter",
    "orbiter-node-agent",
    "rug-router",
    "capa-identity",
    "backoff-retry",
];

fn sandbox(allocation: Allocation) -> Sandbox {
    Sandbox::new(SandboxConfig {
        allocation,
        ..SandboxConfig::new(Compiler::InProcess)
    })
    .expect("an engine")
}

/// An object that no policy can decode beyond its metadata: the step reads it and concludes.
fn pass() -> Pass {
    let object = serde_json::json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": "thing-1", "namespace": "team-a", "uid": "5f1c", "generation": 1},
        "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "net", "dhcp4": true}]}},
        "status": {"phase": "Cloning", "taskRef": "task-1", "taskKind": "clone"},
    });
    Pass {
        object: Some(object.to_string().into()),
        now: 1_795_000_000_000,
        causes: vec![Cause::Due],
        attempt: 0,
        config: "{}".into(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

/// The median of a step's times.
fn step(policy: &Arc<Policy>) -> Duration {
    let (pass, limits) = (pass(), Limits::default());
    let mut times: Vec<Duration> = (0..201)
        .map(|_| {
            let began = Instant::now();
            drop(black_box(policy.step(&pass, &limits)));
            began.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    println!("policy               wasm KiB   compile ms          code KiB            step µs");
    println!("                                on-demand/pooling   on-demand/pooling   on-demand/pooling");
    let sandboxes = [Allocation::OnDemand, Allocation::Pooling].map(sandbox);
    let mut totals = [Duration::ZERO; 2];
    for name in POLICIES {
        let file = guests::folder().join(format!("{}.wasm", name.replace('-', "_")));
        let bytes = std::fs::read(file).expect("it was built");
        let mut row = Vec::new();
        for (sandbox, total) in sandboxes.iter().zip(&mut totals) {
            let began = Instant::now();
            let policy = sandbox.load(&bytes).expect("it loads");
            let took = began.elapsed();
            *total += took;
            let step = if name.ends_with("-retry") {
                Duration::ZERO
            } else {
                step(&policy)
            };
            row.push((took.as_millis(), policy.code() >> 10, step.as_secs_f64() * 1e6));
        }
        println!(
            "{name:<20} {:>8}   {:>8}/{:<8}   {:>8}/{:<8}   {:>8.1}/{:<8.1}",
            bytes.len() >> 10,
            row[0].0,
            row[1].0,
            row[0].1,
            row[1].1,
            row[0].2,
            row[1].2
        );
    }
    println!(
        "all: {:.1} s/{:.1} s",
        totals[0].as_secs_f64(),
        totals[1].as_secs_f64()
    );
}
