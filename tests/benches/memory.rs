//! Measures the memory of an object while it is queued, while its pass is in flight, and while it waits:
//! bytes of the heap in addition to the object itself. One run without timing; see `README.md` beside this
//! file.

#![allow(clippy::print_stdout, reason = "a report")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polity_core::binding::Limits;
use polity_core::call::{Call, CallId, LeaseRead, Reply, Scope, WatchEvent, Write};
use polity_core::contract::{Code, Failure};
use polity_core::controller::{Controller, Input, Output};
use polity_core::object::Object;
use polity_core::object::ResourceVersion;
use polity_core::time::{Boot, Now, Unix};
use polity_core::worker::StepInput;
use polity_tests::simulation::store::merge;
use polity_tests::simulation::{bindings, native};
use serde_json::{Value, json};

/// Objects of the measured kind.
const OBJECTS: usize = 10_000;
/// Bytes of each, as JSON.
const SIZE: usize = 1_700;

static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is left to the system; only sums are kept.
#[allow(unsafe_code, reason = "a global allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the same promises.
        unsafe { System.dealloc(piece, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

fn widget(number: usize) -> Object {
    Object::new(tree(number))
}

/// A Widget with this many bytes.
fn tree(number: usize) -> Value {
    let mut value = json!({
        "apiVersion": bindings::WIDGETS, "kind": "Widget",
        "metadata": {
            "name": format!("widget-{number:05}"), "namespace": "team-a", "uid": format!("uid-{number:05}"),
            "resourceVersion": "1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "widget", "tier": "backend"}, "annotations": {"filling": ""},
        },
        "spec": {"source": "site", "replicas": 3, "template": {"image": "example", "ports": [80, 443]}},
        "status": {"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "reason": "AsItShouldBe", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    });
    let missing = SIZE.saturating_sub(value.to_string().len());
    value["metadata"]["annotations"]["filling"] = "x".repeat(missing).into();
    value
}

/// Core, and the calls that it waits for.
struct Bench {
    controller: Controller,
    now: Now,
    /// Whether the lease is available.
    leased: bool,
    /// The steps that are not answered yet.
    steps: Vec<(CallId, std::sync::Arc<StepInput>)>,
    version: u64,
}

impl Bench {
    fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for output in self.controller.step(self.now, input) {
                match output {
                    Output::Call { id, call, .. } => {
                        if let Some(reply) = self.answer(id, call) {
                            inputs.push(Input::Returned { call: id, reply });
                        }
                    }
                    Output::Watch(scope) if scope.kind.kind == "ConfigMap" => {
                        let map = Object::new(json!({
                            "apiVersion": "v1", "kind": "ConfigMap", "data": {"value": "v1"},
                            "metadata": {"name": "site", "namespace": "team-a", "uid": "site", "resourceVersion": "1"},
                        }));
                        inputs.push(listed(scope, vec![map]));
                    }
                    _ => {}
                }
            }
        }
    }

    fn answer(&mut self, id: CallId, call: Call) -> Option<Reply> {
        match call {
            Call::Step { input, .. } => {
                self.steps.push((id, input));
                None
            }
            Call::Draft(draft) => Some(Reply::Drafted(Ok(draft.run()))),
            Call::Lease(_) if !self.leased => {
                Some(Reply::Lease(Err(Failure::new(Code::Unavailable, "not yet"))))
            }
            Call::Lease(None) => Some(Reply::Lease(Ok(None))),
            Call::Lease(Some(write)) => Some(Reply::Lease(Ok(Some(LeaseRead {
                holder: write.holder,
                duration: write.duration,
                version: "1".into(),
                transitions: write.transitions,
            })))),
            Call::Write(Write::Patch { object, patch, .. }) => {
                let number = object.name.trim_start_matches("widget-").parse().unwrap_or(0);
                let mut value = tree(number);
                merge(&mut value, &patch);
                self.version += 1;
                value["metadata"]["resourceVersion"] = self.version.to_string().into();
                Some(Reply::objects(Ok(value)))
            }
            Call::Write(_) => Some(Reply::Objects(Ok(Vec::new()))),
            _ => None,
        }
    }

    fn answer_steps(&mut self) {
        for (call, input) in std::mem::take(&mut self.steps) {
            let stepped = input.step(&Limits::default(), |pass| native::step(pass, native::widget));
            drop(input);
            let reply = Reply::Stepped(stepped);
            self.feed(Input::Returned { call, reply });
        }
    }
}

fn listed(scope: Scope, objects: Vec<Object>) -> Input {
    let event = WatchEvent::Listed {
        objects,
        version: ResourceVersion(1),
    };
    Input::Watched { scope, event }
}

fn main() {
    let mut bench = Bench {
        controller: Controller::new("bench"),
        now: Now {
            boot: Boot(1_000_000),
            unix: Unix(1_767_225_600_000),
        },
        leased: false,
        steps: Vec::new(),
        version: 1,
    };
    bench.feed(Input::Tick);
    let mut scope = None;
    for output in bench
        .controller
        .step(bench.now, Input::Bound(Box::new(bindings::widgets())))
    {
        if let Output::Watch(watched) = output {
            scope = Some(watched);
        }
    }
    let scope = scope.expect("the binding's kind is watched");

    let empty = bytes();
    let trees: Vec<Value> = (0..OBJECTS).map(tree).collect();
    let tree = (bytes() - empty) / OBJECTS;
    drop(trees);

    let empty = bytes();
    let objects: Vec<Object> = (0..OBJECTS).map(widget).collect();
    let object = (bytes() - empty) / OBJECTS;
    bench.feed(listed(scope, objects));
    let queued = (bytes() - empty) / OBJECTS - object;

    bench.leased = true;
    let before = bytes();
    for _ in 0..100 {
        bench.now = bench.now + Duration::from_secs(1);
        bench.feed(Input::Tick);
    }
    let passes = bench.controller.passes_in_flight();
    let in_flight = (bytes() - before) / passes.max(1);

    let mut rounds = 0;
    while bench.controller.keys().any(|(_, key)| key.queued || key.running) {
        bench.answer_steps();
        bench.now = bench.now + Duration::from_millis(1);
        bench.feed(Input::Tick);
        rounds += 1;
        assert!(rounds < 1_000_000, "the passes do not end");
    }
    let waiting = (bytes() - empty) / OBJECTS - object;

    println!("bytes of the heap, {OBJECTS} objects of {SIZE} bytes of JSON, beyond the object itself:");
    println!("  object itself              {object:>8}   as a tree {tree}");
    println!("  queued                     {queued:>8}");
    println!("  in flight ({passes:>4} at once)   {in_flight:>8}   beyond queued");
    println!("  waiting                    {waiting:>8}");
}
