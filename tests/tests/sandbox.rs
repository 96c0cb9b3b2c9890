//! What the sandbox does with policies that are none, and with policies that misbehave.

use std::sync::{Arc, OnceLock};

use polity_core::binding::Limits;
use polity_core::contract::{Cause, Pass, Role, Step};
use polity_core::fault::{Fault, FaultKind, Stepped};
use polity_sandbox::{Allocation, LoadError, Policy, Sandbox, SandboxConfig};
use polity_tests::guests;

fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| Sandbox::new(SandboxConfig::default()).expect("an engine"))
}

fn hostile() -> Arc<Policy> {
    sandbox()
        .load(guests::hostile())
        .expect("it loads: it misbehaves later")
}

fn pass(mischief: &str) -> Pass {
    Pass {
        object: Some(
            r#"{"apiVersion":"test.polity.example/v1","kind":"Thing","metadata":{"name":"t","uid":"u"}}"#
                .into(),
        ),
        now: 1_000,
        causes: vec![Cause::Created],
        attempt: 0,
        config: format!(r#"{{"mischief":"{mischief}"}}"#).into(),
        pending: Vec::new(),
        journal: Vec::new(),
    }
}

fn step(mischief: &str) -> Stepped {
    hostile().step(&pass(mischief), &Limits::default())
}

fn fault(mischief: &str) -> Fault {
    step(mischief).outcome.expect_err("a fault")
}

fn refusal(bytes: &[u8]) -> String {
    match sandbox().load(bytes) {
        Ok(policy) => panic!("{:?} was loaded", policy.id()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn an_empty_file_is_refused_as_empty() {
    assert_eq!(refusal(b""), "it is empty");
}

#[test]
fn a_file_that_is_not_wasm_is_refused_by_name() {
    assert!(refusal(b"#!/bin/sh\n").contains("not WebAssembly"));
}

#[test]
fn a_truncated_policy_is_refused() {
    let whole = guests::hostile();
    for length in [5, 8, 100, whole.len() / 2, whole.len() - 1] {
        assert!(
            sandbox().load(&whole[..length]).is_err(),
            "{length} bytes were loaded"
        );
    }
}

#[test]
fn a_module_that_is_no_policy_is_refused() {
    // The smallest core module, and the smallest component.
    assert!(
        refusal(b"\0asm\x01\0\0\0").contains("not a policy")
            || refusal(b"\0asm\x01\0\0\0").contains("exports")
    );
    assert!(refusal(b"\0asm\x0d\0\x01\0").contains("exports nothing"));
}

#[test]
fn a_component_with_another_import_is_refused_by_its_name() {
    let component = r#"(component (import "wasi:clocks/monotonic-clock@0.2.0" (instance (export "now" (func (result u64))))))"#;
    let refused = refusal(&wat::parse_str(component).expect("a component"));
    assert!(refused.contains("wasi:clocks/monotonic-clock@0.2.0"), "{refused}");
}

#[test]
fn a_component_of_another_version_of_the_contract_is_refused() {
    let component = r#"(component (instance $i) (export "polity:policy/lifecycle@9.0.0" (instance $i)))"#;
    let refused = refusal(&wat::parse_str(component).expect("a component"));
    assert!(refused.contains("polity:policy/lifecycle@9.0.0"), "{refused}");
}

#[test]
fn a_policy_that_is_too_large_is_refused_before_it_is_compiled() {
    let small = Sandbox::new(SandboxConfig {
        largest: 1_000,
        ..SandboxConfig::default()
    })
    .expect("an engine");
    let refused = small.load(guests::hostile());
    assert!(matches!(refused, Err(LoadError::TooLarge { largest: 1_000, .. })));
}

#[test]
fn a_core_module_and_the_component_made_of_it_both_load() {
    let component = wit_component::ComponentEncoder::default()
        .module(guests::hostile())
        .and_then(|encoder| encoder.encode())
        .expect("a component");
    let loaded = sandbox().load(&component).expect("it loads");
    assert_eq!(loaded.role(), Role::Lifecycle);
    assert_eq!(loaded.manifest(), hostile().manifest());
    assert_ne!(loaded.id(), hostile().id());
}

#[test]
fn a_policy_is_compiled_once_and_known_by_its_bytes() {
    assert!(Arc::ptr_eq(&hostile(), &hostile()));
}

#[test]
fn every_step_starts_in_a_fresh_instance() {
    for _ in 0..3 {
        let Ok(Step::Concluded { conclusion, .. }) = step("behave").outcome else {
            panic!("no conclusion")
        };
        assert_eq!(conclusion.notes, ["call-1"]);
    }
}

#[test]
fn the_same_step_returns_the_same_and_uses_the_same_fuel() {
    for mischief in ["behave", "panic", "recurse", "ask-ungranted"] {
        let (a, b) = (step(mischief), step(mischief));
        assert_eq!(a, b, "{mischief}");
        assert!(a.fuel > 0);
    }
}

#[test]
fn an_endless_loop_runs_out_of_fuel() {
    let stepped = step("loop");
    assert_eq!(stepped.outcome.expect_err("a fault").kind, FaultKind::OutOfFuel);
    assert_eq!(stepped.fuel, Limits::default().step_fuel);
}

#[test]
fn a_loop_with_more_fuel_than_time_meets_the_wall_limit_and_says_it_is_not_deterministic() {
    let limits = Limits {
        step_fuel: u64::MAX / 2,
        step_wall: 50,
        ..Limits::default()
    };
    let fault = hostile()
        .step(&pass("loop"), &limits)
        .outcome
        .expect_err("a fault");
    assert_eq!((fault.kind, fault.deterministic), (FaultKind::WallTime, false));
}

#[test]
fn endless_recursion_is_a_trap() {
    let fault = fault("recurse");
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
}

#[test]
fn allocating_without_end_meets_the_memory_limit() {
    let fault = fault("allocate");
    assert_eq!(fault.kind, FaultKind::OutOfMemory, "{fault}");
}

#[test]
fn a_panic_says_what_and_where() {
    let fault = fault("panic");
    assert_eq!(fault.kind, FaultKind::Trap);
    assert!(fault.message.contains("out of cheese"), "{fault}");
    assert!(fault.message.contains("hostile/src/lib.rs"), "{fault}");
}

#[test]
fn a_text_that_is_not_utf8_is_bad_output() {
    assert_eq!(fault("garbage").kind, FaultKind::BadOutput);
}

#[test]
fn a_very_long_answer_is_bad_output() {
    assert_eq!(fault("huge").kind, FaultKind::BadOutput);
}

#[test]
fn waiting_for_nothing_is_pending_with_no_requests() {
    assert_eq!(step("stall").outcome, Ok(Step::Pending(Vec::new())));
}

#[test]
fn a_pool_runs_the_same_steps_to_the_same_ends() {
    let pooled = Sandbox::new(SandboxConfig {
        allocation: Allocation::Pooling,
        ..SandboxConfig::default()
    });
    let policy = pooled
        .expect("an engine")
        .load(guests::hostile())
        .expect("it loads");
    for mischief in ["behave", "panic", "garbage", "stall", "loop"] {
        // The fuel differs: without copy-on-write, filling the memory is part of the step. A recording names the engine.
        let other = policy.step(&pass(mischief), &Limits::default());
        assert_eq!(other.outcome, step(mischief).outcome, "{mischief}");
    }
}
