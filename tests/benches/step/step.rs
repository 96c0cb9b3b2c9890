//! Measures a step of `capv-machine`: in a fresh instance, in a reused instance, and as native Rust code;
//! with one thread and with two; and the loading of a policy. See `README.md` beside this file.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use polity_core::binding::Limits;
use polity_core::contract::{Cause, Pass};
use polity_sandbox::{Allocation, Compiler, Policy, Sandbox, SandboxConfig};
use polity_tests::guests;

/// The sizes of the objects in bytes: a minimal one, one as in production, and a large one.
const SIZES: [usize; 3] = [500, 1_700, 16_000];

fn policy(allocation: Allocation) -> Arc<Policy> {
    let sandbox = Sandbox::new(SandboxConfig {
        allocation,
        ..SandboxConfig::new(Compiler::InProcess)
    })
    .expect("an engine");
    sandbox.load(guests::capv_machine()).expect("it loads")
}

/// A machine with a running task, brought to a size by an annotation. Its first step asks for the task.
fn object(size: usize) -> String {
    let object = |filling: &str| {
        serde_json::json!({
            "apiVersion": "capv.polity.dev/v1alpha1", "kind": "Machine",
            "metadata": {"name": "machine-1", "namespace": "team-a", "uid": "5f1c", "generation": 1,
                "annotations": {"filling": filling}},
            "spec": {"template": "ubuntu", "network": {"devices": [{"networkName": "net", "dhcp4": true}]}},
            "status": {"phase": "Cloning", "taskRef": "task-1", "taskKind": "clone"},
        })
        .to_string()
    };
    let bare = object("").len();
    object(&"x".repeat(size.saturating_sub(bare)))
}

fn config() -> String {
    serde_json::to_string(&capv_machine::Config::default()).expect("it is JSON")
}

fn pass(size: usize) -> Pass {
    Pass {
        object: Some(object(size).into()),
        now: 1_795_000_000_000,
        causes: vec![Cause::Due],
        attempt: 0,
        config: config().into(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

fn native(size: usize) -> polity_sdk::contract::Pass {
    polity_sdk::contract::Pass {
        object: Some(object(size)),
        now: 1_795_000_000_000,
        causes: Vec::new(),
        attempt: 0,
        config: config(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

/// The time of `steps` steps on `threads` threads.
fn on_threads(threads: u64, steps: u64, step: impl Fn() + Sync) -> Duration {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..steps / threads).for_each(|_| step()));
        }
    });
    started.elapsed()
}

/// The time of this many steps in reused instances. The policies' allocator never frees memory, so an
/// instance is dropped after some steps. Making the next one does not count.
fn reused(policy: &Policy, pass: &Pass, steps: u64) -> Duration {
    const STEPS: u64 = 8;
    let mut took = Duration::ZERO;
    for done in (0..steps).step_by(STEPS as usize) {
        let mut instance = policy.reused(&Limits::default()).expect("an instance");
        drop(black_box(instance.step(pass)));
        let started = Instant::now();
        for _ in done..steps.min(done + STEPS) {
            drop(black_box(instance.step(pass)));
        }
        took += started.elapsed();
    }
    took
}

fn steps(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("step");
    for (name, allocation) in [
        ("on-demand", Allocation::OnDemand),
        ("pooling", Allocation::Pooling),
    ] {
        let policy = policy(allocation);
        for size in SIZES {
            let pass = pass(size);
            for threads in [1, 2] {
                let id = BenchmarkId::new(format!("fresh/{name}/{threads}-threads"), size);
                group.bench_function(id, |b| {
                    b.iter_custom(|n| {
                        on_threads(threads, n, || drop(black_box(policy.step(&pass, &limits))))
                    });
                });
            }
        }
    }
    let policy = policy(Allocation::OnDemand);
    for size in SIZES {
        let pass = pass(size);
        group.bench_function(BenchmarkId::new("reused", size), |b| {
            b.iter_custom(|n| reused(&policy, &pass, n))
        });
        group.bench_function(BenchmarkId::new("native", size), |b| {
            b.iter_batched(
                || native(size),
                |pass| black_box(polity_sdk::step::lifecycle(pass, capv_machine::reconcile)),
                criterion::BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// The pages of memory with which a step begins: as in the shipped policies, with the linker's default stack,
/// and more than a thread keeps.
const PAGES: [u32; 3] = [3, 20, 80];

fn memories(c: &mut Criterion) {
    let limits = Limits::default();
    let mut group = c.benchmark_group("memory");
    let sandbox = Sandbox::new(SandboxConfig::new(Compiler::InProcess)).expect("an engine");
    let pass = pass(1_700);
    for pages in PAGES {
        let policy = sandbox.load(&guests::with_pages(guests::capv_machine(), pages));
        let policy = policy.expect("it loads");
        for threads in [1, 2] {
            let id = BenchmarkId::new(
                format!("fresh/on-demand/{threads}-threads"),
                format!("{} KiB", pages * 64),
            );
            group.bench_function(id, |b| {
                b.iter_custom(|n| on_threads(threads, n, || drop(black_box(policy.step(&pass, &limits)))));
            });
        }
    }
    group.finish();
}

fn load(c: &mut Criterion) {
    let mut group = c.benchmark_group("load");
    group.sample_size(10);
    group.bench_function("capv-machine", |b| b.iter(|| policy(Allocation::OnDemand)));
    group.finish();
}

criterion_group!(benches, steps, memories, load);
criterion_main!(benches);
