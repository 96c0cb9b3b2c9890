//! Measures how much memory policies can take that want all of it: the most memory of the process above its
//! quiet state, while all of them run. See `README.md` beside this file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polity::manifests::Manifests;
use polity::observer::Observer;
use polity_core::binding::PolicyId;
use polity_core::record::{Outcome, PassRecord};
use polity_sandbox::{Compiler, Confined, Policy, Sandbox, SandboxConfig};
use polity_tests::guests;
use polity_tests::host_fixture::{machine, machines, thing, things};
use polity_tests::host_harness::Site;
use serde_json::{Value, json};

/// The allocator of the host's own binary.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The threads that call policies.
const THREADS: usize = 8;
/// The objects of each bomb: this many steps want to run at the same time.
const OBJECTS: usize = 16;
/// How long the bombs run.
const WATCHED: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
struct Counts {
    faults: Arc<AtomicU64>,
    published: Arc<AtomicU64>,
}

impl Observer for Counts {
    fn passed(&mut self, record: &Arc<PassRecord>) {
        let count = match record.outcome {
            Outcome::Faulted => &self.faults,
            _ => &self.published,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn policy_loaded(&mut self, _: &PolicyId, _: &Policy, _: &[u8]) {}

    fn report(&mut self, _: &str) {}
}

/// A module whose instance fills this many pages of memory in small steps when a step begins.
fn filling(pages: u32) -> Vec<u8> {
    let bytes = pages << 16;
    let module = format!(
        "(module (memory 1)
            (func $fill (local $at i32)
                (loop $more
                    (memory.fill (local.get $at) (i32.const 7) (i32.const 65536))
                    (local.set $at (i32.add (local.get $at) (i32.const 65536)))
                    (if (i32.lt_u (local.get $at) (i32.const {bytes})) (then
                        (if (i32.ge_s (memory.grow (i32.const 1)) (i32.const 0)) (then (br $more)))))))
            (start $fill))"
    );
    wat::parse_str(module).expect("a module")
}

/// The bombs by file name: policies, and files that are not policies.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let wat = |text: &str| wat::parse_str(text).expect("a module");
    vec![
        ("hostile.wasm", guests::hostile().to_vec()),
        ("capv-machine.wasm", guests::capv_machine().to_vec()),
        // On `describe`: 480 MiB of memories, and as much of tables.
        (
            "memories.wasm",
            guests::with_instances(guests::hostile(), &filling(256), 30),
        ),
        (
            "tables.wasm",
            guests::with_instances(guests::hostile(), &wat("(module (table 90000 funcref))"), 60),
        ),
        // In each step: all memory that it may have, in seven memories, and 60 times what else an instance
        // may take.
        (
            "seven.wasm",
            guests::with_instances(guests::hostile(), &filling(36), 7),
        ),
        (
            "globals.wasm",
            guests::with_instances(
                guests::hostile(),
                &wat(&format!(
                    "(module {})",
                    "(global (mut i64) (i64.const 1))".repeat(15_000)
                )),
                60,
            ),
        ),
        ("compile.wasm", guests::component_of(&[guests::bomb(600_000)])),
        (
            "compile-more.wasm",
            guests::component_of(&[guests::bomb(200_000)]),
        ),
    ]
}

fn binding(file: &str) -> Value {
    let mut binding = things();
    binding["metadata"]["name"] = file.into();
    binding["spec"]["policies"]["lifecycle"]["file"] = format!("{file}.wasm").into();
    // The policies that load govern a kind of their own.
    let kind = if file == "globals" { "Node" } else { "ConfigMap" };
    binding["spec"]["governs"] = json!({"apiVersion": "v1", "kind": kind});
    binding
}

/// A value of `/proc/self/status` in KiB.
fn status(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says it");
    let found = status
        .lines()
        .find_map(|one| one.strip_prefix(line)?.strip_prefix(':'));
    let number = found.and_then(|text| text.split_whitespace().next()?.parse().ok());
    number.expect("a number of KiB")
}

async fn apply(site: &Site, object: &Value) {
    site.cluster.apply(object).await.expect("it is applied");
}

async fn measure() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in files() {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    let mut site = Site::new(1, None);
    let sandbox = Sandbox::new(SandboxConfig::new(Compiler::Child(Confined::program(env!(
        "CARGO_BIN_EXE_polity-under-test"
    )))));
    site.load_with(Arc::new(sandbox.expect("an engine")), folder.path());
    let quiet_ones = Manifests {
        bindings: vec![machines(), things()],
        objects: (0..10)
            .map(|n| machine("default", &format!("machine-{n}")))
            .collect(),
        ..Manifests::default()
    };
    site.apply(&quiet_ones).await;
    let counts = Counts::default();
    let (host, _) = site.drive(THREADS, Box::new(counts.clone()));
    while counts.published.load(Ordering::Relaxed) < 10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // From here on the kernel records the peak.
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux lets it be reset");
    let quiet = status("VmRSS");
    println!("quiet: {} MiB", quiet >> 10);

    for file in [
        "memories",
        "tables",
        "seven",
        "globals",
        "compile",
        "compile-more",
    ] {
        apply(&site, &binding(file)).await;
    }
    for n in 0..OBJECTS {
        for mischief in ["allocate", "huge", "flood", "garbage", "ask-for-ever", "recurse"] {
            apply(&site, &thing(&format!("{mischief}-{n}"), mischief)).await;
        }
        let named = json!({"name": format!("bomb-{n}"), "namespace": "default"});
        apply(
            &site,
            &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named}),
        )
        .await;
        apply(
            &site,
            &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("bomb-{n}")}}),
        )
        .await;
    }
    let before = counts.faults.load(Ordering::Relaxed);
    tokio::time::sleep(WATCHED).await;
    let (worst, now) = (status("VmHWM"), status("VmRSS"));
    host.abort();
    println!(
        "passes that ended in a fault: {}",
        counts.faults.load(Ordering::Relaxed) - before
    );
    println!("at worst: {} MiB above quiet", worst.saturating_sub(quiet) >> 10);
    println!(
        "after {} s: {} MiB above quiet",
        WATCHED.as_secs(),
        now.saturating_sub(quiet) >> 10
    );
}

fn main() {
    println!("a host with {THREADS} threads for policies, {OBJECTS} objects of each bomb:");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(measure());
    runtime.shutdown_background();
}
