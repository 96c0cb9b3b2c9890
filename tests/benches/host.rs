//! Passes per second of the whole host in memory: driver, cache, queue, sandbox, simulated cloud, as `polity run` puts
//! them together. See `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polity::driver::Observer;
use polity::manifests::Manifests;
use polity_core::binding::PolicyId;
use polity_core::record::PassRecord;
use polity_sandbox::Policy;
use polity_tests::whole::Site;
use polity_tests::whole::seeds::binding;
use serde_json::json;

/// Machines that are driven at once.
const MACHINES: usize = 200;
/// How long passes are counted.
const COUNTED: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
struct Counts {
    passes: Arc<AtomicU64>,
    steps: Arc<AtomicU64>,
}

impl Observer for Counts {
    fn passed(&mut self, record: &PassRecord) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let steps: u32 = record.roles.iter().map(|role| role.steps).sum();
        self.steps.fetch_add(steps.into(), Ordering::Relaxed);
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn says(&mut self, _: &str) {}
}

/// Machines whose clones run for an hour, looked at again at once: each pass asks for the task and writes nothing.
async fn measure(threads: usize) {
    let cloud = json!({
        "lag": "0ms", "answers": {"min": "0ms", "max": "0ms"}, "queue": {"min": "0ms", "max": "0ms"},
        "tasks": {"clone": {"min": "1h", "max": "1h"}},
    });
    let site = Site::new(1, Some(cloud));
    let mut binding = binding();
    binding["spec"]["policies"]["lifecycle"]["configuration"] = json!({"requeuePeriod": "1ms"});
    // A key passes once a second in the long run unless its binding says otherwise: here the host is what limits.
    binding["spec"]["limits"] = json!({"burst": 1_000_000, "refill": 1, "cloudCalls": 1_000});
    let machine = |number| {
        json!({
            "apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine",
            "metadata": {"namespace": format!("team-{}", number % 10), "name": format!("m-{number}")},
            "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "prod", "dhcp4": true}]}},
        })
    };
    let namespace = |number| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{number}")}});
    let manifests = Manifests {
        bindings: vec![binding],
        objects: (0..10).map(namespace).chain((0..MACHINES).map(machine)).collect(),
        ..Manifests::default()
    };
    site.apply(&manifests).await;
    let counts = Counts::default();
    let (_, _, driver) = site.drive(threads, Box::new(counts.clone()));
    while counts.passes.load(Ordering::Relaxed) < 4 * MACHINES as u64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let read = || {
        (
            counts.passes.load(Ordering::Relaxed),
            counts.steps.load(Ordering::Relaxed),
            cpu(),
        )
    };
    let (started, before) = (Instant::now(), read());
    tokio::time::sleep(COUNTED).await;
    let (seconds, after) = (started.elapsed().as_secs_f64(), read());
    driver.abort();
    let (passes, steps) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{threads} policy threads: {:>8.0} passes/s, {:.1} steps a pass, {:.2} cores busy, {:>8.0} passes/s a core",
        passes as f64 / seconds,
        steps as f64 / passes as f64,
        (after.2 - before.2) / seconds,
        passes as f64 / (after.2 - before.2),
    );
}

/// Seconds of processor time that this process has used.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    println!("the whole host in memory, {MACHINES} machines with a running task, looked at again at once:");
    for threads in [1, 2] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(measure(threads));
        runtime.shutdown_background();
    }
}
